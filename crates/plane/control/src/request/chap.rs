//! Request bodies for CHAP credentials and secrets.

use model::{ChapAlgorithm, Demand, Refusal, Secret, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// CHAP credentials.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewChap {
    /// CHAP name (`CHAP_N`); when absent the present one, or the host's name (the node's name for mutual CHAP).
    #[serde(default)]
    pub user: Option<String>,
    /// CHAP secret; the present one when absent.
    #[serde(default)]
    pub secret: Option<SecretText>,
    /// Authentication demand: `required` denies a login without it, `offered` accepts one; when absent as
    /// before, or `required` of a host and `offered` by the array.
    #[serde(default)]
    pub demand: Option<Demand>,
}

/// Change the authentication policy for all hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetAuth {
    /// Weakest CHAP hash function to accept.
    #[serde(alias = "weakest")]
    pub min_algorithm: Option<ChapAlgorithm>,
    /// Authentication of discovery sessions.
    pub discovery: Option<SetDiscovery>,
}

/// Authentication of discovery sessions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SetDiscovery {
    /// As for other sessions of the host.
    Host {},
    /// None: an initiator with the name of a host's initiator can list its targets.
    Open {},
    /// Credentials of their own, the same for every host.
    Own {
        /// CHAP credentials of the initiator.
        #[serde(default)]
        chap: Option<NewChap>,
        /// CHAP credentials of this array (mutual CHAP).
        #[serde(default)]
        mutual_chap: Option<NewChap>,
        /// True to remove mutual CHAP.
        #[serde(default)]
        no_mutual_chap: bool,
    },
}

/// A secret in a request: a string, or `{"hex": "…"}` when it is not text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SecretText {
    /// The bytes of this string.
    Text(String),
    /// The bytes in hexadecimal.
    Hex {
        /// Two digits per byte.
        hex: String,
    },
}

impl SecretText {
    /// Encodes the bytes as text if possible, or else in hexadecimal.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex { hex: to_hex(bytes) },
        }
    }

    /// Encodes the bytes in hexadecimal.
    #[must_use]
    pub fn hex(bytes: &[u8]) -> Self {
        Self::Hex { hex: to_hex(bytes) }
    }

    /// Decodes the secret.
    ///
    /// *Errors*: it is too short, too long, or not hexadecimal.
    pub fn secret(self) -> Result<Secret, Refusal> {
        let bytes = match self {
            // Moved rather than copied, so that no plain text stays behind in memory.
            Self::Text(text) => text.into_bytes(),
            Self::Hex { hex } => from_hex(&hex).ok_or_else(|| {
                Refusal::new(code::SECRET_INVALID, "the secret is not hexadecimal", "write two digits for each byte")
            })?,
        };
        Secret::new(bytes)
    }
}

impl fmt::Debug for SecretText {
    // Never printed, not even in logs of requests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// Encodes bytes as hexadecimal, two digits each.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hexadecimal, two digits per byte; `None` where it is not hexadecimal.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let (pairs, odd) = digits.as_ref()?.as_chunks::<2>();
    // Both digits are below 16, so each pair is a byte.
    let byte = |[high, low]: &[u32; 2]| u8::try_from(high * 16 + low).ok();
    if odd.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_text_carries_any_bytes() {
        for bytes in [b"twelve bytes".to_vec(), vec![0xff; 16], b"nul\0 # \"quoted\"".to_vec()] {
            let json = serde_json::to_string(&SecretText::of(&bytes)).expect("json");
            let back: SecretText = serde_json::from_str(&json).expect("own json");
            assert_eq!(back.secret().expect("long enough").expose(), bytes);
        }
    }

    #[test]
    fn hex_refuses_halves_and_other_letters() {
        assert_eq!(from_hex("0aFf"), Some(vec![10, 255]));
        assert_eq!(from_hex("0aF"), None);
        assert_eq!(from_hex("0g"), None);
    }
}
