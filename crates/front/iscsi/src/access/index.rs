//! Lookup index of an access table by name, built once per snapshot at first use.

use model::{Access, Host, Initiators, Iqn, Name, Presentation, Target};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Positions in the lists of one [`Access`]. Not valid for any other one.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Hosts by name.
    hosts: BTreeMap<Name, usize>,
    /// First host that lists the initiator.
    named: BTreeMap<Iqn, usize>,
    /// Hosts that accept any initiator, in the order of the table.
    open: Vec<usize>,
    /// Targets by IQN.
    targets: BTreeMap<Iqn, usize>,
    /// Presentations of each host, by target.
    shown: BTreeMap<Name, BTreeMap<usize, Vec<usize>>>,
}

impl Index {
    pub(super) fn of(access: &Access) -> Self {
        let mut index = Self::default();
        for (at, host) in access.hosts.iter().enumerate() {
            // The first of several entries with one name is found, as in a linear search of the table.
            index.hosts.entry(host.name.clone()).or_insert(at);
            match &host.initiators {
                Initiators::Any => index.open.push(at),
                Initiators::Listed(listed) => listed.iter().for_each(|initiator| {
                    index.named.entry(initiator.clone()).or_insert(at);
                }),
            }
        }
        let mut places = BTreeMap::new();
        for (at, target) in access.targets.iter().enumerate() {
            index.targets.entry(target.iqn.clone()).or_insert(at);
            places.entry(&target.name).or_insert(at);
        }
        for (at, presentation) in access.presentations.iter().enumerate() {
            // A presentation in a target that no longer exists is not accessible.
            let Some(&target) = places.get(&presentation.target) else { continue };
            index.shown.entry(presentation.host.clone()).or_default().entry(target).or_default().push(at);
        }
        index
    }

    pub(super) fn host<'a>(&self, access: &'a Access, name: &Name) -> Option<&'a Host> {
        // The position belongs to this very table: both are in one snapshot.
        self.hosts.get(name).map(|&at| &access.hosts[at])
    }

    pub(super) fn host_named<'a>(&self, access: &'a Access, initiator: &Iqn) -> Option<&'a Host> {
        self.named.get(initiator).map(|&at| &access.hosts[at])
    }

    /// Returns the host of an initiator. A host that lists the initiator takes precedence over one that accepts any,
    /// even if it refuses the address.
    pub(super) fn host_of<'a>(&self, access: &'a Access, initiator: &Iqn, address: IpAddr) -> Option<&'a Host> {
        let mut open = self.open.iter().map(|&at| &access.hosts[at]);
        let host = self.host_named(access, initiator).or_else(|| open.find(|host| host.admits(initiator, address)))?;
        host.admits(initiator, address).then_some(host)
    }

    pub(super) fn target<'a>(&self, access: &'a Access, iqn: &Iqn) -> Option<&'a Target> {
        self.targets.get(iqn).map(|&at| &access.targets[at])
    }

    /// Returns the targets with a presentation for `host`, in the order of the table.
    pub(super) fn targets_of<'a>(&self, access: &'a Access, host: &Host) -> impl Iterator<Item = &'a Target> {
        self.shown.get(&host.name).into_iter().flatten().map(|(&at, _)| &access.targets[at])
    }

    /// Returns the presentations for `host` in `target`, in the order of the table.
    pub(super) fn presentations<'a>(
        &self,
        access: &'a Access,
        target: &Target,
        host: &Host,
    ) -> impl Iterator<Item = &'a Presentation> {
        let at = self.targets.get(&target.iqn);
        let shown = at.and_then(|at| self.shown.get(&host.name)?.get(at));
        shown.into_iter().flatten().map(|&at| &access.presentations[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ChapCredentials;

    #[test]
    fn host_that_names_the_initiator_goes_before_one_that_takes_any() {
        let host = |name: &str, initiators: Initiators, networks: &[&str]| Host {
            name: name.parse().expect("a name"),
            initiators,
            networks: networks.iter().map(|text| text.parse().expect("a network")).collect(),
            chap: ChapCredentials::default(),
        };
        let listed: Iqn = "iqn.2001-04.com.example:a".parse().expect("a name");
        let other: Iqn = "iqn.2001-04.com.example:b".parse().expect("a name");
        let access = Access {
            hosts: vec![
                host("near", Initiators::Any, &["10.0.0.0/8"]),
                host("any", Initiators::Any, &[]),
                host("web", Initiators::Listed(vec![listed.clone()]), &["10.0.0.0/8"]),
            ],
            ..Access::default()
        };
        let index = Index::of(&access);
        let name = |initiator: &Iqn, from: &str| {
            let found = index.host_of(&access, initiator, from.parse().expect("an address"));
            found.map(|host| host.name.as_str())
        };
        assert_eq!(name(&listed, "10.1.1.1"), Some("web"));
        assert_eq!(name(&listed, "192.168.1.1"), None, "a named initiator from a wrong place is not let in as anybody");
        assert_eq!(name(&other, "192.168.1.1"), Some("any"));
        assert_eq!(name(&other, "10.1.1.1"), Some("near"));
    }
}
