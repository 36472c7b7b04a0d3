//! Hexadecimal serde form of secrets, for `#[serde(with)]`. The store seals every string under the key
//! `secret`.

use crate::request::{from_hex, to_hex};
use model::Secret;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use zeroize::Zeroizing;

/// Serializes with two digits per byte.
///
/// *Errors*: those of the serializer.
pub fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    // The hexadecimal form is a secret, too, and is wiped.
    serializer.serialize_str(&Zeroizing::new(to_hex(secret.expose())))
}

/// Deserializes two digits per byte. The length was checked when the secret was set.
///
/// *Errors*: it is not hexadecimal.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    let text = Zeroizing::new(String::deserialize(deserializer)?);
    from_hex(&text).map(Secret::of).ok_or_else(|| D::Error::custom("a secret is hexadecimal"))
}
