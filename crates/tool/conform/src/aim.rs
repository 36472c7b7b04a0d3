//! Which unit of which target is tried, and as whom.

use iscsi::login::InitiatorAuth;
use iscsi::{IscsiName, NameError};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The port of an iSCSI portal where none is given (RFC 7143 §4.2.7.1).
const PORT: u16 = 3260;
/// How long an answer may take unless told otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A unit of a target, behind a portal: `iscsi://HOST[:PORT]/TARGET[/LUN]`.
#[derive(Clone, Debug)]
pub struct Aim {
    /// Host and port, as a resolver takes them.
    pub portal: String,
    /// The target's name.
    pub target: IscsiName,
    /// The unit that is read.
    pub lun: u16,
    /// Who asks.
    pub initiator: IscsiName,
    /// What is proven, and must be.
    pub auth: InitiatorAuth,
    /// How long a session listens for what the target says unasked, in the checks that are about that.
    pub listen: Duration,
    /// How long an answer may take.
    pub patience: Duration,
}

/// Why a text is no [`Aim`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AimError {
    /// It has another form.
    #[error("\"{0}\" names no unit; write iscsi://HOST[:PORT]/TARGET[/LUN]")]
    Form(String),
    /// The target's name is none.
    #[error("\"{name}\" is no target's name: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: NameError,
    },
}

impl FromStr for Aim {
    type Err = AimError;

    fn from_str(text: &str) -> Result<Self, AimError> {
        let form = || AimError::Form(text.to_owned());
        let rest = text.strip_prefix("iscsi://").ok_or_else(form)?;
        let mut parts = rest.split('/');
        let (Some(portal), Some(target), lun, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(form());
        };
        let lun = lun.map_or(Ok(0), |lun| lun.parse().map_err(|_| form()))?;
        if portal.is_empty() || lun > 0x3fff {
            return Err(form());
        }
        let has_port = portal.rsplit_once(':').is_some_and(|(host, port)| {
            !port.is_empty()
                && port.bytes().all(|byte| byte.is_ascii_digit())
                && (!host.contains(':') || host.ends_with(']'))
        });
        let portal = if has_port { portal.to_owned() } else { format!("{portal}:{PORT}") };
        let target = IscsiName::parse(target).map_err(|why| AimError::Name { name: target.to_owned(), why })?;
        let initiator = IscsiName::parse("iqn.2026-11.io.blockyard:conform").expect("a name");
        let auth = InitiatorAuth::None;
        Ok(Self { portal, target, lun, initiator, auth, listen: Duration::ZERO, patience: PATIENCE })
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iscsi://{}/{}/{}", self.portal, self.target.as_str(), self.lun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aim_is_read_from_a_url_and_refused_in_a_sentence() {
        let read = |text: &str| text.parse::<Aim>().map(|aim| aim.to_string()).map_err(|why| why.to_string());
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
