//! Asymmetric logical unit access (SPC-4, target port group access states): access state of each target port group of a
//! unit, and the commands served in each state.
//!
//! A target port group is a portal group: the portal group tag is the TARGET PORT GROUP and the relative identifier of
//! its only port. The owner of the unit sets states (implicit ALUA). A nexus may change a state until the owner sets
//! another one (explicit ALUA); explicit changes are not persistent.

mod report;
mod set;

use crate::command::NexusId;
use crate::nexus::Nexuses;
use crate::operation::Operation;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::{Claim, TaskSet};
use block::Extent;
pub(crate) use set::check_list_length;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// Access state of a target port group (SPC-4, ASYMMETRIC ACCESS STATE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AccessState {
    /// Active/optimized: full access on the best path.
    #[default]
    ActiveOptimized = 0x0,
    /// Active/non-optimized: full access, but another path is better.
    ActiveNonOptimized = 0x1,
    /// Standby: parameters and reservations only; access could start at once.
    Standby = 0x2,
    /// Unavailable: neither data nor parameters.
    Unavailable = 0x3,
    /// Offline: the port itself is out of service.
    Offline = 0xE,
    /// Transitioning from one state to another.
    Transitioning = 0xF,
}

use AccessState::{ActiveNonOptimized, ActiveOptimized, Offline, Standby, Transitioning, Unavailable};

/// Target port group with the state that the owner of a unit wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP, equal to the portal group tag.
    pub id: u16,
    /// Access state of the group.
    pub state: AccessState,
    /// PREF: hosts should prefer the group to others in the same state.
    pub preferred: bool,
}

impl AccessState {
    /// Returns the state for a code of SET TARGET PORT GROUPS, or `None` for a code that a nexus may not set.
    fn of(code: u8) -> Option<Self> {
        // Transitioning is a result of a change and cannot be requested.
        [ActiveOptimized, ActiveNonOptimized, Standby, Unavailable, Offline].into_iter().find(|it| *it as u8 == code)
    }

    /// True when every command is served.
    fn is_active(self) -> bool {
        matches!(self, ActiveOptimized | ActiveNonOptimized)
    }

    /// True when INQUIRY reports that the unit is not connected (PERIPHERAL QUALIFIER 001b).
    pub(crate) fn is_disconnected(self) -> bool {
        matches!(self, Unavailable | Offline)
    }

    /// True when the operation is served in this state.
    pub(crate) fn serves(self, operation: &Operation) -> bool {
        match self {
            ActiveOptimized | ActiveNonOptimized => true,
            Standby => operation.is_served_in_standby(),
            Unavailable | Offline | Transitioning => operation.is_served_without_access(),
        }
    }

    /// Returns the NOT READY sense of commands that are not served, or `None` for an active state.
    pub(crate) fn sense(self) -> Option<Sense> {
        let code = match self {
            ActiveOptimized | ActiveNonOptimized => return None,
            Standby => AdditionalSense::TARGET_PORT_IN_STANDBY_STATE,
            Unavailable => AdditionalSense::TARGET_PORT_IN_UNAVAILABLE_STATE,
            Offline => AdditionalSense::LOGICAL_UNIT_OFFLINE,
            Transitioning => AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION,
        };
        Some(Sense::new(SenseKey::NotReady, code))
    }
}

/// Origin of the last change of a group (STATUS CODE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum ChangedBy {
    /// No change since the start.
    #[default]
    None = 0,
    /// Explicit: SET TARGET PORT GROUPS.
    Explicit = 1,
    /// Implicit: the owner of the unit.
    Implicit = 2,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Group {
    state: AccessState,
    preferred: bool,
    changed_by: ChangedBy,
    /// State that the owner ordered last.
    ordered: AccessState,
}

/// Target port groups of one unit that differ from the initial state, active/optimized.
#[derive(Debug, Default)]
pub(crate) struct PortGroups {
    groups: RefCell<BTreeMap<u16, Group>>,
    /// False while every group is active: every command reads this cell and nothing more then.
    restricts: Cell<bool>,
}

/// Context of an access change: nexuses and tasks that use the blocks.
pub(crate) struct AccessChangeContext<'a> {
    pub nexuses: &'a Nexuses,
    pub tasks: &'a TaskSet,
    /// All blocks of the unit.
    pub blocks: Extent,
}

impl PortGroups {
    fn of(&self, id: u16) -> Group {
        self.groups.borrow().get(&id).copied().unwrap_or_default()
    }

    /// Returns the access state of a group.
    pub(crate) fn through(&self, group: u16) -> AccessState {
        self.of(group).state
    }

