//! Session in full feature phase: its LUN map, the attached units, and the cleanup at its end.

use crate::access::{LunEntry, LunMap, target_port};
use crate::iscsi_shard::{IscsiShard, Message};
use crate::nexus::{NexusName, SessionId};
use crate::registry::{Counters, Entry, Notice};
use crate::replaced_luns::ReplacedLuns;
use crate::unit_route::UnitRoute;
use crate::unmapped_lun;
use iscsi::{CloseReason, Negotiated, SessionType};
use model::{Subject, SubjectKind, VolumeId};
use scsi::{InitiatorPort, NexusId, Outcome, Status};
use shard::World;
use shard::mailbox::{self, Receiver, Sender};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Commands of a device scan. An unmapped LUN that receives only these is not reported to the operator.
const PROBES: [&str; 3] = ["INQUIRY", "REPORT LUNS", "REQUEST SENSE"];

/// Session in full feature phase, owned by its connection task.
pub(crate) struct Session<W: World> {
    /// Number of the session, and of its nexus at every unit.
    pub id: SessionId,
    /// Statistics of the session.
    pub counters: Arc<Counters>,
    /// True for a discovery session, which may only send SendTargets.
    pub discovery: bool,
    /// Shard on which the session runs.
    shard: Rc<IscsiShard<W>>,
    /// Initiator name.
    initiator: String,
    /// ISID.
    isid: [u8; 6],
    /// Address of the initiator at login.
    peer: SocketAddr,
    /// Target name; empty for a discovery session.
    target: String,
    /// Portal group of the leading connection, unchanged for the lifetime of the session.
    tag: u16,
    /// LUN map of the session, shared with other sessions of the same host.
    luns: Rc<LunMap>,
    /// Epoch of the access table that `luns` was derived from; 0 before the first lookup.
    access_epoch: u64,
    /// Units to which the nexus is attached, in the order of their LUNs. A session never attaches to one unit under two
    /// LUNs.
    attached: Vec<(u16, UnitRoute<W>)>,
    /// LUNs that addressed another volume before.
    replaced: ReplacedLuns,
}

/// Addresses of the two endpoints of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoints {
    /// Address of the initiator.
    pub peer: SocketAddr,
    /// Local address.
    pub portal: SocketAddr,
}

impl<W: World> Session<W> {
    /// Registers the session. Existing sessions of the same nexus are requested to close (session reinstatement, RFC
    /// 7143 §6.3.5); this session must not execute anything until every returned receiver is closed, which means that
    /// its predecessor has ended.
    pub(crate) fn enter(
        shard: &Rc<IscsiShard<W>>,
        id: SessionId,
        facts: &Negotiated,
        ends: Endpoints,
        notices: Sender<Notice>,
    ) -> (Self, Vec<Receiver<()>>) {
        // Shared with the registry, which reads the counters without asking the session.
        let counters = Arc::new(Counters::default());
        let identity = &facts.identity;
        let discovery = identity.session_type == SessionType::Discovery;
        let (named, kind) = (identity.target_name.as_ref(), identity.session_type);
        let nexus = NexusName::of(&identity.initiator_name, identity.isid, kind, named);
        let (initiator, target) = (nexus.initiator.clone(), nexus.target.clone());
        // The host may have been removed from the access table since the login was granted; its sessions then end soon.
        let host = shard.access.borrow().host_of(&initiator, ends.peer.ip()).map(|host| host.name.to_string());
        let entry = Entry {
            nexus,
            host: host.unwrap_or_default(),
            peer: ends.peer,
            portal: ends.portal,
            // Set by the registry, which knows the pending redirections.
            was_redirected: false,
            connections: Vec::new(),
            shard: shard.index,
            tsih: identity.tsih.0,
            authentication: identity.authentication.clone(),
            negotiated: describe(facts),
            since: shard.world.now(),
            counters: counters.clone(),
            notices,
        };
        let predecessors = shard.registry.enter(id, entry).into_iter().map(|(_, old)| {
            let (gone, is_gone) = mailbox::channel();
            // A session that cannot receive the notice is ending already; the dropped sender closes the receiver.
            let _ = old.notices.send(Notice::Close { gone });
            is_gone
        });
        // Collected here: the iterator is lazy, and the notices must be sent now.
        let predecessors = predecessors.collect();
        let mut session = Self {
            id,
            counters,
            discovery,
            shard: shard.clone(),
            initiator,
            isid: identity.isid.0,
            peer: ends.peer,
            target,
            tag: shard.access.borrow().policy_at(ends.portal).tag,
            luns: Rc::default(),
            access_epoch: 0,
            attached: Vec::new(),
            replaced: ReplacedLuns::default(),
        };
        // The LUN map must exist before the first command.
        session.see_access();
        (session, predecessors)
    }

