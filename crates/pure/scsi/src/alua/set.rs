//! SET TARGET PORT GROUPS (SPC-4): a nexus changes how the unit is served.
#![warn(clippy::arithmetic_side_effects)]

use super::{AccessState, ChangedBy, PortGroups, Using};
use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::sense::{AdditionalSense, Sense};
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

impl PortGroups {
    /// All states of the list of SET TARGET PORT GROUPS hold, or none does; `groups` are those that the asking nexus knows, and
    /// their ports. What was begun through a group that has lost access has ended. True when a state was another before.
    pub(crate) async fn set_by_nexus(
        &self,
        list: &[u8],
        groups: &BTreeMap<u16, u16>,
        using: &Using<'_>,
    ) -> Result<bool, Failure> {
        let changes = changes_of(list, groups)?;
        Ok(self.change_access(&changes, ChangedBy::Explicit, using).await)
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
