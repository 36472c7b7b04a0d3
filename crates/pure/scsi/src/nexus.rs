//! I_T nexuses of a logical unit: port names, pending unit attentions, write protection, and commands awaiting data.

mod attention;
mod name;
mod pending_data;

pub(crate) use attention::UnitAttention;
pub use name::InitiatorPort;
pub(crate) use name::{ItNexus, NAME_BYTES_MAX, TransportId, pointer};
pub use pending_data::{PendingDataCounter, PendingDataGuard};

use crate::command::NexusId;
use crate::conflict::ReservationRole;
use crate::identity::TargetPort;
use attention::Pending;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Nexuses attached to the unit.
#[derive(Debug, Default)]
pub(crate) struct Nexuses {
    known: RefCell<BTreeMap<NexusId, NexusState>>,
    /// Number of nexuses with a pending unit attention. Every command reads this cell and searches the map only when it
    /// is not zero.
    attention_count: Cell<usize>,
    /// Number of write-protected nexuses, for the same reason.
    readers: Cell<usize>,
}

#[derive(Debug)]
struct NexusState {
    port: Rc<TargetPort>,
    name: Rc<ItNexus>,
    role: ReservationRole,
    pending: Pending,
    read_only: bool,
    pending_data: Option<Arc<PendingDataCounter>>,
}

impl Nexuses {
    pub(crate) fn attach(&self, nexus: NexusId, name: Rc<ItNexus>, port: Rc<TargetPort>, standing: ReservationRole) {
        // A nexus identifier that is attached again starts without the unit attentions of its previous session.
        self.detach(nexus);
        let known = NexusState {
            port,
            name,
            role: standing,
            pending: Pending::default(),
            read_only: false,
            pending_data: None,
        };
        let before = self.known.borrow_mut().insert(nexus, known);
        assert!(before.is_none(), "a nexus is attached once");
        self.establish(nexus, UnitAttention::PowerOn);
    }

    pub(crate) fn detach(&self, nexus: NexusId) {
        // Clears the counter of write-protected nexuses as well.
        self.set_read_only(nexus, false);
        // The counter of nexuses with pending attentions must not outlive the nexus.
        if self.known.borrow_mut().remove(&nexus).is_some_and(|known| !known.pending.is_empty()) {
            self.attention_count.set(self.attention_count.get() - 1);
        }
    }

    pub(crate) fn set_read_only(&self, nexus: NexusId, read_only: bool) {
        let mut known = self.known.borrow_mut();
        let known_count = known.len();
        if let Some(known) = known.get_mut(&nexus) {
            let before = std::mem::replace(&mut known.read_only, read_only);
            // No underflow: a nexus that was write protected is in the count.
            self.readers.set(self.readers.get() + usize::from(read_only) - usize::from(before));
            assert!(self.readers.get() <= known_count, "only a nexus is read-only");
        }
    }

    /// Sets the counter of commands of `nexus` that await their data.
    pub(crate) fn set_pending_data(&self, nexus: NexusId, incoming: Arc<PendingDataCounter>) {
        if let Some(known) = self.known.borrow_mut().get_mut(&nexus) {
            known.pending_data = Some(incoming);
        }
    }

    /// Clears the commands awaiting data of all nexuses that `concerned` selects; they end with TASK ABORTED where
    /// `is_told` is set. Returns the nexuses that had such commands.
    pub(crate) fn clear_pending_data(&self, is_told: bool, concerned: impl Fn(NexusId) -> bool) -> BTreeSet<NexusId> {
        let known = self.known.borrow();
        let some = known.iter().filter_map(|(&nexus, known)| Some((nexus, known.pending_data.as_ref()?)));
        let cleared = some.filter(|&(nexus, incoming)| concerned(nexus) && incoming.is_any());
        cleared.inspect(|(_, incoming)| incoming.clear(is_told)).map(|(nexus, _)| nexus).collect()
    }

    /// True when `nexus` is write protected.
    pub(crate) fn is_read_only(&self, nexus: NexusId) -> bool {
        // Common case: no nexus is write protected.
        self.readers.get() > 0 && self.known.borrow().get(&nexus).is_some_and(|known| known.read_only)
    }

