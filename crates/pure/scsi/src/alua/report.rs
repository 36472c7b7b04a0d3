//! REPORT TARGET PORT GROUPS (SPC-4).

use super::PortGroups;
use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::reply::Reply;
use crate::sense::Sense;
use block::Rope;
use std::collections::BTreeMap;

/// PARAMETER DATA FORMAT: length only, or extended header.
const LENGTH_ONLY: u8 = 0;
const EXTENDED: u8 = 1;

/// T_SUP, O_SUP, U_SUP, S_SUP, AN_SUP, AO_SUP; LBD_SUP is zero, because no state depends on blocks.
const SUPPORTED_STATES: u8 = 0x80 | 0x40 | 0x08 | 0x04 | 0x02 | 0x01;
const PREFERRED: u8 = 0x80;

impl PortGroups {
    /// Reports the states of `groups`, each with its relative port identifier.
    pub(crate) fn report(&self, cdb: Cdb, allocation: u64, groups: &BTreeMap<u16, u16>) -> Result<Rope, Failure> {
        let mut body = Reply::new();
        match cdb.u8_at(1) >> 5 {
            LENGTH_ONLY => {}
            // IMPLICIT TRANSITION TIME is zero: unspecified.
            EXTENDED => {
                body.u8(EXTENDED << 4).u8(0).u16(0);
            }
            // The field pointer names the highest bit of a field that has several (SPC-4).
            _ => return Err(Sense::cdb_bit(1, 7).into()),
        }
        for (&id, &relative_port) in groups {
            let group = self.of(id);
            let preferred = if group.preferred { PREFERRED } else { 0 };
            body.u8(preferred | group.state as u8).u8(SUPPORTED_STATES).u16(id);
            // TARGET PORT COUNT is one.
            body.u8(0).u8(group.changed_by as u8).u8(0).u8(1);
            body.u16(0).u16(relative_port);
        }
        let mut reply = Reply::new();
        reply.u32(u32::try_from(body.len()).expect("there are few groups")).bytes(body.as_bytes());
        Ok(reply.cut(allocation))
    }
}
