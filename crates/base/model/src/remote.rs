//! Remote disks: disks of other arrays that are accessed over iSCSI. Addresses, login parameters and path states.

use crate::number::unsigned;
use crate::{ChapCredentials, ISCSI_PORT, Iqn, PortalAddress, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Scheme of the address of a remote disk.
const SCHEME: &str = "iscsi://";
/// Maximum number of paths of a remote disk.
pub const PATHS_MAX: usize = 8;
/// Maximum LUN in the flat addressing of SAM-5.
const LUN_MAX: u16 = 16_383;

/// Address of a remote disk: portals of one target, and the LUN.
///
/// Written as `iscsi://10.0.0.1,10.0.1.1:3260/iqn.2026-11.io.blockyard:array1/0`; this form, with all ports, is the
/// device path of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Portals, each of which is a path to the logical unit.
    pub portals: Vec<SocketAddr>,
    /// Name of the target.
    pub target: Iqn,
    /// Logical unit number.
    pub lun: u16,
}

/// Address with an optional CHAP name before the portals, as operators write it: `iscsi://user@10.0.0.1/…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrl {
    /// CHAP name.
    pub user: Option<String>,
    /// Address without the CHAP name.
    pub address: RemoteAddress,
}

/// Login parameters of this array at a remote disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteLogin {
    /// CHAP: `own` authenticates this array, `mutual` the target.
    pub proof: ChapCredentials,
    /// True to require header and data digests.
    pub digests: bool,
    /// True to preempt registrations of other initiators.
    pub force: bool,
}

/// Connection to a remote disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoteReport {
    /// Name of the target.
    pub target: Iqn,
    /// Logical unit number.
    pub lun: u16,
    /// CHAP name of this array; absent without CHAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_user: Option<String>,
    /// CHAP name of the target; absent if it does not authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_chap_user: Option<String>,
    /// True if header and data digests are required.
    #[serde(default)]
    pub digests: bool,
    /// Paths, in the order of the address.
    pub paths: Vec<DiskPathReport>,
}

/// State of a path to a remote disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskPathReport {
    /// Address of the portal.
    pub portal: PortalAddress,
    /// State of the path.
    pub state: DiskPathState,
    /// True for the path that carries I/O.
    #[serde(default)]
    pub active: bool,
    /// Reason why the path is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of failures of the path since the disk was opened.
    #[serde(default)]
    pub losses: u64,
    /// Commands sent over the path since then.
    #[serde(default)]
    pub commands: u64,
    /// Bytes transferred over the path since then.
    #[serde(default)]
    pub bytes: u64,
}

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskPathState {
    /// Logged in.
    Up,
    /// Not logged in; the login is retried automatically.
    Down,
    /// Not used: the disk belongs to no open pool.
    Idle,
}

impl DiskPathState {
    /// Returns the state as one word, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Idle => "idle",
        }
    }
}

impl RemoteReport {
    /// Returns the paths that are down.
    pub fn down(&self) -> impl Iterator<Item = &DiskPathReport> {
        self.paths.iter().filter(|path| path.state == DiskPathState::Down)
    }
}

impl RemoteAddress {
    /// Returns true if `path` is the address of a remote disk.
    #[must_use]
    pub fn is_remote(path: &str) -> bool {
        path.starts_with(SCHEME)
    }

    /// Returns the report of a remote disk whose paths are not in use.
    #[must_use]
    pub fn report(&self, login: &RemoteLogin) -> RemoteReport {
        let path = |&portal| DiskPathReport {
            portal: PortalAddress(portal),
            state: DiskPathState::Idle,
            active: false,
            reason: None,
            losses: 0,
            commands: 0,
            bytes: 0,
        };
        RemoteReport {
            target: self.target.clone(),
            lun: self.lun,
            chap_user: login.proof.own.as_ref().map(|chap| chap.user.clone()),
            mutual_chap_user: login.proof.mutual.as_ref().map(|chap| chap.user.clone()),
            digests: login.digests,
            paths: self.portals.iter().map(path).collect(),
        }
    }
}

fn malformed(text: &str, why: &str) -> Refusal {
    Refusal::new(
        code::ADDRESS_INVALID,
        format!("{} is not the address of a remote disk: {why}", quoted(text)),
        "write it as iscsi://10.0.0.1,10.0.1.1/iqn.2026-11.io.blockyard:array1/0: IP addresses, target, LUN",
    )
}

