//! PERSISTENT RESERVE OUT (SPC-4): parameter list and conversion to a change of the registrations.
#![warn(clippy::arithmetic_side_effects)]

use super::Reservations;
use super::state::{Change, Move, Register, RegistrantPort};
use crate::cdb::Cdb;
use crate::conflict::ReservationType;
use crate::failure::Failure;
use crate::identity::TargetPort;
use crate::nexus::{InitiatorPort, ItNexus, Nexuses, TransportId, pointer};
use crate::persistence::Persistence;
use crate::sense::{AdditionalSense, Sense};
use std::rc::Rc;

/// Length of the parameter list without TransportIDs, and the maximum with them, in bytes.
const LIST_BYTES: u64 = 24;
const LIST_BYTES_MAX: u64 = 1 << 16;

/// Bits of byte 20 in the basic list; APTPL and UNREG are in byte 17 of the REGISTER AND MOVE list.
const SPEC_I_PT: u8 = 0x08;
const ALL_TG_PT: u8 = 0x04;
const APTPL: u8 = 0x01;
const UNREG: u8 = 0x02;

const REGISTER_BITS_AT: usize = 20;
const MOVE_BITS_AT: usize = 17;
const MOVE_PORT_AT: usize = 18;
/// Offset of TRANSPORTID PARAMETER DATA LENGTH: behind the basic list of REGISTER, and within the list of REGISTER AND
/// MOVE.
const REGISTER_IDS_AT: usize = 24;
const MOVE_ID_AT: usize = 20;
/// Size of that length field.
const LENGTH_BYTES: usize = 4;

const TOO_SHORT: Sense = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

/// Service actions of PERSISTENT RESERVE OUT.
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

/// Refuses an impossible PARAMETER LIST LENGTH from the CDB, before any data is solicited.
///
/// *Errors*: 1A/00.
pub(crate) fn check_list_length(cdb: Cdb) -> Result<(), Sense> {
    // Only REGISTER and REGISTER AND MOVE have TransportIDs behind the basic list.
    let possible = match Action::of(cdb) {
        Action::Register { ignores_key: false } | Action::RegisterAndMove => LIST_BYTES..=LIST_BYTES_MAX,
        _ => LIST_BYTES..=LIST_BYTES,
    };
    if possible.contains(&u64::from(cdb.u32_at(5))) { Ok(()) } else { Err(TOO_SHORT) }
}

/// Unvalidated parameter list.
struct List<'a>(&'a [u8]);

impl List<'_> {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], Sense> {
        self.0.get(at..).and_then(|rest| rest.first_chunk().copied()).ok_or(TOO_SHORT)
    }

    fn u8(&self, at: usize) -> Result<u8, Sense> {
        self.array(at).map(|[byte]| byte)
    }

    /// Returns RESERVATION KEY and SERVICE ACTION RESERVATION KEY.
    fn keys(&self) -> Result<(u64, u64), Sense> {
        Ok((self.array(0).map(u64::from_be_bytes)?, self.array(8).map(u64::from_be_bytes)?))
    }

    /// Parses the TransportIDs behind the length field at `at`, up to the end of the list, each with its offset.
    fn transport_ids(&self, at: usize) -> Result<Vec<(TransportId, usize)>, Sense> {
        let bytes = usize::try_from(self.array(at).map(u32::from_be_bytes)?).map_err(|_| TOO_SHORT)?;
        let mut next = at.saturating_add(LENGTH_BYTES);
        // The length field must cover exactly the rest of the list.
        if bytes != self.0.len().saturating_sub(next) {
            return Err(TOO_SHORT);
        }
        let mut ids = Vec::new();
        // The loop ends: a TransportID has at least 24 bytes.
        while next < self.0.len() {
            let (id, len) = TransportId::parse(self.0, next)?;
            ids.push((id, next));
            next = next.saturating_add(len);
        }
        Ok(ids)
    }
}

/// True for PREEMPT AND ABORT.
pub(crate) fn ends_tasks(cdb: Cdb) -> bool {
    Action::of(cdb) == (Action::Preempt { aborts: true })
}

/// Context of a change: the asking nexus and its port.
pub(crate) struct ActionContext<'a> {
    /// Asking nexus with the relative identifier of its target port.
    pub place: RegistrantPort,
    pub port: &'a TargetPort,
    pub nexuses: &'a Nexuses,
    pub persistence: &'a Persistence,
}