    /// Returns the target port of `nexus`.
    pub(crate) fn port(&self, nexus: NexusId) -> Option<Rc<TargetPort>> {
        self.known.borrow().get(&nexus).map(|known| known.port.clone())
    }

    /// Returns the nexuses that are logged in through ports of these groups.
    pub(crate) fn through(&self, groups: &[u16]) -> BTreeSet<NexusId> {
        let known = self.known.borrow();
        let comes = |(_, known): &(&NexusId, &NexusState)| groups.contains(&known.port.portal_group_tag);
        known.iter().filter(comes).map(|(&nexus, _)| nexus).collect()
    }

    /// Returns the names of the two ports of `nexus`, and its target port.
    pub(crate) fn names(&self, nexus: NexusId) -> Option<(Rc<ItNexus>, Rc<TargetPort>)> {
        self.known.borrow().get(&nexus).map(|known| (known.name.clone(), known.port.clone()))
    }

    /// Resolves names to attached nexuses and returns each with the value paired with its name.
    pub(crate) fn called<T: Copy>(&self, named: &[(Rc<ItNexus>, T)]) -> Vec<(NexusId, T)> {
        let count = named.len();
        let named: BTreeMap<&ItNexus, T> = named.iter().map(|(name, beside)| (&**name, *beside)).collect();
        // A nexus receives at most one unit attention from one change.
        assert_eq!(named.len(), count, "no nexus is told two things");
        let known = self.known.borrow();
        known.iter().filter_map(|(&nexus, known)| Some((nexus, *named.get(&*known.name)?))).collect()
    }

    /// Returns the initiator ports that are logged in.
    pub(crate) fn initiators(&self) -> BTreeSet<InitiatorPort> {
        self.known.borrow().values().map(|known| known.name.initiator.clone()).collect()
    }

    /// Returns the role of `nexus` with regard to the persistent reservation.
    pub(crate) fn role(&self, nexus: NexusId) -> ReservationRole {
        // An unknown nexus is treated as unregistered.
        self.known.borrow().get(&nexus).map_or(ReservationRole::Unregistered, |known| known.role)
    }

    /// Recomputes the reservation role of every nexus.
    pub(crate) fn set_roles(&self, standing: impl Fn(&ItNexus) -> ReservationRole) {
        self.known.borrow_mut().values_mut().for_each(|known| known.role = standing(&known.name));
    }

    pub(crate) fn none_pending(&self) -> bool {
        self.attention_count.get() == 0
    }

    /// Takes the pending unit attention of `nexus` with the highest precedence.
    pub(crate) fn take(&self, nexus: NexusId) -> Option<UnitAttention> {
        let mut taken = None;
        self.change(nexus, |pending| taken = pending.take());
        taken
    }

    pub(crate) fn establish(&self, nexus: NexusId, attention: UnitAttention) {
        self.change(nexus, |pending| pending.establish(attention));
    }

    pub(crate) fn clear(&self, nexus: NexusId, attention: UnitAttention) {
        self.change(nexus, |pending| pending.clear(attention));
    }

    pub(crate) fn establish_for_all(&self, attention: UnitAttention) {
        self.establish_for_others(None, attention);
    }

    /// Establishes `attention` for all nexuses except `one`.
    pub(crate) fn establish_for_others(&self, one: Option<NexusId>, attention: UnitAttention) {
        // Collected first, because `establish` borrows the map mutably.
        let nexuses: Vec<_> = self.known.borrow().keys().copied().filter(|&nexus| Some(nexus) != one).collect();
        nexuses.into_iter().for_each(|nexus| self.establish(nexus, attention));
    }

    fn change(&self, nexus: NexusId, change: impl FnOnce(&mut Pending)) {
        let mut known = self.known.borrow_mut();
        let Some(NexusState { pending, .. }) = known.get_mut(&nexus) else { return };
        // The counter follows transitions between none and some pending, not the number of attentions.
        let before = usize::from(!pending.is_empty());
        change(pending);
        let after = usize::from(!pending.is_empty());
        self.attention_count.set(self.attention_count.get() + after - before);
        assert!(self.attention_count.get() <= known.len(), "only a nexus has something to be told");
    }
}
