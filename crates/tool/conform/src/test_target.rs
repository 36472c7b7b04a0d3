//! Target and logical unit under test, and the credentials used.

use iscsi::login::InitiatorAuth;
use iscsi::{IscsiName, NameError};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Default TCP port of an iSCSI portal (RFC 7143 §4.2.7.1).
const PORT: u16 = 3260;
/// Default response timeout.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Logical unit of a target behind a portal: `iscsi://HOST[:PORT]/TARGET[/LUN]`.
#[derive(Clone, Debug)]
pub struct TestTarget {
    /// Host and port in the form that a resolver accepts.
    pub portal: String,
    /// iSCSI name of the target.
    pub target: IscsiName,
    /// LUN of the unit under test; at most 16383.
    pub lun: u16,
    /// iSCSI name of the initiator.
    pub initiator: IscsiName,
    /// CHAP credentials: ours, and those that the target must prove.
    pub auth: InitiatorAuth,
    /// Time for which the checks of unsolicited messages listen; zero skips these checks.
    pub listen: Duration,
    /// Response timeout.
    pub patience: Duration,
}

/// Error of parsing a [`TestTarget`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestTargetError {
    /// The text is not a URL of the required form.
    #[error("\"{0}\" names no unit; write iscsi://HOST[:PORT]/TARGET[/LUN]")]
    Form(String),
    /// The target name is not a valid iSCSI name.
    #[error("\"{name}\" is no target's name: {why}")]
    Name {
        /// Rejected name.
        name: String,
        /// Reason for the rejection.
        why: NameError,
    },
}

impl FromStr for TestTarget {
    type Err = TestTargetError;

    fn from_str(text: &str) -> Result<Self, TestTargetError> {
        let form = || TestTargetError::Form(text.to_owned());
        let rest = text.strip_prefix("iscsi://").ok_or_else(form)?;
        let mut parts = rest.split('/');
        let (Some(portal), Some(target), lun, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(form());
        };
        let lun = lun.map_or(Ok(0), |lun| lun.parse().map_err(|_| form()))?;
        // SAM-5: LUNs in the flat space addressing format have 14 bits.
        if portal.is_empty() || lun > 0x3fff {
            return Err(form());
        }
        // A colon inside an IPv6 literal is not a port separator.
        let has_port = portal.rsplit_once(':').is_some_and(|(host, port)| {
            !port.is_empty()
                && port.bytes().all(|byte| byte.is_ascii_digit())
                && (!host.contains(':') || host.ends_with(']'))
        });
        let portal = if has_port { portal.to_owned() } else { format!("{portal}:{PORT}") };
        let target = IscsiName::parse(target).map_err(|why| TestTargetError::Name { name: target.to_owned(), why })?;
        let initiator = IscsiName::parse("iqn.2026-11.io.blockyard:conform").expect("a name");
        let auth = InitiatorAuth::None;
        Ok(Self { portal, target, lun, initiator, auth, listen: Duration::ZERO, patience: PATIENCE })
    }
}

impl fmt::Display for TestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iscsi://{}/{}/{}", self.portal, self.target.as_str(), self.lun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aim_is_read_from_a_url_and_refused_in_a_sentence() {
        let read = |text: &str| text.parse::<TestTarget>().map(|aim| aim.to_string()).map_err(|why| why.to_string());
        assert_eq!(read("iscsi://san/iqn.2026-11.x:a").as_deref(), Ok("iscsi://san:3260/iqn.2026-11.x:a/0"));
        assert_eq!(read("iscsi://[::1]/iqn.2026-11.x:a/7").as_deref(), Ok("iscsi://[::1]:3260/iqn.2026-11.x:a/7"));
        assert_eq!(read("iscsi://[::1]:99/iqn.2026-11.x:a").as_deref(), Ok("iscsi://[::1]:99/iqn.2026-11.x:a/0"));
        for wrong in [
            "san/iqn.2026-11.x:a",
            "iscsi://san",
            "iscsi:///iqn.2026-11.x:a",
            "iscsi://san/iqn.2026-11.x:a/x",
            "iscsi://a/b/c/d",
        ] {
            assert!(
                read(wrong).is_err_and(|why| why.contains("iscsi://HOST[:PORT]/TARGET[/LUN]") || why.contains("name")),
                "{wrong}"
            );
        }
    }
}
