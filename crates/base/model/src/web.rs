//! What the console and the API over the network stand on.

use crate::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Where the array is managed over the network, and what it proves itself with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebReport {
    /// What to open in a browser; none while nothing listens.
    pub url: Option<String>,
    /// Each address that was asked for.
    pub addresses: Vec<WebAddress>,
    /// What the node proves itself with; none where it does not listen at all.
    pub certificate: Option<CertificateReport>,
}

/// An address that HTTPS is asked for at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebAddress {
    /// The address.
    pub address: SocketAddr,
    /// True when it is listened on.
    pub open: bool,
    /// Why it is not; it is tried again.
    pub why: Option<String>,
}

/// A certificate, as much of it as tells it from another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateReport {
    /// True when the node has made it for itself.
    pub generated: bool,
    /// The names and addresses that it was made for; empty where it is not ours.
    pub names: Vec<String>,
    /// When it begins to be valid.
    pub from: Timestamp,
    /// When it ends.
    pub until: Timestamp,
    /// SHA-256 of the certificate, as browsers show it.
    pub fingerprint: String,
    /// SHA-256 of its public key, which stays when the certificate is renewed: what `--pin` takes.
    pub pin: String,
}

/// A link that lets one person choose a password, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkReport {
    /// What to open in a browser.
    pub url: String,
    /// When it ends.
    pub until: Timestamp,
}
