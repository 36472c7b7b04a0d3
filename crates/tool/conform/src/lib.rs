//! Checks of any iSCSI target, ours or another's, by what it says on the wire.
//!
//! Each check makes connections of its own and says what it found: that the target keeps the rule, that it breaks it and how, or
//! that the rule cannot be tried with this target. Most write nothing to its units and disturb nobody else; those that write, reset
//! or reserve say so, and are done only by who allows it. [`ready`] asks a unit for what those need who are to use it.

mod aim;
mod answered;
mod checks;
mod discover;
mod done;
mod knock;
pub mod ready;
mod session;
mod unasked;
mod wire;

pub use aim::{Aim, AimError};
pub use checks::{CHECKS, Check};
pub use discover::{Discovered, NotDiscovered, discover};
pub use knock::{Shut, knock};

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target keeps the rule.
    Passed,
    /// It breaks the rule: how.
    Failed(String),
    /// It cannot be tried: why.
    Skipped(String),
}

/// Why a check does not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Finding {
    #[error("{0}")]
    Wrong(String),
    #[error("{0}")]
    Untried(String),
}

/// The result of a part of a check.
pub(crate) type Found<T = ()> = Result<T, Finding>;

/// The check holds, or the target breaks its rule.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Found {
    if holds { Ok(()) } else { Err(Finding::Wrong(otherwise())) }
}

impl Check {
    /// The check is done.
    #[must_use]
    pub fn run(&self, aim: &Aim) -> Verdict {
        match (self.play)(aim) {
            Ok(()) => Verdict::Passed,
            Err(Finding::Wrong(how)) => Verdict::Failed(how),
            Err(Finding::Untried(why)) => Verdict::Skipped(why),
        }
    }
}
