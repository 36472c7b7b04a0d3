//! PERSISTENT RESERVE OUT (SPC-4): its parameter list, and what comes before its status.
#![warn(clippy::arithmetic_side_effects)]

use super::state::{Change, Move, Place, Register};
use crate::cdb::Cdb;
use crate::command::{NexusId, Status};
use crate::conflict::ReservationType;
use crate::failure::Failure;
use crate::identity::TargetPort;
use crate::nexus::{InitiatorPort, ItNexus, TransportId, pointer};
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::Affected;
use crate::unit::LogicalUnit;
use block::{BlockDevice, Rope};
use std::rc::Rc;

/// The parameter list without TransportIDs, and the longest with them, in bytes.
const LIST_BYTES: u64 = 24;
const LIST_BYTES_MAX: u64 = 1 << 16;

/// In the byte behind the keys of the basic list, and in the second one of REGISTER AND MOVE's.
const SPEC_I_PT: u8 = 0x08;
const ALL_TG_PT: u8 = 0x04;
const APTPL: u8 = 0x01;
const UNREG: u8 = 0x02;

const REGISTER_BITS_AT: usize = 20;
const MOVE_BITS_AT: usize = 17;
const MOVE_PORT_AT: usize = 18;
/// Where TRANSPORTID PARAMETER DATA LENGTH stands, behind the list of REGISTER and in that of REGISTER AND MOVE.
const REGISTER_IDS_AT: usize = 24;
const MOVE_ID_AT: usize = 20;
/// Bytes of that length.
const LENGTH_BYTES: usize = 4;

const TOO_SHORT: Sense = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

/// The service actions of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Register { ignores_key: bool },
    Reserve,
    Release,
    Clear,
    Preempt { aborts: bool },
    RegisterAndMove,
}

impl Action {
    fn of(cdb: Cdb) -> Self {
        match cdb.u8_at(1) & 0x1F {
            0x00 => Self::Register { ignores_key: false },
            0x01 => Self::Reserve,
            0x02 => Self::Release,
            0x03 => Self::Clear,
            0x04 => Self::Preempt { aborts: false },
            0x05 => Self::Preempt { aborts: true },
            0x06 => Self::Register { ignores_key: true },
            0x07 => Self::RegisterAndMove,
            _ => unreachable!("the table of operations has no other"),
        }
    }
}

/// Refuses a parameter list length that no list can have, before any of the list comes.
///
/// *Errors*: 1A/00.
pub(crate) fn check_list_length(cdb: Cdb) -> Result<(), Sense> {
    let possible = match Action::of(cdb) {
        Action::Register { ignores_key: false } | Action::RegisterAndMove => LIST_BYTES..=LIST_BYTES_MAX,
        _ => LIST_BYTES..=LIST_BYTES,
    };
    if possible.contains(&u64::from(cdb.u32_at(5))) { Ok(()) } else { Err(TOO_SHORT) }
}

/// A parameter list that is not judged yet.
struct List<'a>(&'a [u8]);

