//! The I_T nexuses of a logical unit: their names and ports, the unit attentions that each has pending, whether it may write, and
//! its commands that wait for data.

mod attention;
mod incoming;
mod name;

pub(crate) use attention::UnitAttention;
pub use incoming::{Incoming, Waiting};
pub use name::InitiatorPort;
pub(crate) use name::{ItNexus, NAME_BYTES_MAX, TransportId, pointer};

use crate::command::NexusId;
use crate::conflict::Standing;
use crate::identity::TargetPort;
use attention::Pending;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Who reaches the unit.
#[derive(Debug, Default)]
pub(crate) struct Nexuses {
    known: RefCell<BTreeMap<NexusId, Known>>,
    /// How many of them have something to be told: a command looks at this and, when it is zero, no further.
    untold: Cell<usize>,
    /// How many of them may not write: as cheap to look at.
    readers: Cell<usize>,
}

#[derive(Debug)]
struct Known {
    port: Rc<TargetPort>,
    name: Rc<ItNexus>,
    standing: Standing,
    pending: Pending,
    read_only: bool,
    incoming: Option<Arc<Incoming>>,
}

impl Nexuses {
    pub(crate) fn attach(&self, nexus: NexusId, name: Rc<ItNexus>, port: Rc<TargetPort>, standing: Standing) {
        self.detach(nexus);
        let known = Known { port, name, standing, pending: Pending::default(), read_only: false, incoming: None };
        let before = self.known.borrow_mut().insert(nexus, known);
        assert!(before.is_none(), "a nexus is attached once");
        self.establish(nexus, UnitAttention::PowerOn);
    }

    pub(crate) fn detach(&self, nexus: NexusId) {
        self.set_read_only(nexus, false);
        if self.known.borrow_mut().remove(&nexus).is_some_and(|known| !known.pending.is_empty()) {
            self.untold.set(self.untold.get() - 1);
        }
    }

    pub(crate) fn set_read_only(&self, nexus: NexusId, read_only: bool) {
        let mut known = self.known.borrow_mut();
        let known_count = known.len();
        if let Some(known) = known.get_mut(&nexus) {
            let before = std::mem::replace(&mut known.read_only, read_only);
            self.readers.set(self.readers.get() + usize::from(read_only) - usize::from(before));
            assert!(self.readers.get() <= known_count, "only a nexus is read-only");
        }
    }

    /// Commands of `nexus` that wait for their data are counted there.
    pub(crate) fn set_incoming(&self, nexus: NexusId, incoming: Arc<Incoming>) {
        if let Some(known) = self.known.borrow_mut().get_mut(&nexus) {
            known.incoming = Some(incoming);
        }
    }

    /// Commands of those that `concerned` picks which wait for their data are cleared, and are answered with TASK ABORTED
    /// where `is_told` says so; those who had some.
    pub(crate) fn clear_incoming(&self, is_told: bool, concerned: impl Fn(NexusId) -> bool) -> BTreeSet<NexusId> {
        let known = self.known.borrow();
        let some = known.iter().filter_map(|(&nexus, known)| Some((nexus, known.incoming.as_ref()?)));
        let cleared = some.filter(|&(nexus, incoming)| concerned(nexus) && incoming.is_any());
        cleared.inspect(|(_, incoming)| incoming.clear(is_told)).map(|(nexus, _)| nexus).collect()
    }

    /// True when `nexus` may not write.
    pub(crate) fn is_read_only(&self, nexus: NexusId) -> bool {
        self.readers.get() > 0 && self.known.borrow().get(&nexus).is_some_and(|known| known.read_only)
    }

    /// The port through which `nexus` comes.
    pub(crate) fn port(&self, nexus: NexusId) -> Option<Rc<TargetPort>> {
        self.known.borrow().get(&nexus).map(|known| known.port.clone())
    }

    /// Those who come through ports of these groups.
    pub(crate) fn through(&self, groups: &[u16]) -> BTreeSet<NexusId> {
        let known = self.known.borrow();
        let comes = |(_, known): &(&NexusId, &Known)| groups.contains(&known.port.portal_group_tag);
        known.iter().filter(comes).map(|(&nexus, _)| nexus).collect()
    }

    /// What `nexus` is called, and the port through which it comes.
    pub(crate) fn names(&self, nexus: NexusId) -> Option<(Rc<ItNexus>, Rc<TargetPort>)> {
        self.known.borrow().get(&nexus).map(|known| (known.name.clone(), known.port.clone()))
    }

    /// Those of `named` that are logged in, with what stands beside their names.
    pub(crate) fn called<T: Copy>(&self, named: &[(Rc<ItNexus>, T)]) -> Vec<(NexusId, T)> {
        let count = named.len();
        let named: BTreeMap<&ItNexus, T> = named.iter().map(|(name, beside)| (&**name, *beside)).collect();
        assert_eq!(named.len(), count, "no nexus is told two things");
        let known = self.known.borrow();
        known.iter().filter_map(|(&nexus, known)| Some((nexus, *named.get(&*known.name)?))).collect()
    }

    /// The initiator ports that are logged in.
    pub(crate) fn initiators(&self) -> BTreeSet<InitiatorPort> {
        self.known.borrow().values().map(|known| known.name.initiator.clone()).collect()
    }

    /// What `nexus` is to the persistent reservation.
    pub(crate) fn standing(&self, nexus: NexusId) -> Standing {
        self.known.borrow().get(&nexus).map_or(Standing::Stranger, |known| known.standing)
    }

    /// Looks anew what everybody is to the persistent reservation.
    pub(crate) fn set_standings(&self, standing: impl Fn(&ItNexus) -> Standing) {
        self.known.borrow_mut().values_mut().for_each(|known| known.standing = standing(&known.name));
    }

    pub(crate) fn is_all_told(&self) -> bool {
        self.untold.get() == 0
    }

    /// Takes what `nexus` is to be told first.
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

    /// Establishes `attention` for all but `one`.
    pub(crate) fn establish_for_others(&self, one: Option<NexusId>, attention: UnitAttention) {
        let nexuses: Vec<_> = self.known.borrow().keys().copied().filter(|&nexus| Some(nexus) != one).collect();
        nexuses.into_iter().for_each(|nexus| self.establish(nexus, attention));
    }

    fn change(&self, nexus: NexusId, change: impl FnOnce(&mut Pending)) {
        let mut known = self.known.borrow_mut();
        let Some(Known { pending, .. }) = known.get_mut(&nexus) else { return };
        let before = usize::from(!pending.is_empty());
        change(pending);
        let after = usize::from(!pending.is_empty());
        self.untold.set(self.untold.get() + after - before);
        assert!(self.untold.get() <= known.len(), "only a nexus has something to be told");
    }
}
