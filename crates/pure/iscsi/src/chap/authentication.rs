//! What a login has proven.

use super::Algorithm;

/// Who has proven what, with CHAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// The CHAP name that the initiator has proven.
    pub name: String,
    /// The hash function of both directions.
    pub algorithm: Algorithm,
    /// True when the target has proven itself, too.
    pub mutual: bool,
}
