//! Asymmetric logical unit access (SPC-4, target port group access states): through which target port groups a unit is
//! served, how well, and what is answered through the others.
//!
//! A target port group is a portal group: `PORTAL GROUP TAG` is `TARGET PORT GROUP` and the relative identifier of its one
//! port. The owner of the unit says what holds (implicit), and a nexus may change it until the owner says something
//! else (explicit); nothing of it is kept.

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

/// How a unit is served through a target port group (SPC-4, ASYMMETRIC ACCESS STATE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AccessState {
    /// As well as anywhere.
    #[default]
    ActiveOptimized = 0x0,
    /// Wholly, but better elsewhere.
    ActiveNonOptimized = 0x1,
    /// Not its blocks: it could be served here at once.
    Standby = 0x2,
    /// Not its blocks, and not its parameters either.
    Unavailable = 0x3,
    /// The port itself is out of service.
    Offline = 0xE,
    /// On the way from one state to another.
    Transitioning = 0xF,
}

use AccessState::{ActiveNonOptimized, ActiveOptimized, Offline, Standby, Transitioning, Unavailable};

/// A target port group, as the owner of a unit wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP: the portal group tag.
    pub id: u16,
    /// How the unit is served there.
    pub state: AccessState,
    /// PREF: hosts should choose it before others of the same state.
    pub preferred: bool,
}

impl AccessState {
    /// The state that a nexus may set with this code.
    fn of(code: u8) -> Option<Self> {
        [ActiveOptimized, ActiveNonOptimized, Standby, Unavailable, Offline].into_iter().find(|it| *it as u8 == code)
    }

    /// True when every command is served.
    fn is_active(self) -> bool {
        matches!(self, ActiveOptimized | ActiveNonOptimized)
    }

    /// True when INQUIRY says that the unit is not there now (PERIPHERAL QUALIFIER 001b).
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

    /// Why others are not.
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

/// Who changed the state of a group last (STATUS CODE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum ChangedBy {
    /// Nobody.
    #[default]
    None = 0,
    /// SET TARGET PORT GROUPS.
    Explicit = 1,
    /// The owner of the unit.
    Implicit = 2,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Group {
    state: AccessState,
    preferred: bool,
    changed_by: ChangedBy,
    /// What the owner said last.
    ordered: AccessState,
}

/// The target port groups of one unit that are not as they all are at first: active/optimized.
#[derive(Debug, Default)]
pub(crate) struct PortGroups {
    groups: RefCell<BTreeMap<u16, Group>>,
    /// False while every group is active: a command looks at this and no further.
    restricts: Cell<bool>,
}

/// Who uses the blocks that a change of access concerns.
pub(crate) struct Using<'a> {
    pub nexuses: &'a Nexuses,
    pub tasks: &'a TaskSet,
    /// All blocks of the unit.
    pub blocks: Extent,
}

impl PortGroups {
    fn of(&self, id: u16) -> Group {
        self.groups.borrow().get(&id).copied().unwrap_or_default()
    }

    /// How the unit is served through a group.
    pub(crate) fn through(&self, group: u16) -> AccessState {
        self.of(group).state
    }

    /// How `nexus` is served.
    pub(crate) fn state_of(&self, nexus: NexusId, nexuses: &Nexuses) -> AccessState {
        if !self.restricts.get() {
            return ActiveOptimized;
        }
        nexuses.port(nexus).map_or(ActiveOptimized, |port| self.through(port.portal_group_tag))
    }

    /// Refuses what is not served through the group of `nexus` now.
    #[inline]
    pub(crate) fn check(&self, nexus: NexusId, operation: &Operation, nexuses: &Nexuses) -> Result<(), Sense> {
        if self.restricts.get() { self.check_group(nexus, operation, nexuses) } else { Ok(()) }
    }

    fn check_group(&self, nexus: NexusId, operation: &Operation, nexuses: &Nexuses) -> Result<(), Sense> {
        let state = self.state_of(nexus, nexuses);
        if state.serves(operation) { Ok(()) } else { state.sense().map_or(Ok(()), Err) }
    }

    /// The groups are as the owner of the unit wants them: those that `wanted` does not name are active/optimized. True
    /// when hosts have anything to hear of. The caller has its turn ([`ACCESS_TURN`](crate::task_set::ACCESS_TURN)).
    pub(crate) async fn set_by_owner(&self, wanted: &[PortGroup], using: &Using<'_>) -> bool {
        let (changes, preference_changed) = self.order(wanted);
        self.change_access(&changes, ChangedBy::Implicit, using).await || preference_changed
    }

    /// The states of the groups are these; true when one was another before. Nothing that was begun through a group
    /// which has lost access touches a block any more when this returns.
    async fn change_access(&self, changes: &[(u16, AccessState)], by: ChangedBy, using: &Using<'_>) -> bool {
        let changes: Vec<_> = changes.iter().filter(|(id, state)| self.of(*id).state != *state).collect();
        let losing = |(id, state): &&&(u16, AccessState)| self.of(*id).state.is_active() && !state.is_active();
        let losing: Vec<u16> = changes.iter().filter(losing).map(|(id, _)| *id).collect();
        for &id in &losing {
            self.change(id, |group| group.state = Transitioning);
        }
        if !losing.is_empty() {
            let nexuses = using.nexuses.through(&losing);
            let loses = |claim: &Claim| claim.is_part || nexuses.contains(&claim.nexus);
            using.tasks.begun_ended(|claim| claim.extent.overlaps(using.blocks) && loses(claim)).await;
        }
        for &&(id, state) in &changes {
            self.change(id, |group| (group.state, group.changed_by) = (state, by));
        }
        !changes.is_empty()
    }

    fn change(&self, id: u16, change: impl FnOnce(&mut Group)) {
        let mut groups = self.groups.borrow_mut();
        change(groups.entry(id).or_default());
        groups.retain(|_, group| *group != Group::default());
        self.restricts.set(groups.values().any(|group| !group.state.is_active()));
    }

    /// Remembers what the owner wants; which states that changes, and whether hosts have anything to hear of.
    fn order(&self, wanted: &[PortGroup]) -> (Vec<(u16, AccessState)>, bool) {
        let known = self.groups.borrow().keys().copied().collect::<Vec<_>>();
        let ids: BTreeSet<u16> = wanted.iter().map(|group| group.id).chain(known).collect();
        let (mut changes, mut preference_changed) = (Vec::new(), false);
        for id in ids {
            let group = wanted.iter().find(|group| group.id == id).copied();
            let PortGroup { state, preferred, .. } = group.unwrap_or(PortGroup { id, ..PortGroup::default() });
            let before = self.of(id);
            preference_changed |= before.preferred != preferred;
            if before.ordered != state {
                changes.push((id, state));
            }
            self.change(id, |group| (group.preferred, group.ordered) = (preferred, state));
        }
        (changes, preference_changed)
    }
}

impl Default for PortGroup {
    /// The group that nothing was said of.
    fn default() -> Self {
        Self { id: 1, state: ActiveOptimized, preferred: false }
    }
}

#[cfg(test)]
mod tests;
