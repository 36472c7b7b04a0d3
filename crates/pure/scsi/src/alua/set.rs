//! SET TARGET PORT GROUPS (SPC-4): a nexus changes how the unit is served.
#![warn(clippy::arithmetic_side_effects)]

use super::{AccessState, ChangedBy};
use crate::attention::UnitAttention;
use crate::cdb::Cdb;
use crate::command::Status;
use crate::failure::Failure;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::unit::LogicalUnit;
use block::{BlockDevice, Rope};
use std::collections::{BTreeMap, BTreeSet};

const HEADER_BYTES: usize = 4;
const DESCRIPTOR_BYTES: usize = 4;
/// The longest parameter list: as many groups as a unit can be shown through, and more.
const LIST_BYTES_MAX: u32 = 4096;

/// Refuses a parameter list length that no list can have, before any of the list comes.
///
/// *Errors*: 1A/00.
pub(crate) fn check_list_length(cdb: Cdb) -> Result<(), Sense> {
    let bytes = cdb.u32_at(6);
    if bytes.is_multiple_of(DESCRIPTOR_BYTES as u32) && bytes <= LIST_BYTES_MAX {
        Ok(())
    } else {
        Err(Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR))
    }
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// All states of the list hold, or none does. What was begun through a group that has lost access has ended.
    pub(crate) async fn set_target_port_groups(&self, job: &Job) -> Result<Rope, Failure> {
        if self.is_read_only(job.nexus) {
            // Who may not write does not decide through which port others may.
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        let list = job.whole_data()?;
        let port = self.nexuses.port(job.nexus).ok_or(Status::Busy)?;
        let changes = changes_of(&list, &self.ports_beside(&port))?;
        if self.change_access(&changes, ChangedBy::Explicit).await {
            self.nexuses.establish_for_others(Some(job.nexus), UnitAttention::AccessStateChanged);
        }
        Ok(Rope::new())
    }
}

/// Reads the list against the groups that there are, and their ports.
fn changes_of(list: &[u8], groups: &BTreeMap<u16, u16>) -> Result<Vec<(u16, AccessState)>, Sense> {
    let (descriptors, _) = list.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<DESCRIPTOR_BYTES>();
    let (mut changes, mut seen) = (Vec::with_capacity(descriptors.len()), BTreeSet::new());
    for (nth, &[state, _, high, low]) in descriptors.iter().enumerate() {
        let at = HEADER_BYTES.saturating_add(nth.saturating_mul(DESCRIPTOR_BYTES));
        let at = u16::try_from(at).unwrap_or(u16::MAX);
        let state = AccessState::of(state & 0x0F).ok_or(Sense::parameter(at, Some(3)))?;
        let named = u16::from_be_bytes([high, low]);
        // Offline is a state of a port, which is named by its relative identifier; the others are of a group.
        let is_it =
            |&(&id, &relative): &(&u16, &u16)| named == if state == AccessState::Offline { relative } else { id };
        let found = groups.iter().find(is_it).map(|(&id, _)| id).filter(|&id| seen.insert(id));
        changes.push((found.ok_or(Sense::parameter(at.saturating_add(2), None))?, state));
    }
    Ok(changes)
}
