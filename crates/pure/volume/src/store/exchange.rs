//! Exchange of a member for a joining disk, which gets every commit already: the joining disk takes the place with the
//! commit that follows the first one that it has taken. No other commit comes between these two. The first asks the
//! member like any other, because the members beside it may all be unable to take it; where the member alone misses it,
//! the member is not failed. So a crash finds the member, or the joining disk after that, at most one commit behind.
//! Where the joining disk misses the commit that names it, the next one names the member again. The member gets that
//! commit, too, so that it is at most one commit behind then.

use super::{CommitResult, SINCE_NEXT, State, Store};
use crate::catalog::{MemberRecord, MemberState};
use uuid::Uuid;

/// Member in service and the joining disk that takes its place.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    old: Uuid,
    new: Uuid,
}

impl<D> Store<D> {
    /// Gives the joining disk `new` the place of the member `old` with the next commit but one, if it takes the next
    /// one and `old` is still in service then.
    ///
    /// *Shape*: the caller commits a change after this. The catalog says then which of the two has the place. Where it
    /// is `new`, that is durable with the latest change.
    pub(crate) fn exchange(&self, old: Uuid, new: Uuid) {
        let mut state = self.state.borrow_mut();
        assert!(state.joining.contains(&new), "a disk gets commits before it gets a place");
        let before = state.exchange.replace(Exchange { old, new });
        assert!(before.is_none(), "one member is exchanged at a time");
    }

    /// Gives up the exchange that no commit has decided yet.
    pub(crate) fn end_exchange(&self) {
        self.state.borrow_mut().exchange = None;
    }
}

impl<D> State<D> {
    /// Makes the exchange after a commit that went to its joining disk, or gives it up. Returns the member that has
    /// lost its place.
    pub(super) fn exchange_after(&mut self, outcome: &[CommitResult<D>]) -> Option<Uuid> {
        let Exchange { old, new } = self.exchange?;
        // A commit that began before the joining disk was attached decides nothing.
        let took = outcome.iter().find(|took| took.id == new)?;
        self.exchange = None;
        let member = self.catalog.member_mut(old).filter(|member| member.state == MemberState::InService)?;
        // The disk would be two commits behind when the next one names it. A member is at most one behind.
        if took.result.is_err() {
            return None;
        }
        *member = MemberRecord { disk: new, state: MemberState::InService, since: SINCE_NEXT };
        if self.catalog.must_announce() {
            self.catalog.written = Some(SINCE_NEXT);
        }
        self.joining.retain(|guest| *guest != new);
        self.joining.push(old);
        self.exchanged = Some(Exchange { old, new });
        Some(old)
    }

    /// Disk whose place the commit in flight gives to another one. It is no failure if it misses that commit.
    pub(super) fn replaced(&self) -> Option<Uuid> {
        Some(self.exchanged?.old)
    }

    /// Gives the place back to the old member after a commit that named the joining disk and that it missed. Returns
    /// the joining disk, which is no member any more.
    pub(super) fn revert_exchange(&mut self, outcome: &[CommitResult<D>]) -> Option<Uuid> {
        let Exchange { old, new } = self.exchanged?;
        let took = outcome.iter().find(|took| took.id == new)?;
        self.exchanged = None;
        self.joining.retain(|joining| *joining != old);
        took.missed_by()?;
        // A member without a device cannot take the commit that names it.
        self.disks.iter().find(|(id, _)| *id == old)?;
        let member = self.catalog.member_mut(new)?;
        *member = MemberRecord { disk: old, state: MemberState::InService, since: SINCE_NEXT };
        Some(new)
    }
}
