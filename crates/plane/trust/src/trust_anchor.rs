//! Trust anchors for TLS servers: certificate pinning and certificate authorities.

use crate::der;
use model::{Refusal, code};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths of the system's list of trusted certificate authorities, by Linux distribution.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Limit on a file of authorities in bytes; a system's list has 250 KiB.
const PEM_BYTES_MAX: u64 = 8 << 20;

/// Trust anchor for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Pinned public key, whatever the certificate says: `sha256:` and 64 hexadecimal digits.
    Pin(String),
    /// Certificate authorities in this file.
    Authority(PathBuf),
    /// Certificate authorities of the system.
    System,
}

impl Trust {
    /// Returns the TLS client configuration; no client certificate is presented.
    ///
    /// *Errors*: the pin is malformed, or there is no readable file of authorities.
    pub fn client(&self) -> Result<ClientConfig, Refusal> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let config = match self {
            Self::Pin(pin) => {
                // Blockyard servers offer TLS 1.3 only.
                let builder = builder.with_protocol_versions(&[&TLS13]).expect("the provider has suites of TLS 1.3");
                let verifier = Arc::new(Pinned { pin: pin_from(pin)?, provider });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            Self::Authority(path) => {
                let builder = builder.with_safe_default_protocol_versions().expect("the provider has their suites");
                builder.with_root_certificates(roots(path)?)
            }
            Self::System => {
                // Distributions store the list in different places; the first one found is used.
                let found = SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists());
                let path = found.ok_or_else(|| {
                    Refusal::new(
                        code::CERTIFICATE_UNUSABLE,
                        "the system has no list of authorities to believe",
                        "install ca-certificates, or name a file of authorities",
                    )
                })?;
                let builder = builder.with_safe_default_protocol_versions().expect("the provider has their suites");
                builder.with_root_certificates(roots(path)?)
            }
        };
        Ok(config.with_no_client_auth())
    }
}

/// Returns the pin of a public key: `sha256:` and the digest of its `SubjectPublicKeyInfo`.
#[must_use]
pub fn pin(public_key: &[u8]) -> String {
    let digits: String = Sha256::digest(public_key).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// Returns the pin of the certificate's public key; `None` when it is not a certificate.
///
/// *Shape*: DER. A client compares it with the pin shown by `blockyard web show`.
#[must_use]
pub fn pin_of(certificate: &[u8]) -> Option<String> {
    der::parse(certificate).map(|facts| pin(facts.public_key))
}

fn pin_from(text: &str) -> Result<String, Refusal> {
    // The prefix is optional on input.
    let digits = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
    // In lower case, as `pin` writes them: pins are compared as text.
    if digits.len() == 64 && digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Ok(format!("sha256:{digits}"));
    }
    let hint = "write what blockyard web show says there: sha256: and 64 hexadecimal digits";
    Err(Refusal::new(code::PIN_INVALID, "this is no pin of a key", hint))
}

fn roots(path: &Path) -> Result<RootCertStore, Refusal> {
    let unusable = |why: &dyn std::fmt::Display| {
        let message = format!("the authorities in {} cannot be used: {why}", path.display());
        Refusal::new(code::CERTIFICATE_UNUSABLE, message, "name a file of certificates in PEM")
    };
    let mut roots = RootCertStore::empty();
    let pem = bounded::source(path, PEM_BYTES_MAX).map_err(|error| unusable(&error))?;
    // A system's list may contain certificates that rustls cannot parse; the others are used.
    let (added, _) = roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if added == 0 { Err(unusable(&"there is no certificate in it")) } else { Ok(roots) }
}

/// Verifier that accepts one public key.
#[derive(Debug)]
struct Pinned {
    pin: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The key is compared, not the certificate: name and validity do not matter, and the pin survives a renewal
        // with the same key.
        // A pin is public, so the comparison need not take constant time.
        match pin_of(end_entity) {
            Some(pin) if pin == self.pin => Ok(ServerCertVerified::assertion()),
            other => {
                Err(Error::General(format!("its key is {}, not the pinned one", other.as_deref().unwrap_or("none"))))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // Never called: a pinned client offers TLS 1.3 only.
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // Proves that the server has the private key: anybody can present a pinned certificate.
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
