//! Secrets on their way to the store, which seals what is called `secret`, and back: for `#[serde(with)]`.

use crate::request::{from_hex, to_hex};
use model::Secret;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use zeroize::Zeroizing;

/// Two digits for each byte.
///
/// *Errors*: what the serializer says.
pub fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&Zeroizing::new(to_hex(secret.expose())))
}

/// The secret of two digits for each byte. Its length was judged when it was set.
///
/// *Errors*: they are none.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    let text = Zeroizing::new(String::deserialize(deserializer)?);
    from_hex(&text).map(Secret::of).ok_or_else(|| D::Error::custom("a secret is hexadecimal"))
}
