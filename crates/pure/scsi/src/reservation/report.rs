//! PERSISTENT RESERVE IN (SPC-4): keys, reservation, capabilities and full status.

use super::Reservations;
use super::state::{Registration, State};
use crate::cdb::Cdb;
use crate::conflict::{ReservationRole, ReservationType};
use crate::nexus::ItNexus;
use crate::reply::Reply;
use block::Rope;

/// Length of the header in bytes: PRGENERATION and ADDITIONAL LENGTH.
const HEADER_BYTES: usize = 8;
const FULL_STATUS_BYTES: usize = 24;

/// CRH, SIP_C and ATP_C; PTPL_C is added where state can be persisted.
const CAPABILITIES: u8 = 0x10 | 0x08 | 0x04;
const PERSISTS_CAPABLE: u8 = 0x01;
/// TMV: the mask of types is valid. ALLOW COMMANDS 011b: TEST UNIT READY under every type; MODE SENSE, REPORT SUPPORTED
/// OPERATION CODES and similar commands under write exclusive types.
const TYPES_VALID: u8 = 0x80 | 0x30;
const PERSISTS_ACTIVATED: u8 = 0x01;

impl Reservations {
    /// Answers PERSISTENT RESERVE IN; `can_persist` is PTPL_C.
    pub(crate) fn report(&self, cdb: Cdb, allocation: u64, can_persist: bool) -> Rope {
        let state = self.state();
        let reply = match cdb.u8_at(1) & 0x1F {
            0x00 => read_keys(&state),
            0x01 => read_reservation(&state),
            0x02 => report_capabilities(can_persist, state.persists),
            _ => read_full_status(&state, allocation),
        };
        reply.cut(allocation)
    }
}

fn header(state: &State, list_bytes: usize) -> Reply {
    let mut reply = Reply::new();
    reply.u32(state.generation).u32(u32::try_from(list_bytes).expect("registrations are bounded"));
    reply
}

fn read_keys(state: &State) -> Reply {
    let mut reply = header(state, state.registrations.len() * 8);
    for registration in state.registrations.values() {
        reply.u64(registration.key);
    }
    reply
}

fn read_reservation(state: &State) -> Reply {
    let Some(held) = &state.reservation else { return header(state, 0) };
    let mut reply = header(state, 16);
    // An all registrants reservation has no single holder, and its key is reported as zero (SPC-4).
    let key = held.holder.as_ref().and_then(|holder| state.key_of(holder));
    reply.u64(key.unwrap_or(0)).u32(0).u8(0).u8(held.kind.code()).u16(0);
    reply
}

fn report_capabilities(can_persist: bool, persists: bool) -> Reply {
    // Type codes are at most eight; the mask has its low byte first.
    let mask = ReservationType::ALL.into_iter().fold(0_u16, |mask, kind| mask | 1 << kind.code());
    let [extended, mask] = mask.to_be_bytes();
    let mut reply = Reply::new();
    reply.u16(8);
    reply.u8(CAPABILITIES | if can_persist { PERSISTS_CAPABLE } else { 0 });
    reply.u8(TYPES_VALID | if persists { PERSISTS_ACTIVATED } else { 0 });
    reply.u8(mask).u8(extended).u16(0);
    reply
}

/// READ FULL STATUS: emits descriptors as far as `allocation` reaches; ADDITIONAL LENGTH covers all of them.
fn read_full_status(state: &State, allocation: u64) -> Reply {
    let bytes = |nexus: &ItNexus| FULL_STATUS_BYTES + nexus.initiator.transport_id_bytes();
    let mut reply = header(state, state.registrations.keys().map(|nexus| bytes(nexus)).sum());
    debug_assert_eq!(reply.len(), HEADER_BYTES);
    for (nexus, registration) in &state.registrations {
        // Descriptors beyond the allocation length would be truncated.
        if reply.len() as u64 >= allocation {
            break;
        }
        emit_full_status(&mut reply, state, nexus, *registration);
    }
    reply
}

/// Emits the descriptor of one I_T nexus. ALL_TG_PT is zero, so the RELATIVE TARGET PORT IDENTIFIER is valid.
fn emit_full_status(reply: &mut Reply, state: &State, nexus: &ItNexus, registration: Registration) {
    let is_holder = state.role(nexus) == ReservationRole::Holder;
    // SCOPE and TYPE are valid for a holder only (SPC-4 READ FULL STATUS).
    let held = state.reservation.as_ref().filter(|_| is_holder);
    let id = nexus.initiator.transport_id();
    reply.u64(registration.key).u32(0);
    reply.u8(u8::from(is_holder)).u8(held.map_or(0, |held| held.kind.code())).u32(0);
    reply.u16(registration.relative_port);
    reply.u32(u32::try_from(id.len()).expect("a TransportID is short")).bytes(&id);
}
