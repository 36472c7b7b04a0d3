//! Result of an authentication.

use super::Algorithm;

/// Identity that CHAP authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// CHAP name of the initiator.
    pub name: String,
    /// Hash algorithm of both directions.
    pub algorithm: Algorithm,
    /// True when the target has authenticated as well.
    pub mutual: bool,
}
