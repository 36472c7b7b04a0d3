//! Conformance checks for any iSCSI target, Blockyard's own or another's, over the wire.
//!
//! Each check opens its own connections and reports that the target keeps the rule, that it breaks the rule and how, or
//! that the rule cannot be tested with this target. Most checks write nothing and disturb no other initiator. Checks
//! that write, reset or reserve are marked ([`Check::destroys`]), and run only when the caller allows it. [`ready`]
//! checks a unit against the requirements of clusters, hypervisors and databases.
//!
//! Called by `blockyard conform`. It depends on no part of the engine, only on the PDU codecs, the login of the
//! initiator, sense data and CRC32C.

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
pub use knock::{Shut, probe_login};

/// Verdict of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target keeps the rule.
    Passed,
    /// The target breaks the rule, in this way.
    Failed(String),
    /// The rule cannot be tested, for this reason.
    Skipped(String),
}

/// Reason for which a check does not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Finding {
    #[error("{0}")]
    Wrong(String),
    #[error("{0}")]
    Untried(String),
}

/// Result of a part of a check.
pub(crate) type Found<T = ()> = Result<T, Finding>;

/// Returns a violation with the text of `otherwise` unless `holds`.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Found {
    if holds { Ok(()) } else { Err(Finding::Wrong(otherwise())) }
}

impl Check {
    /// Runs the check.
    #[must_use]
    pub fn run(&self, aim: &Aim) -> Verdict {
        match (self.play)(aim) {
            Ok(()) => Verdict::Passed,
            Err(Finding::Wrong(how)) => Verdict::Failed(how),
            Err(Finding::Untried(why)) => Verdict::Skipped(why),
        }
    }
}
