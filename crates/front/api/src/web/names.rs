//! Host names and addresses that the array answers to.
//!
//! A foreign page can point a name of its own at the array's address and make a browser send requests under that name
//! (DNS rebinding). A request for another host is refused before it is parsed any further.

use rustls::pki_types::{CertificateDer, ServerName};
use std::collections::BTreeSet;
use std::net::IpAddr;
use webpki::EndEntityCert;

/// Names and addresses from the configuration.
#[derive(Debug)]
pub(crate) struct Names(BTreeSet<String>);

impl Names {
    /// Creates the set; case is ignored.
    pub(crate) fn new(names: BTreeSet<String>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// True if `host`, as written in a URL or the `Host` header, is the array: a configured name, a name of its
    /// certificate, or the address of the connection.
    pub(crate) fn answer_to(&self, host: &str, came_to: IpAddr, certificate: Option<&CertificateDer<'_>>) -> bool {
        let Some(name) = without_port(host) else { return false };
        // IPv6 addresses are written in brackets.
        let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        if let Ok(address) = bracketed.unwrap_or(name).parse::<IpAddr>() {
            // An IPv4 address may be written in its IPv6-mapped form.
            let address = address.to_canonical();
            let is_configured = self.0.iter().any(|known| known.parse::<IpAddr>() == Ok(address));
            return address == came_to.to_canonical()
                || is_configured
                || is_named_by(certificate, &address.to_string());
        }
        // A trailing dot marks a fully qualified name.
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        self.0.contains(&name) || is_named_by(certificate, &name)
    }
}

/// True for a DNS name or an address without a port.
#[must_use]
pub fn is_host_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// Host of `host[:port]`; `None` if the port is invalid.
fn without_port(host: &str) -> Option<&str> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, port) = host.split_at_checked(end)?;
    // A port may be empty (RFC 3986 §3.2.3).
    let is_port = |digits: &str| digits.is_empty() || digits.parse::<u16>().is_ok();
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    (is_port && !name.is_empty()).then_some(name)
}

fn is_named_by(certificate: Option<&CertificateDer<'_>>, name: &str) -> bool {
    let (Some(certificate), Ok(name)) = (certificate, ServerName::try_from(name)) else { return false };
    // The rules for wildcards in certificates apply.
    EndEntityCert::try_from(certificate)
        .is_ok_and(|certificate| certificate.verify_is_valid_for_subject_name(&name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_answers_to_its_names_its_certificate_and_the_address_that_was_asked() {
        let names = Names::new(["Node1", "san.example.com", "192.0.2.7", "fd00::7"].map(str::to_owned).into());
        let made = rcgen::generate_simple_self_signed(
            ["cert.example.com", "*.wild.example.com", "198.51.100.9"].map(str::to_owned),
        );
        let certificate = made.expect("a certificate").cert.der().clone();
        let came_to: IpAddr = "10.0.0.1".parse().expect("an address");
        let answers = |host: &str| names.answer_to(host, came_to, Some(&certificate));
        for ours in [
            "node1",
            "NODE1:8443",
            "san.example.com",
            "san.example.com.:443",
            "10.0.0.1:8443",
            "192.0.2.7",
            "[fd00::7]:8443",
            "[fd00:0::7]",
            "cert.example.com",
            "a.wild.example.com:8443",
            "198.51.100.9",
            "[::ffff:10.0.0.1]",
            "node1:",
        ] {
            assert!(answers(ours), "{ours}");
        }
        for other in [
            "",
            ":8443",
            "evil.example",
            "node1.evil.example",
            "node1:x",
            "node1:99999",
            "10.0.0.2",
            "[fd00::8]",
            "[fd00::7",
            "[fd00::7]x",
            "user@node1",
            "node1/..",
            "wild.example.com",
            "a.b.wild.example.com",
            "node1 ",
            "*.wild.example.com",
            "node1..",
            "10.0.0.1]",
            "[node1]",
        ] {
            assert!(!answers(other), "{other}");
        }
        assert!(!names.answer_to("cert.example.com", came_to, None));
    }
}
