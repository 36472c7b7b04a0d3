//! On-disk format of the reservations of a unit. `docs/on-disk.md` has the byte map.

use super::state::{PersistentReservation, REGISTRATIONS_MAX, Registration, State};
use crate::conflict::ReservationType;
use crate::nexus::{InitiatorPort, ItNexus, NAME_BYTES_MAX};
use crate::persistence::{ParseError, Reader};
use std::collections::BTreeMap;
use std::rc::Rc;

const VERSION: u8 = 1;
/// Holder index of an all registrants reservation, or of none.
const NOBODY: u32 = u32::MAX;

impl State {
    /// Emits the persistent form; empty where nothing has to survive power loss.
    pub(crate) fn emit(&self) -> Vec<u8> {
        if !self.persists || self.registrations.is_empty() {
            // APTPL is zero, or the last registration is gone: earlier stored state is erased.
            return Vec::new();
        }
        // The holder is stored as an index, so its names need no second copy; `parse` counts in the same order.
        let place_of = |nexus: &Rc<ItNexus>| self.registrations.keys().position(|other| other == nexus);
        let holder = self.reservation.as_ref().and_then(|held| held.holder.as_ref()).and_then(place_of);
        let ports = self.ports();
        let mut out = vec![VERSION, self.reservation.as_ref().map_or(0, |held| held.kind.code())];
        out.extend(count16(ports.len()));
        out.extend(count32(self.registrations.len()));
        out.extend(holder.map_or(NOBODY.to_le_bytes(), count32));
        for (&(target_name, portal_group_tag), (_, relative_port)) in &ports {
            out.extend(portal_group_tag.to_le_bytes());
            out.extend(relative_port.to_le_bytes());
            put_name(&mut out, target_name);
        }
        for (nexus, registration) in &self.registrations {
            // In bounds: `ports` contains the port of every registration.
            let (port, _) = ports[&port_of(nexus)];
            out.extend(registration.key.to_le_bytes());
            out.extend(count16(port));
            out.extend(nexus.initiator.isid);
            put_name(&mut out, &nexus.initiator.name);
        }
        out
    }

    /// Parses what [`State::emit`] emitted. PRgeneration is zero, as after any power loss (SPC-4).
    ///
    /// *Errors*: for anything else; memory is bounded by [`REGISTRATIONS_MAX`] and the length of `kept`.
    pub(crate) fn parse(kept: &[u8]) -> Result<Self, ParseError> {
        let mut rest = Reader(kept);
        if rest.u8()? != VERSION {
            return Err(ParseError);
        }
        let (code, port_count, count, holder) = (rest.u8()?, rest.u16()?, rest.u32()? as usize, rest.u32()?);
        // Checked before anything is allocated; a port without a registration is never stored.
        if count == 0 || count > REGISTRATIONS_MAX || usize::from(port_count) > count {
            return Err(ParseError);
        }
        let mut ports = Vec::new();
        for _ in 0..port_count {
            ports.push((rest.u16()?, rest.u16()?, name(&mut rest)?));
        }
        let mut nexuses = Vec::new();
        let mut registrations = BTreeMap::new();
        for _ in 0..count {
            let (key, port) = (rest.u64()?, usize::from(rest.u16()?));
            let (portal_group_tag, relative_port, target_name) = ports.get(port).ok_or(ParseError)?.clone();
            let initiator = InitiatorPort { isid: *rest.array()?, name: name(&mut rest)? };
            let nexus = Rc::new(ItNexus { initiator, target_name, portal_group_tag });
            registrations.insert(nexus.clone(), Registration { key, relative_port });
            nexuses.push(nexus);
        }
        // A nexus that is stored twice has replaced itself in the map.
        let all_differ = registrations.len() == count && registrations.values().all(|one| one.key != 0);
        if !all_differ || !rest.0.is_empty() {
            return Err(ParseError);
        }
        Ok(Self { generation: 0, persists: true, registrations, reservation: held_of(code, holder, &nexuses)? })
    }

    /// Returns the distinct target ports of all registrations with their index in the stored list and their relative
    /// identifier.
    fn ports(&self) -> BTreeMap<(&str, u16), (usize, u16)> {
        let mut ports = BTreeMap::new();
        for (nexus, registration) in &self.registrations {
            // Numbered below, once all distinct ports are known.
            ports.insert(port_of(nexus), (0, registration.relative_port));
        }
        ports.values_mut().enumerate().for_each(|(number, (place, _))| *place = number);
        ports
    }
}

fn port_of(nexus: &ItNexus) -> (&str, u16) {
    (&nexus.target_name, nexus.portal_group_tag)
}

fn held_of(code: u8, holder: u32, nexuses: &[Rc<ItNexus>]) -> Result<Option<PersistentReservation>, ParseError> {
    let holder = match holder {
        NOBODY => None,
        place => Some(nexuses.get(place as usize).ok_or(ParseError)?.clone()),
    };
    if code == 0 {
        return if holder.is_none() { Ok(None) } else { Err(ParseError) };
    }
    let kind = ReservationType::of(code).ok_or(ParseError)?;
    // All registrants hold, or exactly one: a record that says otherwise is damaged.
    if kind.is_held_by_all() == holder.is_none() {
        Ok(Some(PersistentReservation { kind, holder }))
    } else {
        Err(ParseError)
    }
}

fn count16(count: usize) -> [u8; 2] {
    u16::try_from(count).expect("bounded by REGISTRATIONS_MAX").to_le_bytes()
}

fn count32(count: usize) -> [u8; 4] {
    u32::try_from(count).expect("bounded by REGISTRATIONS_MAX").to_le_bytes()
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(u8::try_from(name.len()).expect("an iSCSI name is short"));
    out.extend_from_slice(name.as_bytes());
}

/// Reads an iSCSI name behind its length byte.
fn name(rest: &mut Reader<'_>) -> Result<String, ParseError> {
    let len = usize::from(rest.u8()?);
    let name = std::str::from_utf8(rest.bytes(len)?).map_err(|_| ParseError)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX { Err(ParseError) } else { Ok(name.to_owned()) }
}
