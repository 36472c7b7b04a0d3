//! SET TARGET PORT GROUPS (SPC-4): explicit change of access states by a nexus.
#![warn(clippy::arithmetic_side_effects)]

use super::{AccessChangeContext, AccessState, ChangedBy, PortGroups};
use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::sense::{AdditionalSense, Sense};
use std::collections::{BTreeMap, BTreeSet};

const HEADER_BYTES: usize = 4;
const DESCRIPTOR_BYTES: usize = 4;
/// Maximum parameter list length in bytes: more descriptors than a unit has groups.
const LIST_BYTES_MAX: u32 = 4096;

/// Refuses an impossible parameter list length from the CDB, before any data is solicited.
///
/// *Errors*: 1A/00.
pub(crate) fn check_list_length(cdb: Cdb) -> Result<(), Sense> {
    let bytes = cdb.u32_at(6);
    // Header and descriptors have four bytes each; without a descriptor nothing changes.
    if bytes.is_multiple_of(DESCRIPTOR_BYTES as u32) && bytes <= LIST_BYTES_MAX {
        Ok(())
    } else {
        Err(Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR))
    }
}

impl PortGroups {
    /// Applies all states of the parameter list, or none. `groups` are the groups that the asking nexus knows, with
    /// their ports. When it returns, tasks that began through a group that lost access have ended. Returns true when a
    /// state changed.
    pub(crate) async fn set_by_nexus(
        &self,
        list: &[u8],
        groups: &BTreeMap<u16, u16>,
        using: &AccessChangeContext<'_>,
    ) -> Result<bool, Failure> {
        let changes = changes_of(list, groups)?;
        Ok(self.change_access(&changes, ChangedBy::Explicit, using).await)
    }
}

/// Parses the list and resolves its groups and ports.
///
/// *Errors*: 26/00 with a field pointer for an unknown state or group, or a group named twice.
fn changes_of(list: &[u8], groups: &BTreeMap<u16, u16>) -> Result<Vec<(u16, AccessState)>, Sense> {
    let (descriptors, _) = list.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<DESCRIPTOR_BYTES>();
    let (mut changes, mut seen) = (Vec::with_capacity(descriptors.len()), BTreeSet::new());
    for (nth, &[state, _, high, low]) in descriptors.iter().enumerate() {
        // The position goes only into a field pointer, so saturation does no harm.
        let at = HEADER_BYTES.saturating_add(nth.saturating_mul(DESCRIPTOR_BYTES));
        let at = u16::try_from(at).unwrap_or(u16::MAX);
        let state = AccessState::of(state & 0x0F).ok_or(Sense::parameter(at, Some(3)))?;
        let named = u16::from_be_bytes([high, low]);
        // Offline is a state of a target port, named by its relative identifier; all others are states of a group
        // (SPC-4).
        let is_it =
            |&(&id, &relative): &(&u16, &u16)| named == if state == AccessState::Offline { relative } else { id };
        // A group that is named twice is refused, because its two states could contradict each other.
        let found = groups.iter().find(is_it).map(|(&id, _)| id).filter(|&id| seen.insert(id));
        changes.push((found.ok_or(Sense::parameter(at.saturating_add(2), None))?, state));
    }
    Ok(changes)
}