impl FromStr for RemoteUrl {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| malformed(text, "it does not begin with iscsi://"))?;
        let mut parts = rest.split('/');
        // Exactly three parts: anything behind the LUN would be ignored silently.
        let (Some(authority), Some(target), Some(lun), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed(text, "it must consist of portals, target and LUN"));
        };
        // Split at the last `@`, because a CHAP name may contain one.
        let (user, portals) = match authority.rsplit_once('@') {
            Some((user, portals)) => (Some(user), portals),
            None => (None, authority),
        };
        // A secret in the address would be visible in process lists and shell histories.
        if user.is_some_and(|user| user.contains(':')) {
            return Err(malformed(text, "it must not contain a secret; use --chap-secret-file"));
        }
        if user.is_some_and(|user| user.is_empty() || user.chars().any(char::is_control)) {
            return Err(malformed(text, "the CHAP name is empty or has control characters"));
        }
        let portals: Result<Vec<SocketAddr>, Refusal> =
            portals.split(',').map(|portal| portal_of(text, portal)).collect();
        let (portals, target) = (portals?, target.parse()?);
        if portals.len() > PATHS_MAX {
            return Err(malformed(text, &format!("it has more than {PATHS_MAX} portals")));
        }
        // Compared after the default port was added. Quadratic, but at most `PATHS_MAX` portals.
        if portals.iter().enumerate().any(|(at, portal)| portals[..at].contains(portal)) {
            return Err(malformed(text, "it names a portal twice"));
        }
        let lun = unsigned(lun).filter(|&lun| lun <= LUN_MAX);
        let lun = lun.ok_or_else(|| malformed(text, &format!("the LUN must be a number from 0 to {LUN_MAX}")))?;
        let address = RemoteAddress { portals, target, lun };
        Ok(Self { user: user.map(str::to_owned), address })
    }
}

/// Parses the address of one portal; the port defaults to 3260.
fn portal_of(whole: &str, text: &str) -> Result<SocketAddr, Refusal> {
    // Without a port, the brackets of an IPv6 address are optional.
    let bare: Option<IpAddr> = text.trim_start_matches('[').trim_end_matches(']').parse().ok();
    let portal = text.parse().ok().or_else(|| Some(SocketAddr::new(bare?, ISCSI_PORT)));
    portal.ok_or_else(|| malformed(whole, &format!("{} is not an IP address with or without a port", quoted(text))))
}

impl FromStr for RemoteAddress {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let RemoteUrl { user, address } = text.parse()?;
        if user.is_some() { Err(malformed(text, "it must not contain a CHAP name")) } else { Ok(address) }
    }
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        for (at, portal) in self.portals.iter().enumerate() {
            write!(f, "{}{portal}", if at == 0 { "" } else { "," })?;
        }
        write!(f, "/{}/{}", self.target.as_str(), self.lun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_and_written_with_all_ports() {
        let url: RemoteUrl =
            "iscsi://web@10.0.0.1,[fd00::1]:3261/iqn.2026-11.io.blockyard:a/7".parse().expect("an address");
        assert_eq!(url.user.as_deref(), Some("web"));
        let text = url.address.to_string();
        assert_eq!(text, "iscsi://10.0.0.1:3260,[fd00::1]:3261/iqn.2026-11.io.blockyard:a/7");
        assert_eq!(text.parse::<RemoteAddress>().expect("its own form"), url.address);
    }

    #[test]
    fn address_that_cannot_be_used_says_why() {
        for (text, why) in [
            ("http://10.0.0.1/iqn.2026-11.io.blockyard:a/0", "does not begin"),
            ("iscsi://10.0.0.1/iqn.2026-11.io.blockyard:a", "must consist of"),
            ("iscsi://10.0.0.1/iqn.2026-11.io.blockyard:a/0/1", "must consist of"),
            ("iscsi://a:secret@10.0.0.1/iqn.2026-11.io.blockyard:a/0", "must not contain a secret"),
            ("iscsi://@10.0.0.1/iqn.2026-11.io.blockyard:a/0", "empty"),
            ("iscsi://10.0.0.1,10.0.0.1/iqn.2026-11.io.blockyard:a/0", "twice"),
            ("iscsi://host/iqn.2026-11.io.blockyard:a/0", "IP address"),
            ("iscsi://10.0.0.1/iqn.2026-11.io.blockyard:a/16384", "16383"),
            ("iscsi://10.0.0.1/iqn.2026-11.io.blockyard:a/+7", "16383"),
            ("iscsi://10.0.0.1/disk/0", "not an iSCSI name"),
        ] {
            let refusal = text.parse::<RemoteUrl>().expect_err(text);
            assert!(refusal.message.contains(why), "{text}: {refusal}");
        }
    }
}
