//! What logins have to prove, as it is asked for.

use model::{ChapAlgorithm, Demand, Refusal, Secret, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A CHAP name and secret.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewChap {
    /// CHAP_N; when absent the one that there is, or the host's name (the node's name for what we prove).
    #[serde(default)]
    pub user: Option<String>,
    /// The secret; when absent the one that there is.
    #[serde(default)]
    pub secret: Option<SecretText>,
    /// Whether a login goes without; when absent as it was, or required of a host and offered by us.
    #[serde(default)]
    pub demand: Option<Demand>,
}

/// Change what holds for the logins of all hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetAuth {
    /// The weakest hash function of CHAP that is spoken.
    pub weakest: Option<ChapAlgorithm>,
    /// What discovery sessions prove.
    pub discovery: Option<SetDiscovery>,
}

/// What discovery sessions prove.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SetDiscovery {
    /// What their host proves for other sessions.
    Host {},
    /// Nothing: whoever has the name of a host's initiator hears of its targets.
    Open {},
    /// Something of their own, the same for every host.
    Own {
        /// What the initiator proves.
        #[serde(default)]
        chap: Option<NewChap>,
        /// What we prove.
        #[serde(default)]
        mutual_chap: Option<NewChap>,
        /// True when we do not prove anything any more.
        #[serde(default)]
        no_mutual_chap: bool,
    },
}

/// A secret on its way to the daemon: as text, or as `{"hex": "…"}` when it is no text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SecretText {
    /// The secret's bytes are this text's.
    Text(String),
    /// The secret's bytes in hexadecimal.
    Hex {
        /// Two digits a byte.
        hex: String,
    },
}

impl SecretText {
    /// The form in which these bytes travel.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex { hex: to_hex(bytes) },
        }
    }

    /// The form in which these bytes travel where they are no text.
    #[must_use]
    pub fn hex(bytes: &[u8]) -> Self {
        Self::Hex { hex: to_hex(bytes) }
    }

    /// The secret.
    ///
    /// *Errors*: too short, too long, or no hexadecimal.
    pub fn secret(self) -> Result<Secret, Refusal> {
        let bytes = match self {
            Self::Text(text) => text.into_bytes(),
            Self::Hex { hex } => from_hex(&hex).ok_or_else(|| {
                Refusal::new(code::SECRET_INVALID, "the secret is no hexadecimal", "write two digits a byte")
            })?,
        };
        Secret::new(bytes)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// Two digits for each byte.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of two digits each; none where they are none.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let (pairs, odd) = digits.as_ref()?.as_chunks::<2>();
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
