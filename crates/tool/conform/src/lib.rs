//! Conformance checks for any iSCSI target, Blockyard's own or another's, over the wire.
//!
//! Each check opens its own connections and reports that the target keeps the rule, that it breaks the rule and how, or
//! that the rule cannot be tested with this target. Most checks write nothing and disturb no other initiator. Checks
//! that write, reset or reserve are marked ([`Check::destroys`]), and run only when the caller allows it. [`ready`]
//! checks a unit against the requirements of clusters, hypervisors and databases.
//!
//! Called by `blockyard conform`. It depends on no part of the engine, only on the PDU codecs, the login of the
//! initiator, sense data and CRC32C.

mod checks;
mod command_result;
mod discover;
mod login_probe;
pub mod ready;
mod response_tracker;
mod session;
mod test_target;
mod unsolicited;
mod wire;

pub use checks::{CHECKS, Check};
pub use discover::{Discovered, NotDiscovered, discover};
pub use login_probe::{LoginFailure, probe_login};
pub use test_target::{TestTarget, TestTargetError};

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
pub(crate) type CheckResult<T = ()> = Result<T, Finding>;

/// Returns a violation with the text of `otherwise` unless `holds`.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(Finding::Wrong(otherwise())) }
}

impl Check {
    /// Runs the check.
    #[must_use]
    pub fn run(&self, aim: &TestTarget) -> Verdict {
        match (self.play)(aim) {
            Ok(()) => Verdict::Passed,
            Err(Finding::Wrong(how)) => Verdict::Failed(how),
            Err(Finding::Untried(why)) => Verdict::Skipped(why),
        }
    }
}
