//! Members excluded from reads of a stripe, and whether they failed or only have not responded yet.

use crate::geometry::MemberSet;
use crate::members::ReadWait;
use block::{IoError, IoErrorKind};

/// Members that are not read for some rows of a stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excluded {
    members: MemberSet,
    /// Members among them that have only not responded within the read deadline.
    late: MemberSet,
    wait: ReadWait,
}

impl Excluded {
    /// Excludes members that cannot be read.
    pub(crate) fn of(members: MemberSet) -> Self {
        Self { members, ..Self::default() }
    }

    /// Excludes one member, which failed with this error.
    pub(crate) fn because_of(member: u16, error: IoError) -> Self {
        Self::default().with(member, error)
    }

    /// All excluded members.
    pub(crate) fn members(&self) -> MemberSet {
        self.members
    }

    /// Excluded members that have failed the read, as opposed to late ones.
    pub(crate) fn unreadable(&self) -> MemberSet {
        self.members - self.late
    }

    /// Wait limit for reads of the other members.
    pub(crate) fn wait(&self) -> ReadWait {
        self.wait
    }

    /// Excludes one more member, which failed with this error.
    pub(crate) fn with(self, member: u16, error: IoError) -> Self {
        // `TimedOut` is the only error that says nothing about the content.
        let late = if error.kind == IoErrorKind::TimedOut { self.late.with(member) } else { self.late };
        // The wait limit stays: a read that waits for late members is not cut short again.
        Self { members: self.members.with(member), late, ..self }
    }

    /// Excludes the members of `other`, too.
    ///
    /// *Panics*: when all of them are excluded already: a plan that reads them again would loop endlessly.
    pub(crate) fn and(self, other: Self) -> Self {
        assert!(!(other.members - self.members).is_empty(), "a plan reads only members that may be able to tell");
        Self { members: self.members | other.members, late: self.late | other.late, ..self }
    }

    /// Readmits late members and waits for them as long as it takes; false where none are late.
    pub(crate) fn waits_longer(&mut self) -> bool {
        if self.late.is_empty() {
            return false;
        }
        // Members with errors stay excluded: reading them again would fail in the same way.
        *self = Self { members: self.unreadable(), late: MemberSet::NONE, wait: ReadWait::Unbounded };
        true
    }
}
