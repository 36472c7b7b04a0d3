//! Certificate of the HTTPS server: provided by the operator, or self-signed and renewed by the node.

use model::{CertificateReport, Refusal, Timestamp, code};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use trust::{der, pin};

/// Validity of a self-signed certificate in days: the longest that browsers accept.
const LASTS_DAYS: u64 = 397;
/// Days before its expiry at which a self-signed certificate is renewed.
const RENEWED_DAYS: u64 = 30;
const DAY: u64 = 24 * 60 * 60;

/// Longest certificate or key file, in bytes; more than any certificate chain.
const PEM_BYTES_MAX: u64 = 256 << 10;

/// Location of the certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// PEM files of the operator. They are read again when they change.
    Own {
        /// Certificate, followed by its chain.
        certificate: PathBuf,
        /// Private key: PKCS #8, PKCS #1 or SEC1.
        key: PathBuf,
    },
    /// Self-signed certificate in `folder`, for these names and addresses.
    Generated {
        /// Folder; created if it does not exist, accessible to its owner only.
        folder: PathBuf,
        /// Names and addresses of the node for browsers.
        names: BTreeSet<String>,
    },
}

/// Certificate of the server as it is now.
pub(crate) struct Certificate {
    source: Source,
    /// Certificate in use; `None` until the files could be read for the first time.
    current: Mutex<Option<Current>>,
}

struct Current {
    /// Certificate chain and key for handshakes.
    key: Arc<CertifiedKey>,
    report: CertificateReport,
    /// Stamp of the files when they were read.
    stamp: Stamp,
}

/// Modification times (seconds, nanoseconds) and lengths of both files.
type Stamp = [(i64, i64, u64); 2];

impl Certificate {
    /// Creates it without reading anything; see [`Certificate::refresh`].
    pub(crate) fn new(source: Source) -> Self {
        Self { source, current: Mutex::default() }
    }

    /// Reads files that have changed, and renews a self-signed certificate that is missing, invalid or about to expire.
    /// True if the certificate was replaced.
    ///
    /// *Errors*: the files cannot be read or written, are not a certificate and key, or do not belong to each other.
    /// The present certificate stays in use.
    pub(crate) fn refresh(&self, now: Timestamp) -> Result<bool, Refusal> {
        let read = self.current().as_ref().map(|current| (current.stamp, current.report.from, current.report.until));
        if let Some((stamp, from, until)) = read {
            // Only a self-signed certificate is renewed; one of the operator is merely reported.
            let is_unfit = matches!(self.source, Source::Generated { .. }) && !is_fit(from, until, now);
            if !is_unfit && self.source.stamp().is_ok_and(|now| now == stamp) {
                return Ok(false);
            }
        }
        // The old certificate is replaced only after the new one was loaded in full.
        let next = self.source.load(now)?;
        *self.current() = Some(next);
        Ok(true)
    }

    /// Report of the certificate; `None` until the files could be read.
    pub(crate) fn report(&self) -> Option<CertificateReport> {
        self.current().as_ref().map(|current| current.report.clone())
    }

    /// The certificate itself; `None` until the files could be read.
    pub(crate) fn first(&self) -> Option<CertificateDer<'static>> {
        self.current().as_ref().and_then(|current| current.key.cert.first().cloned())
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Each handshake takes the present certificate, so a renewal needs no restart.
        self.current().as_ref().map(|current| current.key.clone())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Source {
    fn files(&self) -> (PathBuf, PathBuf) {
        match self {
            Self::Own { certificate, key } => (certificate.clone(), key.clone()),
            Self::Generated { folder, .. } => (folder.join("certificate.pem"), folder.join("key.pem")),
        }
    }

    fn stamp(&self) -> Result<Stamp, Refusal> {
        let (certificate, key) = self.files();
        let of = |path: &Path| {
            let meta = fs::metadata(path).map_err(|error| unusable(path, &error))?;
            Ok((meta.mtime(), meta.mtime_nsec(), meta.size()))
        };
        Ok([of(&certificate)?, of(&key)?])
    }

    fn load(&self, now: Timestamp) -> Result<Current, Refusal> {
        if let Self::Generated { folder, names } = self {
            make_where_needed(folder, names, now)?;
        }
        // Taken before the files are read, so that a change in between is noticed at the next check.
        let stamp = self.stamp()?;
        let (certificate_path, key_path) = self.files();
        let certificate = read(&certificate_path)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
        let chain = chain.map_err(|error| unusable(&certificate_path, &error))?;
        let first = chain.first().ok_or_else(|| unusable(&certificate_path, &"it contains no certificate"))?.clone();
        let key = PrivateKeyDer::from_pem_slice(&read(&key_path)?).map_err(|error| unusable(&key_path, &error))?;
        // Checks that the key belongs to the certificate.
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let key =
            key.map_err(|error| unusable(&key_path, &format!("it is not the key of the certificate: {error}")))?;
        let facts = der::parse(&first).ok_or_else(|| unusable(&certificate_path, &"it is not an X.509 certificate"))?;
        let (generated, names) = match self {
            Self::Own { .. } => (false, Vec::new()),
            Self::Generated { names, .. } => (true, names.iter().cloned().collect()),
        };
        let (fingerprint, pin) = (fingerprint(&first), pin(facts.public_key));
        let (from, until) = (facts.from, facts.until);
        let report = CertificateReport { generated, names, from, until, fingerprint, pin };
        Ok(Current { key: Arc::new(key), report, stamp })
    }
}

/// SHA-256 fingerprint of a certificate in the form that browsers show: `AB:CD:…`.
fn fingerprint(certificate: &[u8]) -> String {
    let digits: Vec<String> = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02X}")).collect();
    digits.join(":")
}

