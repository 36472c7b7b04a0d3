//! Access control: targets, portals, hosts, and the presentations of volumes to hosts.

use crate::{
    AbsentVolume, AuthPolicy, Balance, ChapCredentials, Iqn, Name, Network, Portal, PortalGroupPolicy, VolumeId,
    VolumeName,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Complete access table: targets, portals, hosts and presentations. Replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Targets of the array.
    pub targets: Vec<Target>,
    /// Portals that accept sessions.
    pub portals: Vec<Portal>,
    /// Settings of portal groups by portal group tag. Groups that are not listed use the defaults.
    pub portal_groups: BTreeMap<u16, PortalGroupPolicy>,
    /// Load balancing of sessions over the data portals.
    pub balance: Balance,
    /// Authentication settings for all logins.
    pub auth: AuthPolicy,
    /// Hosts that may log in. An initiator that no host lists is rejected, unless a host accepts any initiator.
    pub hosts: Vec<Host>,
    /// Presentations of volumes to hosts.
    pub presentations: Vec<Presentation>,
    /// Attributes of presented volumes, used while the volumes are not open.
    pub absent: BTreeMap<VolumeId, AbsentVolume>,
}

/// Reserved name for all hosts, including initiators of no host. No host and no group may have this name.
pub const EVERYONE: &str = "everyone";

/// iSCSI target of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the target within the array.
    pub name: Name,
    /// iSCSI name of the target.
    pub iqn: Iqn,
}

/// Host: one or more initiators that see the same volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name of the host.
    pub name: Name,
    /// Initiators of the host.
    pub initiators: Initiators,
    /// Networks from which the host may log in; empty means any.
    pub networks: Vec<Network>,
    /// CHAP authentication that its logins require.
    pub chap: ChapCredentials,
}

/// Initiators that belong to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initiators {
    /// Any initiator that is not listed for another host.
    Any,
    /// The initiators with these iSCSI names.
    Listed(Vec<Iqn>),
}

/// Presentation of one volume to one host, through one target and under one LUN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presentation {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Identity of the volume: another volume of the same name is not presented instead.
    pub volume_id: VolumeId,
    /// Name of the host.
    pub host: Name,
    /// Name of the target within the array.
    pub target: Name,
    /// Logical unit number.
    pub lun: u16,
    /// Tags of the portal groups through which the volume is visible; empty means all.
    pub groups: Vec<u16>,
    /// True if the host must not write.
    pub read_only: bool,
}

impl Host {
    /// Returns true if a login by `initiator` from `address` belongs to this host.
    #[must_use]
    pub fn admits(&self, initiator: &Iqn, address: IpAddr) -> bool {
        let named = match &self.initiators {
            // The caller looks for a host that lists the initiator first, so this accepts only the remaining ones.
            Initiators::Any => true,
            // `Iqn` holds lower case, so equality is the comparison without regard to case of RFC 7143 §4.2.7.2.
            Initiators::Listed(listed) => listed.contains(initiator),
        };
        // Both conditions: an initiator name is not secret, and anyone could claim it from another network.
        named && (self.networks.is_empty() || self.networks.iter().any(|network| network.contains(address)))
    }
}

/// Returns true if a presentation that is limited to the portal groups `groups` (all if empty) is visible through the
/// portal group `tag`.
#[must_use]
pub fn is_shown_in(groups: &[u16], tag: u16) -> bool {
    // Empty means all, so that a portal group that is added later shows the volume, too.
    groups.is_empty() || groups.contains(&tag)
}

impl Presentation {
    /// Returns true if sessions through portals of the group `tag` see the volume.
    #[must_use]
    pub fn is_shown_in(&self, tag: u16) -> bool {
        is_shown_in(&self.groups, tag)
    }
}