impl Reservations {
    /// Computes the change that PERSISTENT RESERVE OUT makes to the registrations, without installing it.
    ///
    /// *Errors*: the status or sense of a refused action.
    pub(crate) fn change_of(&self, cdb: Cdb, list: &[u8], asking: &ActionContext<'_>) -> Result<Change, Failure> {
        let (list, action) = (&List(list), Action::of(cdb));
        let (key, action_key) = list.keys()?;
        // Parsed here, but evaluated only by the actions that use the type.
        let kind = ReservationType::of_cdb(cdb.u8_at(2));
        // SPEC_I_PT is defined for REGISTER only.
        // In the list of REGISTER AND MOVE this byte is part of another field.
        if !matches!(action, Action::Register { ignores_key: false } | Action::RegisterAndMove)
            && list.u8(REGISTER_BITS_AT)? & SPEC_I_PT != 0
        {
            return Err(Sense::parameter(REGISTER_BITS_AT as u16, Some(3)).into());
        }
        let asker = &asking.place.0;
        match action {
            Action::Register { ignores_key } => {
                let order = self.register_order(ignores_key, list, asking)?;
                self.state().register(&asking.place, &order)
            }
            Action::Reserve => self.state().reserve(asker, key, kind?),
            Action::Release => self.state().release(asker, key, kind?),
            Action::Clear => self.state().clear(asker, key),
            // The type is evaluated only if the reservation is taken over.
            Action::Preempt { .. } => self.state().preempt(asker, key, action_key, kind),
            Action::RegisterAndMove => {
                let order = self.move_order(list, asking)?;
                self.state().move_to(asker, &order)
            }
        }
    }

    fn register_order(
        &self,
        ignores_key: bool,
        list: &List<'_>,
        asking: &ActionContext<'_>,
    ) -> Result<Register, Failure> {
        let port = asking.port;
        let (key, new_key) = list.keys()?;
        let bits = list.u8(REGISTER_BITS_AT)?;
        let persists = admit_persistence(asking.persistence, bits, REGISTER_BITS_AT)?;
        // ALL_TG_PT registers the initiator port at every target port of the unit.
        let other_ports = if bits & ALL_TG_PT == 0 { Vec::new() } else { asking.persistence.other_ports(port) };
        let at = |initiator: &InitiatorPort, port: &TargetPort| {
            (Rc::new(ItNexus::new(initiator.clone(), port)), port.relative_port)
        };
        let others = if bits & SPEC_I_PT == 0 {
            // Without SPEC_I_PT nothing may follow the basic list.
            if list.0.len() as u64 != LIST_BYTES {
                return Err(TOO_SHORT.into());
            }
            None
        } else {
            let mut others = Vec::new();
            for (id, id_at) in list.transport_ids(REGISTER_IDS_AT)? {
                let initiator = self.initiator_of(id, id_at, asking.nexuses)?;
                // Each named initiator port is registered at all affected target ports.
                others.extend(std::iter::once(port).chain(&other_ports).map(|port| at(&initiator, port)));
            }
            Some(others)
        };
        let at_other_ports = other_ports.iter().map(|port| at(&asking.place.0.initiator, port)).collect();
        Ok(Register { ignores_key, key, new_key, persists, at_other_ports, others })
    }

    fn move_order(&self, list: &List<'_>, asking: &ActionContext<'_>) -> Result<Move, Failure> {
        let port = asking.port;
        let (key, new_key) = list.keys()?;
        let bits = list.u8(MOVE_BITS_AT)?;
        let persists = admit_persistence(asking.persistence, bits, MOVE_BITS_AT)?;
        let relative_port = list.array(MOVE_PORT_AT).map(u16::from_be_bytes)?;
        let mut ids = list.transport_ids(MOVE_ID_AT)?.into_iter();
        // Exactly one TransportID names the new holder.
        let (Some((id, id_at)), None) = (ids.next(), ids.next()) else {
            return Err(pointer(MOVE_ID_AT).into());
        };
        let initiator = self.initiator_of(id, id_at, asking.nexuses)?;
        // The relative identifier is looked up among the ports of the same target first, then among other targets of
        // the unit.
        let mut others = asking.persistence.other_ports(port);
        others.sort_by_key(|other| other.target_name != port.target_name);
        let mut ports = std::iter::once(port).chain(&others);
        let to = ports.find(|port| port.relative_port == relative_port).ok_or(pointer(MOVE_PORT_AT))?;
        let to = (Rc::new(ItNexus::new(initiator, to)), relative_port);
        Ok(Move { key, new_key, persists, unregisters: bits & UNREG != 0, to })
    }

    /// Resolves a TransportID to an initiator port. A TransportID without an ISID must match exactly one port that is
    /// logged in or registered.
    fn initiator_of(&self, id: TransportId, at: usize, nexuses: &Nexuses) -> Result<InitiatorPort, Sense> {
        match id {
            TransportId::Port(port) => Ok(port),
            TransportId::Device(name) => {
                // An initiator that has logged out may still be registered, so both sources are searched.
                let mut known = nexuses.initiators();
                known.extend(self.state().registrations.keys().map(|nexus| nexus.initiator.clone()));
                let mut ports = known.into_iter().filter(|port| port.name == name);
                match (ports.next(), ports.next()) {
                    (Some(port), None) => Ok(port),
                    _ => Err(pointer(at)),
                }
            }
        }
    }
}

/// Returns APTPL, which is refused where nothing can be persisted.
fn admit_persistence(persistence: &Persistence, bits: u8, at: usize) -> Result<bool, Sense> {
    let asked = bits & APTPL != 0;
    if asked && !persistence.is_able() {
        return Err(Sense::parameter(u16::try_from(at).unwrap_or(u16::MAX), Some(0)));
    }
    Ok(asked)
}
