//! One session in full feature phase: which units it sees, and what it leaves behind.

use crate::access::{LunEntry, LunMap, target_port};
use crate::hidden;
use crate::iscsi_shard::{IscsiShard, Message};
use crate::nexus::{NexusName, SessionId};
use crate::reach::Reach;
use crate::registry::{Counters, Entry, Notice};
use crate::replaced::Replaced;
use iscsi::{CloseReason, Negotiated, SessionType};
use model::{Subject, SubjectKind, VolumeId};
use scsi::{InitiatorPort, NexusId, Outcome, Status};
use shard::World;
use shard::mailbox::{self, Receiver, Sender};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// What hosts ask to find out what is there.
const PROBES: [&str; 3] = ["INQUIRY", "REPORT LUNS", "REQUEST SENSE"];

/// A session that is logged in. Its connection owns it.
pub(crate) struct Session<W: World> {
    /// The session's number, and its nexus' for every unit.
    pub id: SessionId,
    /// What it counts.
    pub counters: Arc<Counters>,
    /// True when it may only ask which targets there are.
    pub discovery: bool,
    shard: Rc<IscsiShard<W>>,
    initiator: String,
    isid: [u8; 6],
    peer: SocketAddr,
    target: String,
    /// The portal group through which it came in, as long as it lives.
    tag: u16,
    luns: Rc<LunMap>,
    access_epoch: u64,
    /// The units that know this nexus, in the order of their LUNs. A session sees no unit under two.
    attached: Vec<(u16, Reach<W>)>,
    /// What was another unit under its number before.
    replaced: Replaced,
}

/// The addresses of a connection's two ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The initiator's.
    pub peer: SocketAddr,
    /// Ours.
    pub portal: SocketAddr,
}