    /// Identifier of the nexus at the units.
    pub(crate) fn nexus(&self) -> NexusId {
        NexusId(self.id.0)
    }

    /// Initiator name.
    pub(crate) fn initiator(&self) -> &str {
        &self.initiator
    }

    /// Target name; empty for a discovery session.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Returns the route to the unit under `lun`. Attaches the nexus to the unit at first use.
    pub(crate) fn find(&mut self, lun: u64) -> Option<&mut UnitRoute<W>> {
        let number = scsi::Lun(lun).number()?;
        let at = match self.position(number) {
            Ok(at) => at,
            Err(at) => {
                // Units are attached lazily: a session with thousands of LUNs pays only for those that it uses.
                let entry = *self.luns.get(&number)?;
                if self.replaced.withholds(number, entry.unit) {
                    return None;
                }
                self.attach(at, number, entry);
                at
            }
        };
        self.attached.get_mut(at).map(|(_, reach)| reach)
    }

    /// Searches `attached` for the LUN: `Ok` with its position, or `Err` with the position at which to insert it.
    fn position(&self, number: u16) -> Result<usize, usize> {
        self.attached.binary_search_by_key(&number, |(number, _)| *number)
    }

    /// Returns all units of the session. Attaches the nexus to those that it has not used yet.
    pub(crate) fn units(&mut self) -> Vec<LunEntry> {
        let luns = self.luns.clone();
        for (&number, &entry) in &*luns {
            if let (Err(at), false) = (self.position(number), self.replaced.withholds(number, entry.unit)) {
                self.attach(at, number, entry);
            }
        }
        self.attached.iter().map(|(_, reach)| reach.entry).collect()
    }

    /// Answers a command for a LUN without an accessible unit: either nothing is mapped, or another volume than the
    /// initiator knows (see [`ReplacedLuns`]).
    #[cold]
    pub(crate) fn answer_absent(&mut self, lun: u64, cdb: scsi::Cdb) -> Outcome {
        let shown = scsi::Lun(lun).number().and_then(|number| Some((number, self.luns.get(&number)?.unit)));
        match shown {
            // Once for each change: the guard marks the report as done.
            Some((number, unit)) if self.replaced.take_report_due(number, unit) => {
                scsi::no_unit::replaced(cdb, &self.lun_numbers())
            }
            Some(_) => scsi::no_unit::execute(cdb, &self.lun_numbers()),
            None => {
                self.report_unmapped_lun(lun, cdb);
                scsi::no_unit::execute(cdb, &self.lun_numbers())
            }
        }
    }

    /// LUNs of all units of the session, as reported by REPORT LUNS.
    fn lun_numbers(&self) -> Vec<scsi::Lun> {
        self.luns.keys().map(|&number| scsi::Lun::of(number)).collect()
    }

    /// Raises a coalesced event for a command to an unmapped LUN. Commands of a device scan are not reported.
    #[cold]
    fn report_unmapped_lun(&self, lun: u64, cdb: scsi::Cdb) {
        // A LUN that is not a number of one level cannot be mapped, so it is not reported either.
        let Some(number) = scsi::Lun(lun).number().filter(|_| !PROBES.contains(&cdb.operation_name())) else { return };
        let view = self.shard.access.borrow().clone();
        let found = view.host_of(&self.initiator, self.peer.ip()).zip(view.target_of(&self.target));
        let Some((host, target)) = found else { return };
        self.shard.unmapped_lun_events.record(&format!("{} {} {number}", host.name, target.name), || {
            let subject = Subject::new(SubjectKind::Host, &host.name);
            let what =
                format!("host {} requested LUN {number} of {}, which is not mapped to it", host.name, self.target);
            let why = unmapped_lun::explain(&view, host, target, self.tag, number);
            (subject, what, format!("{}, {why}", cdb.operation_name()))
        });
    }

