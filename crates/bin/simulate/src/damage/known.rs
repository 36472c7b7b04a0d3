//! What nothing can tell from a crash, and findings that are not mended yet: the campaign counts them apart, and does not fail for them.

use super::{Damage, Structure};

/// A structure, and why what comes of its damage is not as promised yet.
const KNOWN: &[(Structure, &str)] = &[];

/// A log ends before a block that shows something older, or no whole batch, in every copy: a crash leaves the same.
const END_OF_LOG: &str = "the end of a log, which every copy shows so, is where a crash cut it off";

/// Why it is known; nothing where it is not.
pub(super) fn reason(damage: &Damage) -> Option<&'static str> {
    if !damage.clean && damage.strikes.iter().any(|strike| strike.everywhere && strike.structure.ends_at(strike.kind)) {
        return Some(END_OF_LOG);
    }
    let is_struck = |structure: Structure| damage.strikes.iter().any(|strike| strike.structure == structure);
    KNOWN.iter().find(|(structure, _)| is_struck(*structure)).map(|(_, reason)| *reason)
}
