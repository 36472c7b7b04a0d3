//! Members that could not tell what rows of a stripe hold, and whether more patience might help.

use crate::geometry::MemberSet;
use crate::members::Patience;
use block::{IoError, IoErrorKind};

/// The members that are not read for some rows of a stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blind {
    members: MemberSet,
    /// Those of them that have only not answered yet.
    late: MemberSet,
    patience: Patience,
}

impl Blind {
    /// These members, which cannot be read.
    pub(crate) fn of(members: MemberSet) -> Self {
        Self { members, ..Self::default() }
    }

    /// The member, which could not tell for this reason.
    pub(crate) fn because_of(member: u16, error: IoError) -> Self {
        Self::default().with(member, error)
    }

    /// All of them.
    pub(crate) fn members(&self) -> MemberSet {
        self.members
    }

    /// Those that have said that they cannot tell.
    pub(crate) fn unreadable(&self) -> MemberSet {
        self.members - self.late
    }

    /// How long the others are waited for.
    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    /// Also the member, which could not tell for this reason.
    pub(crate) fn with(self, member: u16, error: IoError) -> Self {
        let late = if error.kind == IoErrorKind::TimedOut { self.late.with(member) } else { self.late };
        Self { members: self.members.with(member), late, ..self }
    }

    /// Also those of `other`.
    ///
    /// *Panics*: when there is none that was not blind before, for a plan that reads them again would never end.
    pub(crate) fn and(self, other: Self) -> Self {
        assert!(!(other.members - self.members).is_empty(), "a plan reads only members that may be able to tell");
        Self { members: self.members | other.members, late: self.late | other.late, ..self }
    }

    /// True where members were not waited for that may yet answer: from now on they are, as long as it takes.
    pub(crate) fn waits_longer(&mut self) -> bool {
        if self.late.is_empty() {
            return false;
        }
        *self = Self { members: self.unreadable(), late: MemberSet::NONE, patience: Patience::Patient };
        true
    }
}