    /// Raises a coalesced event for a connection that was closed because of a protocol violation or a timeout of the
    /// host.
    pub(crate) fn was_cut_off(&self, reason: CloseReason) {
        let (initiator, peer) = (&self.initiator, self.peer.ip());
        self.shard.cut_off.record(&format!("{initiator} {peer} {reason}"), || {
            let host = self.shard.access.borrow().host_of(initiator, peer).map(|host| host.name.to_string());
            let host = host.unwrap_or_else(|| initiator.clone());
            let what = format!("session of host {host} closed ({initiator} at {peer})");
            (Subject::new(SubjectKind::Host, &host), what, format!("{reason}; check the host and the network"))
        });
    }

    /// Executes REPORT LUNS. After it, LUNs that address another volume than before become accessible.
    pub(crate) fn report_luns(&mut self, cdb: scsi::Cdb) -> Outcome {
        let outcome = scsi::no_unit::report_luns(cdb, &self.lun_numbers());
        // Only a successful REPORT LUNS tells the initiator what the LUNs address now.
        if outcome.status == Status::Good {
            self.inventory_reported();
        }
        outcome
    }

    /// Handles a successful REPORT LUNS: clears the pending REPORTED LUNS DATA HAS CHANGED, and makes replaced LUNs
    /// accessible.
    fn inventory_reported(&mut self) {
        let nexus = self.nexus();
        self.replaced.reported(&self.luns);
        for (_, reach) in &self.attached {
            self.run_on_home(reach.entry, move |unit| unit.inventory_reported(nexus));
        }
    }

    /// Reports to the unit under `lun` that commands were lost with a connection, so that it establishes a unit
    /// attention.
    pub(crate) fn commands_lost(&mut self, lun: u64) {
        let nexus = self.nexus();
        if let Some(entry) = self.find(lun).map(|reach| reach.entry) {
            self.run_on_home(entry, move |unit| unit.commands_lost(nexus));
        }
    }

    /// Applies the current access table. Returns false when the session is no longer permitted.
    pub(crate) fn see_access(&mut self) -> bool {
        // Called on every notice, so an unchanged table must be cheap. Epoch 0 means that no table was applied yet.
        if self.access_epoch == self.shard.access_epoch.get() && self.access_epoch != 0 {
            return true;
        }
        let view = self.shard.access.borrow().clone();
        let Some(host) = view.host_of(&self.initiator, self.peer.ip()) else { return false };
        // A discovery session has no LUNs; it may exist as long as its host may log in.
        if self.discovery {
            self.access_epoch = self.shard.access_epoch.get();
            return true;
        }
        let Some(target) = view.target_of(&self.target) else { return false };
        // Shared by all sessions of the host, so thousands of sessions hold one copy.
        let luns = self.shard.luns(target, host, self.tag);
        // The first map of a session is no change of the inventory.
        let changed = self.access_epoch != 0 && luns != self.luns;
        self.access_epoch = self.shard.access_epoch.get();
        let before = std::mem::replace(&mut self.luns, luns);
        if changed {
            self.replaced.note(&before, &self.luns);
            self.follow_units(is_other_inventory(&before, &self.luns));
        }
        true
    }

    /// Detaches the nexus from all units and removes the session from the registry.
    pub(crate) async fn leave(self) {
        let nexus = self.nexus();
        for entry in self.attached.into_iter().map(|(_, reach)| reach.entry) {
            // Awaited one by one: the registry entry must not disappear while a unit still knows the nexus.
            self.shard
                .call(entry.home, move |shard| async move {
                    if let Some(unit) = shard.unit_at(&entry) {
                        unit.detach(nexus);
                    }
                })
                .await;
        }
        self.shard.registry.leave(self.id);
    }

