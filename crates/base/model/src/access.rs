//! Who may see what.

use crate::{AuthPolicy, Balance, Iqn, Name, Network, Portal, PortalGroupPolicy, Proof, VolumeId, VolumeName};
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

impl Access {
    /// The host that names `initiator`, from wherever it comes.
    #[must_use]
    pub fn host_named(&self, initiator: &Iqn) -> Option<&Host> {
        let names = |host: &&Host| matches!(&host.initiators, Initiators::Listed(listed) if listed.contains(initiator));
        self.hosts.iter().find(names)
    }

    /// The host that a login by `initiator` from `address` belongs to. A host that names the initiator
    /// goes before one that takes any, and keeps it even where it refuses the address.
    #[must_use]
    pub fn host_of(&self, initiator: &Iqn, address: IpAddr) -> Option<&Host> {
        let host = self.host_named(initiator).or_else(|| {
            self.hosts.iter().find(|host| host.initiators == Initiators::Any && host.admits(initiator, address))
        })?;
        host.admits(initiator, address).then_some(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, initiators: Initiators, networks: &[&str]) -> Host {
        Host {
            name: name.parse().expect("a name"),
            initiators,
            networks: networks.iter().map(|text| text.parse().expect("a network")).collect(),
            proof: Proof::default(),
        }
    }

    #[test]
    fn access_prefers_the_host_that_names_the_initiator() {
        let listed: Iqn = "iqn.2001-04.com.example:a".parse().expect("a name");
        let other: Iqn = "iqn.2001-04.com.example:b".parse().expect("a name");
        let access = Access {
            hosts: vec![
                host("any", Initiators::Any, &[]),
                host("web", Initiators::Listed(vec![listed.clone()]), &["10.0.0.0/8"]),
            ],
            ..Access::default()
        };
        let name = |initiator: &Iqn, from: &str| {
            access.host_of(initiator, from.parse().expect("an address")).map(|host| host.name.as_str())
        };
        assert_eq!(name(&listed, "10.1.1.1"), Some("web"));
        assert_eq!(name(&listed, "192.168.1.1"), None, "a named initiator from a wrong place is not let in as anybody");
        assert_eq!(name(&other, "192.168.1.1"), Some("any"));
    }
}