impl<W: World> Session<W> {
    /// Enters the session into the registry. Sessions of the same nexus are told to end; nothing may be
    /// done for this one until each of the receivers says that its sender is gone.
    pub(crate) fn enter(
        shard: &Rc<IscsiShard<W>>,
        id: SessionId,
        facts: &Negotiated,
        ends: Ends,
        notices: Sender<Notice>,
    ) -> (Self, Vec<Receiver<()>>) {
        let counters = Arc::new(Counters::default());
        let identity = &facts.identity;
        let discovery = identity.session_type == SessionType::Discovery;
        let (named, kind) = (identity.target_name.as_ref(), identity.session_type);
        let nexus = NexusName::of(&identity.initiator_name, identity.isid, kind, named);
        let (initiator, target) = (nexus.initiator.clone(), nexus.target.clone());
        let host = shard.access.borrow().host_of(&initiator, ends.peer.ip()).map(|host| host.name.to_string());
        let entry = Entry {
            nexus,
            host: host.unwrap_or_default(),
            peer: ends.peer,
            portal: ends.portal,
            was_sent: false,
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
            // One that cannot be told any more is gone already, and so is the sender.
            let _ = old.notices.send(Notice::Close { gone });
            is_gone
        });
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
            replaced: Replaced::default(),
        };
        session.see_access();
        (session, predecessors)
    }

    /// The nexus that units know the session by.
    pub(crate) fn nexus(&self) -> NexusId {
        NexusId(self.id.0)
    }

    /// The initiator's name.
    pub(crate) fn initiator(&self) -> &str {
        &self.initiator
    }

    /// The target's name; empty for a discovery session.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// The unit under `lun`, which knows this nexus from now on.
    pub(crate) fn find(&mut self, lun: u64) -> Option<&mut Reach<W>> {
        let number = scsi::Lun(lun).number()?;
        let at = match self.position(number) {
            Ok(at) => at,
            Err(at) => {
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

    /// Where the unit under `number` is among those that know this nexus, or would be.
    fn position(&self, number: u16) -> Result<usize, usize> {
        self.attached.binary_search_by_key(&number, |(number, _)| *number)
    }

    /// All units that the session sees and may use.
    pub(crate) fn units(&mut self) -> Vec<LunEntry> {
        let luns = self.luns.clone();
        for (&number, &entry) in &*luns {
            if let (Err(at), false) = (self.position(number), self.replaced.withholds(number, entry.unit)) {
                self.attach(at, number, entry);
            }
        }
        self.attached.iter().map(|(_, reach)| reach.entry).collect()
    }

    /// The answer to a command for a LUN under which the session sees nothing: either nothing is there, or another unit than it knew
    /// (see [`Replaced`]).
    #[cold]
    pub(crate) fn answer_absent(&mut self, lun: u64, cdb: scsi::Cdb) -> Outcome {
        let shown = scsi::Lun(lun).number().and_then(|number| Some((number, self.luns.get(&number)?.unit)));
        match shown {
            Some((number, unit)) if self.replaced.tells_now(number, unit) => {
                scsi::absent::replaced(cdb, &self.lun_numbers())
            }
            Some(_) => scsi::absent::execute(cdb, &self.lun_numbers()),
            None => {
                self.asked_of_hidden(lun, cdb);
                scsi::absent::execute(cdb, &self.lun_numbers())
            }
        }
    }

    /// The numbers of all units that the session sees, as REPORT LUNS tells them.
    fn lun_numbers(&self) -> Vec<scsi::Lun> {
        self.luns.keys().map(|&number| scsi::Lun::of(number)).collect()
    }

    /// The initiator asks something of a unit that it does not see; that it looks what is there is nothing to tell.
    #[cold]
    fn asked_of_hidden(&self, lun: u64, cdb: scsi::Cdb) {
        let Some(number) = scsi::Lun(lun).number().filter(|_| !PROBES.contains(&cdb.operation_name())) else { return };
        let view = self.shard.access.borrow().clone();
        let found = view.host_of(&self.initiator, self.peer.ip()).zip(view.target_of(&self.target));
        let Some((host, target)) = found else { return };
        self.shard.hidden.happened(&format!("{} {} {number}", host.name, target.name), || {
            let subject = Subject::new(SubjectKind::Host, &host.name);
            let what = format!("host {} asked for LUN {number} of {}, which it does not see", host.name, self.target);
            let why = hidden::why(&view, host, target, self.tag, number);
            (subject, what, format!("{}, {why}", cdb.operation_name()))
        });
    }

    /// Its connection was ended for what the host did or left undone.
    pub(crate) fn was_cut_off(&self, reason: CloseReason) {
        let (initiator, peer) = (&self.initiator, self.peer.ip());
        self.shard.cut_off.happened(&format!("{initiator} {peer} {reason}"), || {
            let host = self.shard.access.borrow().host_of(initiator, peer).map(|host| host.name.to_string());
            let host = host.unwrap_or_else(|| initiator.clone());
            let what = format!("host {host} was cut off ({initiator} at {peer})");
            (Subject::new(SubjectKind::Host, &host), what, format!("{reason}; look at the host and the way to it"))
        });
    }

    /// The list of units. Whoever has it may use what is another unit than before.
    pub(crate) fn report_luns(&mut self, cdb: scsi::Cdb) -> Outcome {
        let outcome = scsi::absent::report_luns(cdb, &self.lun_numbers());
        if outcome.status == Status::Good {
            self.inventory_reported();
        }
        outcome
    }

    /// The initiator has read the list of units: it need not be told that it changed, and may use what is another unit than before.
    fn inventory_reported(&mut self) {
        let nexus = self.nexus();
        self.replaced.reported(&self.luns);
        for (_, reach) in &self.attached {
            self.at_home(reach.entry, move |unit| unit.inventory_reported(nexus));
        }
    }

    /// Commands for the unit under `lun` ended with a connection, and the unit tells so.
    pub(crate) fn commands_lost(&mut self, lun: u64) {
        let nexus = self.nexus();
        if let Some(entry) = self.find(lun).map(|reach| reach.entry) {
            self.at_home(entry, move |unit| unit.commands_lost(nexus));
        }
    }

    /// Goes by the present access table; false when the session may not be any more.
    pub(crate) fn see_access(&mut self) -> bool {
        if self.access_epoch == self.shard.access_epoch.get() && self.access_epoch != 0 {
            return true;
        }
        let view = self.shard.access.borrow().clone();
        let Some(host) = view.host_of(&self.initiator, self.peer.ip()) else { return false };
        if self.discovery {
            return true;
        }
        let Some(target) = view.target_of(&self.target) else { return false };
        let luns = self.shard.luns(target, host, self.tag);
        let changed = self.access_epoch != 0 && luns != self.luns;
        self.access_epoch = self.shard.access_epoch.get();
        let before = std::mem::replace(&mut self.luns, luns);
        if changed {
            self.replaced.note(&before, &self.luns);
            self.follow_units(is_other_inventory(&before, &self.luns));
        }
        true
    }

    /// Units whose nexus this was forget it.
    pub(crate) async fn leave(self) {
        let nexus = self.nexus();
        for entry in self.attached.into_iter().map(|(_, reach)| reach.entry) {
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
        let reach = Reach::new(entry);
        let incoming = reach.incoming.clone();
        self.attached.insert(at, (number, reach));
        let replaces = self.replaced.is_taken_up(number);
        self.at_home(entry, move |unit| {
            unit.attach(nexus, initiator, port, incoming, entry.read_only);
            if replaces {
                unit.took_the_place_of_another(nexus);
            }
        });
    }

    /// Units that are still seen report that the inventory has changed, where it has; those that are not forget the
    /// nexus, and its commands there end with TASK ABORTED. So do a stand-in and its unit when one takes the place of the other: the
    /// host goes on to see the same unit.
    fn follow_units(&mut self, inventory_changed: bool) {
        let nexus = self.nexus();
        let seen: BTreeMap<VolumeId, (u16, LunEntry)> =
            self.luns.iter().map(|(&number, &entry)| (entry.unit, (number, entry))).collect();
        for (was, mut reach) in std::mem::take(&mut self.attached) {
            match seen.get(&reach.entry.unit) {
                Some(&(number, entry)) if number == was && entry.is_same_place(&reach.entry) => {
                    if inventory_changed {
                        self.at_home(entry, move |unit| unit.inventory_changed(nexus, entry.read_only));
                    }
                    reach.lead_to(entry);
                    self.attached.push((number, reach));
                }
                // Under another number the unit is met anew, or not before the list of units was read.
                _ => self.at_home(reach.entry, move |unit| unit.withdraw(nexus)),
            }
        }
    }

    fn at_home(&self, entry: LunEntry, work: impl FnOnce(&crate::scsi_unit::ScsiUnit<W>) + Send + 'static) {
        if entry.home == self.shard.index {
            if let Some(unit) = self.shard.unit_at(&entry) {
                work(&unit);
            }
            return;
        }
        // Letters are read in order, so a command that is posted behind this one finds the work done.
        let letter = Message::Run(Box::new(move |shard: Rc<IscsiShard<W>>| {
            if let Some(unit) = shard.unit_at(&entry) {
                work(&unit);
            }
        }));
        self.shard.post(entry.home, letter);
    }
}

/// True when an initiator that saw `before` finds another list of units, or may do something else with one of them.
fn is_other_inventory(before: &LunMap, now: &LunMap) -> bool {
    let same = |((one, was), (other, is)): ((&u16, &LunEntry), (&u16, &LunEntry))| one == other && was.is_same_unit(is);
    before.len() != now.len() || !before.iter().zip(now).all(same)
}

/// The negotiated keys of RFC 7143 §13, for people.
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
