//! Numbers of configurations.

use crate::number::unsigned;
use crate::{Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use std::str::FromStr;

/// Number of a stored configuration: the version of the state that introduced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub struct ConfigVersion(pub u64);

impl FromStr for ConfigVersion {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        unsigned(text).map(Self).ok_or_else(|| {
            let message = format!("{} is not a configuration number", quoted(text));
            Refusal::new(code::IDENTIFIER_INVALID, message, "see blockyard config list")
        })
    }
}
