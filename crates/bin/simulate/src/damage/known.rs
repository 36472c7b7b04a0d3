//! Known findings: states that cannot be distinguished from a crash, and defects that are not fixed yet. The campaign
//! counts them separately and does not fail.

use super::{Corruption, Structure};

/// Structure, and the reason for which its corruption is not handled as promised yet.
const KNOWN: &[(Structure, &str)] = &[];

/// A log ends before a block that is old, or part of no complete batch, in every copy: a crash leaves the same state.
const END_OF_LOG: &str = "the end of a log, which every copy shows so, is where a crash cut it off";

/// Returns the reason for which a finding is known, if it is.
pub(super) fn reason(damage: &Corruption) -> Option<&'static str> {
    if !damage.clean && damage.blocks.iter().any(|strike| strike.everywhere && strike.structure.ends_at(strike.kind)) {
        return Some(END_OF_LOG);
    }
    let is_struck = |structure: Structure| damage.blocks.iter().any(|strike| strike.structure == structure);
    KNOWN.iter().find(|(structure, _)| is_struck(*structure)).map(|(_, reason)| *reason)
}