/// True if it is valid and does not expire soon. After the clock was set back it may start in the future.
fn is_fit(from: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    from <= now && now.plus(RENEWED_DAYS * DAY) < until
}

/// Creates or renews the certificate for `names` in `folder` if needed. The key is kept when the certificate is
/// renewed.
fn make_where_needed(folder: &Path, names: &BTreeSet<String>, now: Timestamp) -> Result<(), Refusal> {
    let (certificate, key, for_names) = (folder.join("certificate.pem"), folder.join("key.pem"), folder.join("names"));
    // The names are kept beside the certificate: another set of names needs another certificate.
    let wanted: String = names.iter().map(|name| format!("{name}\n")).collect();
    let standing = read_if_there(&certificate)?
        .filter(|_| bounded::text_file(&for_names, PEM_BYTES_MAX).is_ok_and(|was| was == wanted));
    let standing = standing.and_then(|pem| CertificateDer::from_pem_slice(&pem).ok());
    let times = standing.and_then(|standing| der::parse(&standing).map(|facts| (facts.from, facts.until)));
    let old_key = read_if_there(&key)?;
    // Valid, for the right names, and with its key: nothing to do.
    if old_key.is_some() && times.is_some_and(|(from, until)| is_fit(from, until, now)) {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| unusable(folder, &error))?;
    // The same key keeps pins on the public key valid across renewals.
    let pair = match old_key {
        Some(pem) => {
            let pem = String::from_utf8(pem).map_err(|error| unusable(&key, &error))?;
            KeyPair::from_pem(&pem).map_err(|error| unusable(&key, &error))?
        }
        None => {
            let pair = KeyPair::generate().map_err(|error| unusable(&key, &error))?;
            // The key is durable before a certificate is issued for it.
            write(&key, pair.serialize_pem().as_bytes())?;
            pair
        }
    };
    let made = params(names, now).and_then(|params| params.self_signed(&pair));
    let made = made.map_err(|error| unusable(&certificate, &error))?;
    // The file with the names comes last: without it the next check creates the certificate anew.
    write(&certificate, made.pem().as_bytes())?;
    write(&for_names, wanted.as_bytes())
}

fn params(names: &BTreeSet<String>, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    // The common name is for display; browsers check the alternative names.
    let called = names.iter().find(|name| name.parse::<std::net::IpAddr>().is_err() && *name != "localhost");
    params.distinguished_name.push(DnType::CommonName, called.map_or("blockyard", String::as_str));
    params.distinguished_name.push(DnType::OrganizationName, "Blockyard, made by the node itself");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // A client whose clock is a little behind must not find the certificate in the future.
    let (year, month, day) = date(now.minus(DAY));
    params.not_before = rcgen::date_time_ymd(year, month, day);
    let (year, month, day) = date(now.plus(LASTS_DAYS * DAY));
    params.not_after = rcgen::date_time_ymd(year, month, day);
    Ok(params)
}

/// Returns `(year, month, day)` of the time.
fn date(time: Timestamp) -> (i32, u8, u8) {
    let text = time.to_string();
    let small = |range: std::ops::Range<usize>| text.get(range).and_then(|digits| digits.parse().ok()).unwrap_or(1);
    (text.get(..4).and_then(|year| year.parse().ok()).unwrap_or(1970), small(5..7), small(8..10))
}

/// Replaces the file atomically, readable by its owner only. *Durability*: the new content survives a power loss when
/// this returns.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
    let beside = path.with_extension("new");
    let write = || {
        // A left-over of an interrupted write; `create_new` would fail on it.
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        // Syncing the folder makes the rename durable.
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().map_err(|error: std::io::Error| unusable(path, &error))
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, Refusal> {
    // A dangling symbolic link is an error and not a missing file.
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        _ => read(path).map(Some),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Refusal> {
    bounded::file(path, PEM_BYTES_MAX).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, why: &dyn fmt::Display) -> Refusal {
    let message = format!("the certificate file {} cannot be used: {why}", path.display());
    let hint = "set a certificate and its key, both in PEM, under [web] in the configuration file; without them \
         the node creates its own; remove a damaged file and it is created again";
    Refusal::new(code::CERTIFICATE_UNUSABLE, message, hint)
}

#[cfg(test)]
mod tests;
