//! Who may see what.

use crate::{
    AbsentVolume, AuthPolicy, Balance, Iqn, Name, Network, Portal, PortalGroupPolicy, Proof, VolumeId, VolumeName,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Everything that decides who may see which volume: one snapshot, replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The targets that we serve.
    pub targets: Vec<Target>,
    /// The portals that hosts log in at.
    pub portals: Vec<Portal>,
    /// What is set for portal groups, by their tags; of the others nothing is.
    pub portal_groups: BTreeMap<u16, PortalGroupPolicy>,
    /// How sessions are shared out over data portals.
    pub balance: Balance,
    /// What holds for all logins.
    pub auth: AuthPolicy,
    /// Who may log in. An initiator that no host names may not, unless a host takes any.
    pub hosts: Vec<Host>,
    /// Which host sees which volume, where.
    pub presentations: Vec<Presentation>,
    /// What hosts are told of presented volumes while these are not open.
    pub absent: BTreeMap<VolumeId, AbsentVolume>,
}

/// The name that stands for every host and for whoever is none. No host and no group is called so.
pub const EVERYONE: &str = "everyone";

/// A target that hosts log in to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name among ours.
    pub name: Name,
    /// Its iSCSI name.
    pub iqn: Iqn,
}

/// A host: one or more initiators that see the same volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: Name,
    /// Its initiators.
    pub initiators: Initiators,
    /// Where it may come from; anywhere when empty.
    pub networks: Vec<Network>,
    /// What both sides prove before it is let in.
    pub proof: Proof,
}

/// Which initiators are a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initiators {
    /// Every initiator that no other host names.
    Any,
    /// These.
    Listed(Vec<Iqn>),
}

/// One volume, seen by one host through one target under one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presentation {
    /// The volume.
    pub volume: VolumeName,
    /// Its identity: another volume of the same name is not shown instead.
    pub volume_id: VolumeId,
    /// The host.
    pub host: Name,
    /// The target, by its name among ours.
    pub target: Name,
    /// The logical unit number.
    pub lun: u16,
    /// Through portals of which groups, by their tags; through all when empty.
    pub groups: Vec<u16>,
    /// True when the host may not write.
    pub read_only: bool,
}

impl Host {
    /// True when a login by `initiator` from `address` is a login of this host.
    #[must_use]
    pub fn admits(&self, initiator: &Iqn, address: IpAddr) -> bool {
        let named = match &self.initiators {
            Initiators::Any => true,
            Initiators::Listed(listed) => listed.contains(initiator),
        };
        named && (self.networks.is_empty() || self.networks.iter().any(|network| network.contains(address)))
    }
}

/// True when what is presented through portals of these groups, or of all when there are none, is so through one of `tag`.
#[must_use]
pub fn is_shown_in(groups: &[u16], tag: u16) -> bool {
    groups.is_empty() || groups.contains(&tag)
}

impl Presentation {
    /// True when sessions that came in through a portal of the group see it.
    #[must_use]
    pub fn is_shown_in(&self, tag: u16) -> bool {
        is_shown_in(&self.groups, tag)
    }
}