    /// Returns the access state for `nexus`.
    pub(crate) fn state_of(&self, nexus: NexusId, nexuses: &Nexuses) -> AccessState {
        // Common case: all groups are active.
        if !self.restricts.get() {
            return ActiveOptimized;
        }
        // An unknown nexus has no group and is not restricted.
        nexuses.port(nexus).map_or(ActiveOptimized, |port| self.through(port.portal_group_tag))
    }

    /// Refuses an operation that the group of `nexus` does not serve now.
    #[inline]
    pub(crate) fn check(&self, nexus: NexusId, operation: &Operation, nexuses: &Nexuses) -> Result<(), Sense> {
        if self.restricts.get() { self.check_group(nexus, operation, nexuses) } else { Ok(()) }
    }

    fn check_group(&self, nexus: NexusId, operation: &Operation, nexuses: &Nexuses) -> Result<(), Sense> {
        let state = self.state_of(nexus, nexuses);
        // A state that does not serve every operation has a sense, so `Ok` is never reached.
        if state.serves(operation) { Ok(()) } else { state.sense().map_or(Ok(()), Err) }
    }

    /// Applies the states that the owner wants; groups that `wanted` does not list become active/optimized. Returns
    /// true when hosts have to be notified. The caller must hold the serialization slot
    /// [`ACCESS_STATE_SLOT`](crate::task_set::ACCESS_STATE_SLOT).
    pub(crate) async fn set_by_owner(&self, wanted: &[PortGroup], using: &AccessChangeContext<'_>) -> bool {
        let (changes, preference_changed) = self.order(wanted);
        // PREF is part of the report on the states, so hosts are notified of its change as well.
        self.change_access(&changes, ChangedBy::Implicit, using).await || preference_changed
    }

    /// Changes the states of the groups. Returns true when at least one differed. When it returns, no task that began
    /// through a group that lost access touches a block any more.
    async fn change_access(
        &self,
        changes: &[(u16, AccessState)],
        by: ChangedBy,
        using: &AccessChangeContext<'_>,
    ) -> bool {
        // A change to the present state has no effect and no unit attention.
        let changes: Vec<_> = changes.iter().filter(|(id, state)| self.of(*id).state != *state).collect();
        // Only a group that loses access has tasks to wait for; all others change at once.
        let losing = |(id, state): &&&(u16, AccessState)| self.of(*id).state.is_active() && !state.is_active();
        let losing: Vec<u16> = changes.iter().filter(losing).map(|(id, _)| *id).collect();
        // Transitioning refuses new commands of these groups while the running ones are awaited.
        for &id in &losing {
            self.change(id, |group| group.state = Transitioning);
        }
        if !losing.is_empty() {
            let nexuses = using.nexuses.through(&losing);
            // A part of a copy may have been ordered through any path, so it is always awaited.
            let loses = |claim: &Claim| claim.is_part || nexuses.contains(&claim.nexus);
            using.tasks.begun_ended(|claim| claim.extent.overlaps(using.blocks) && loses(claim)).await;
        }
        // After the wait: none of the affected tasks is running any longer.
        for &&(id, state) in &changes {
            self.change(id, |group| (group.state, group.changed_by) = (state, by));
        }
        !changes.is_empty()
    }

    fn change(&self, id: u16, change: impl FnOnce(&mut Group)) {
        let mut groups = self.groups.borrow_mut();
        change(groups.entry(id).or_default());
        // A group in the initial state needs no entry.
        groups.retain(|_, group| *group != Group::default());
        self.restricts.set(groups.values().any(|group| !group.state.is_active()));
    }

    /// Records the states that the owner wants. Returns the resulting changes, and whether a PREF bit changed.
    fn order(&self, wanted: &[PortGroup]) -> (Vec<(u16, AccessState)>, bool) {
        // Copied, because the loop below changes the map.
        let known = self.groups.borrow().keys().copied().collect::<Vec<_>>();
        // Groups that the owner no longer lists return to the initial state.
        let ids: BTreeSet<u16> = wanted.iter().map(|group| group.id).chain(known).collect();
        let (mut changes, mut preference_changed) = (Vec::new(), false);
        for id in ids {
            let group = wanted.iter().find(|group| group.id == id).copied();
            let PortGroup { state, preferred, .. } = group.unwrap_or(PortGroup { id, ..PortGroup::default() });
            let before = self.of(id);
            preference_changed |= before.preferred != preferred;
            // Compared with the last order and not with the state: an explicit state of a nexus stays until the owner's
            // order changes.
            if before.ordered != state {
                changes.push((id, state));
            }
            self.change(id, |group| (group.preferred, group.ordered) = (preferred, state));
        }
        (changes, preference_changed)
    }
}

impl Default for PortGroup {
    /// Group without any setting: active/optimized.
    fn default() -> Self {
        Self { id: 1, state: ActiveOptimized, preferred: false }
    }
}

#[cfg(test)]
mod tests;