    fn attach(&mut self, at: usize, number: u16, entry: LunEntry) {
        let nexus = self.nexus();
        let initiator = InitiatorPort { name: self.initiator.clone(), isid: self.isid };
        let port = target_port(&self.target, self.tag);
        let reach = UnitRoute::new(entry);
        // The unit clears commands that still wait for data through this counter.
        let incoming = reach.pending_data.clone();
        self.attached.insert(at, (number, reach));
        // Evaluated before the unit is attached: it answers true once.
        let replaces = self.replaced.take_first_use(number);
        self.run_on_home(entry, move |unit| {
            unit.attach(nexus, initiator, port, incoming, entry.read_only);
            if replaces {
                unit.replaced_other_unit(nexus);
            }
        });
    }

    /// Adapts the attached units to a changed LUN map. Units that remain establish REPORTED LUNS DATA HAS CHANGED if
    /// the inventory has changed; from the others the nexus is detached, and its commands there end with TASK ABORTED.
    /// The same applies when a stand-in and its unit replace each other: the host continues to see one unit.
    fn follow_units(&mut self, inventory_changed: bool) {
        let nexus = self.nexus();
        // By volume, because a volume may have moved to another LUN.
        let seen: BTreeMap<VolumeId, (u16, LunEntry)> =
            self.luns.iter().map(|(&number, &entry)| (entry.unit, (number, entry))).collect();
        for (was, mut reach) in std::mem::take(&mut self.attached) {
            match seen.get(&reach.entry.unit) {
                Some(&(number, entry)) if number == was && entry.is_same_place(&reach.entry) => {
                    if inventory_changed {
                        self.run_on_home(entry, move |unit| unit.inventory_changed(nexus, entry.read_only));
                    }
                    reach.redirect(entry);
                    // The order by LUN is kept, because the LUN is unchanged.
                    self.attached.push((number, reach));
                }
                // A unit under another LUN is attached again at first use, or after REPORT LUNS if the LUN was
                // replaced.
                _ => self.run_on_home(reach.entry, move |unit| unit.withdraw(nexus)),
            }
        }
    }

    /// Runs `work` with the unit on its home shard. Does not wait for it.
    fn run_on_home(&self, entry: LunEntry, work: impl FnOnce(&crate::scsi_unit::ScsiUnit<W>) + Send + 'static) {
        // Units of this shard are called directly; the state of a unit is never touched from another shard.
        if entry.home == self.shard.index {
            if let Some(unit) = self.shard.unit_at(&entry) {
                work(&unit);
            }
            return;
        }
        // Messages between two shards are delivered in order, so a command that is posted later finds this work done.
        let letter = Message::Run(Box::new(move |shard: Rc<IscsiShard<W>>| {
            if let Some(unit) = shard.unit_at(&entry) {
                work(&unit);
            }
        }));
        self.shard.post(entry.home, letter);
    }
}

/// True when an initiator observes a difference between the two maps: another set of units, or other permissions for
/// one of them.
fn is_other_inventory(before: &LunMap, now: &LunMap) -> bool {
    let same = |((one, was), (other, is)): ((&u16, &LunEntry), (&u16, &LunEntry))| one == other && was.is_same_unit(is);
    before.len() != now.len() || !before.iter().zip(now).all(same)
}

/// Formats the negotiated keys of RFC 7143 §13 for reports.
fn describe(facts: &Negotiated) -> BTreeMap<String, String> {
    let yes = |value: bool| if value { "Yes" } else { "No" }.to_owned();
    let digest = |value: bool| if value { "CRC32C" } else { "None" }.to_owned();
    [
        ("HeaderDigest", digest(facts.header_digest)),
        ("DataDigest", digest(facts.data_digest)),
        ("InitialR2T", yes(facts.initial_r2t)),
        ("ImmediateData", yes(facts.immediate_data)),
        ("MaxRecvDataSegmentLength", facts.own_data_segment_bytes_max.to_string()),
        ("MaxBurstLength", facts.burst_bytes_max.to_string()),
        ("FirstBurstLength", facts.first_burst_bytes_max.to_string()),
        ("MaxOutstandingR2T", facts.outstanding_r2t_max.to_string()),
        ("MaxConnections", facts.connections_max.to_string()),
        ("ErrorRecoveryLevel", facts.error_recovery_level.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}
