//! CHAP: authentication by challenge and response, one-way and mutual.
//!
//! Nothing here draws random numbers: the caller supplies fresh and unpredictable bytes for each challenge.
//!
//! *Source*: RFC 7143 §12.1.3, RFC 1994; algorithm numbers: IANA, "PPP Authentication Algorithms".

mod algorithm;
mod authentication;
mod challenge;
mod policy;
mod secret;

#[cfg(test)]
mod tests;

pub use algorithm::{Algorithm, Digest};
pub use authentication::Authentication;
pub use challenge::{CHALLENGE_RANDOM_BYTES, Challenge};
pub use policy::{Auth, ChapPolicy, Mutual, PolicyError};
pub use secret::{Credential, SECRET_BYTES_MIN, Secret, SecretError};
