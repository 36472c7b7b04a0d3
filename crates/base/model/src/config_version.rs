//! The number of a configuration.

use crate::{Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use std::str::FromStr;

/// Which of the kept configurations: the number of the version of the state that began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub struct ConfigVersion(pub u64);

impl FromStr for ConfigVersion {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        text.parse().map(Self).map_err(|_| {
            let message = format!("{} is not the number of a configuration", quoted(text));
            Refusal::new(code::IDENTIFIER_INVALID, message, "blockyard config list shows them")
        })
    }
}