impl List<'_> {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], Sense> {
        self.0.get(at..).and_then(|rest| rest.first_chunk().copied()).ok_or(TOO_SHORT)
    }

    fn u8(&self, at: usize) -> Result<u8, Sense> {
        self.array(at).map(|[byte]| byte)
    }

    /// RESERVATION KEY and SERVICE ACTION RESERVATION KEY.
    fn keys(&self) -> Result<(u64, u64), Sense> {
        Ok((self.array(0).map(u64::from_be_bytes)?, self.array(8).map(u64::from_be_bytes)?))
    }

    /// The TransportIDs behind their length at `at`, to the end of the list, and where each of them stands.
    fn transport_ids(&self, at: usize) -> Result<Vec<(TransportId, usize)>, Sense> {
        let bytes = usize::try_from(self.array(at).map(u32::from_be_bytes)?).map_err(|_| TOO_SHORT)?;
        let mut next = at.saturating_add(LENGTH_BYTES);
        if bytes != self.0.len().saturating_sub(next) {
            return Err(TOO_SHORT);
        }
        let mut ids = Vec::new();
        while next < self.0.len() {
            let (id, len) = TransportId::parse(self.0, next)?;
            ids.push((id, next));
            next = next.saturating_add(len);
        }
        Ok(ids)
    }
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// Does what the service action asks. What is to survive power loss does, and preempted tasks have ended, when it returns.
    pub(crate) async fn persistent_reserve_out(&self, job: &Job) -> Result<Rope, Failure> {
        if self.nexuses.is_read_only(job.nexus) {
            // Who may not write does not decide who may.
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        let (cdb, data) = (job.request.cdb, job.whole_data()?);
        // It comes through a port as long as it is attached; the tasks of one that is not are aborted.
        let (asker, port) = self.nexuses.names(job.nexus).ok_or(Status::Busy)?;
        let place = (asker, port.relative_port);
        let action = Action::of(cdb);
        let change = self.change_of(action, cdb, &List(&data), &place, &port)?;
        let preempted = change.preempted.clone();
        self.commit_reservations(change).await?;
        if action == (Action::Preempt { aborts: true }) {
            self.end_tasks_of(&preempted, job).await;
        }
        Ok(Rope::new())
    }

    /// No task of those who were preempted runs any more, but that of `job` itself; they end as [`LogicalUnit::manage`] says.
    async fn end_tasks_of(&self, preempted: &[Rc<ItNexus>], job: &Job) {
        let preempted: Vec<_> = preempted.iter().map(|nexus| (nexus.clone(), ())).collect();
        let tasks_of = |(nexus, ())| {
            if nexus == job.nexus { Affected::OthersOf(nexus, job.tag) } else { Affected::OfNexus(nexus) }
        };
        let preempted = self.nexuses.called(&preempted);
        let is_other = |one: NexusId| one != job.nexus && preempted.iter().any(|&(nexus, ())| nexus == one);
        let mut cleared = self.nexuses.clear_incoming(self.mode.get().task_aborted_status, is_other);
        cleared.extend(self.tasks.nexuses().into_iter().filter(|&one| is_other(one)));
        let affected: Vec<Affected> = preempted.iter().copied().map(tasks_of).collect();
        for &affected in &affected {
            self.tasks.abort(affected, |one| self.aborted_by(job.nexus, one));
        }
        self.tell_of_cleared(cleared.into_iter());
        for affected in affected {
            self.tasks.ended(affected).await;
        }
    }

    fn change_of(
        &self,
        action: Action,
        cdb: Cdb,
        list: &List<'_>,
        place: &Place,
        port: &TargetPort,
    ) -> Result<Change, Failure> {
        let (key, action_key) = list.keys()?;
        let kind = ReservationType::of_cdb(cdb.u8_at(2));
        if !matches!(action, Action::Register { ignores_key: false } | Action::RegisterAndMove)
            && list.u8(REGISTER_BITS_AT)? & SPEC_I_PT != 0
        {
            return Err(Sense::parameter(REGISTER_BITS_AT as u16, Some(3)).into());
        }
        let asker = &place.0;
        match action {
            Action::Register { ignores_key } => {
                let order = self.register_order(ignores_key, list, asker, port)?;
                self.reservations.state().register(place, &order)
            }
            Action::Reserve => self.reservations.state().reserve(asker, key, kind?),
            Action::Release => self.reservations.state().release(asker, key, kind?),
            Action::Clear => self.reservations.state().clear(asker, key),
            Action::Preempt { .. } => self.reservations.state().preempt(asker, key, action_key, kind),
            Action::RegisterAndMove => {
                let order = self.move_order(list, port)?;
                self.reservations.state().move_to(asker, &order)
            }
        }
    }

    fn register_order(
        &self,
        ignores_key: bool,
        list: &List<'_>,
        asker: &ItNexus,
        port: &TargetPort,
    ) -> Result<Register, Failure> {
        let (key, new_key) = list.keys()?;
        let bits = list.u8(REGISTER_BITS_AT)?;
        let persists = self.admit_persistence(bits, REGISTER_BITS_AT)?;
        let other_ports = if bits & ALL_TG_PT == 0 { Vec::new() } else { self.other_ports(port) };
        let at = |initiator: &InitiatorPort, port: &TargetPort| {
            (Rc::new(ItNexus::new(initiator.clone(), port)), port.relative_port)
        };
        let others = if bits & SPEC_I_PT == 0 {
            if list.0.len() as u64 != LIST_BYTES {
                return Err(TOO_SHORT.into());
            }
            None
        } else {
            let mut others = Vec::new();
            for (id, id_at) in list.transport_ids(REGISTER_IDS_AT)? {
                let initiator = self.initiator_of(id, id_at)?;
                others.extend(std::iter::once(port).chain(&other_ports).map(|port| at(&initiator, port)));
            }
            Some(others)
        };
        let at_other_ports = other_ports.iter().map(|port| at(&asker.initiator, port)).collect();
        Ok(Register { ignores_key, key, new_key, persists, at_other_ports, others })
    }

    fn move_order(&self, list: &List<'_>, port: &TargetPort) -> Result<Move, Failure> {
        let (key, new_key) = list.keys()?;
        let bits = list.u8(MOVE_BITS_AT)?;
        let persists = self.admit_persistence(bits, MOVE_BITS_AT)?;
        let relative_port = list.array(MOVE_PORT_AT).map(u16::from_be_bytes)?;
        let mut ids = list.transport_ids(MOVE_ID_AT)?.into_iter();
        let (Some((id, id_at)), None) = (ids.next(), ids.next()) else {
            return Err(pointer(MOVE_ID_AT).into());
        };
        let initiator = self.initiator_of(id, id_at)?;
        // The identifier is relative to a target; others that show the unit are meant where the asking one has no such port.
        let mut others = self.other_ports(port);
        others.sort_by_key(|other| other.target_name != port.target_name);
        let mut ports = std::iter::once(port).chain(&others);
        let to = ports.find(|port| port.relative_port == relative_port).ok_or(pointer(MOVE_PORT_AT))?;
        let to = (Rc::new(ItNexus::new(initiator, to)), relative_port);
        Ok(Move { key, new_key, persists, unregisters: bits & UNREG != 0, to })
    }

    /// APTPL, which is refused where nothing can be kept.
    fn admit_persistence(&self, bits: u8, at: usize) -> Result<bool, Sense> {
        let asked = bits & APTPL != 0;
        if asked && !self.reservations.keeper.is_able() {
            return Err(Sense::parameter(u16::try_from(at).unwrap_or(u16::MAX), Some(0)));
        }
        Ok(asked)
    }

    /// The other target ports that lead to the unit.
    fn other_ports(&self, port: &TargetPort) -> Vec<TargetPort> {
        let name = |port: &TargetPort| (port.target_name.clone(), port.portal_group_tag);
        let mut ports = self.reservations.target_ports();
        ports.retain(|other| name(other) != name(port));
        ports
    }

    /// The initiator port that a TransportID names: one that names a device must leave no choice.
    fn initiator_of(&self, id: TransportId, at: usize) -> Result<InitiatorPort, Sense> {
        match id {
            TransportId::Port(port) => Ok(port),
            TransportId::Device(name) => {
                let mut known = self.nexuses.initiators();
                known.extend(self.reservations.state().registrations.keys().map(|nexus| nexus.initiator.clone()));
                let mut ports = known.into_iter().filter(|port| port.name == name);
                match (ports.next(), ports.next()) {
                    (Some(port), None) => Ok(port),
                    _ => Err(pointer(at)),
                }
            }
        }
    }
}
