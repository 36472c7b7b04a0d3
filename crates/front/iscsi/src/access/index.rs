//! Where in an access table things are, by their names: found once for each table, when somebody asks first.

use model::{Access, Host, Initiators, Iqn, Name, Presentation, Target};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Places in the lists of one [`Access`]; of no other.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    hosts: BTreeMap<Name, usize>,
    /// The first host that names the initiator.
    named: BTreeMap<Iqn, usize>,
    /// Hosts that take any initiator, in their order.
    open: Vec<usize>,
    targets: BTreeMap<Iqn, usize>,
    /// What each host is shown, by targets.
    shown: BTreeMap<Name, BTreeMap<usize, Vec<usize>>>,
}

impl Index {
    pub(super) fn of(access: &Access) -> Self {
        let mut index = Self::default();
        for (at, host) in access.hosts.iter().enumerate() {
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
            let Some(&target) = places.get(&presentation.target) else { continue };
            index.shown.entry(presentation.host.clone()).or_default().entry(target).or_default().push(at);
        }
        index
    }

    pub(super) fn host<'a>(&self, access: &'a Access, name: &Name) -> Option<&'a Host> {
        self.hosts.get(name).map(|&at| &access.hosts[at])
    }

    pub(super) fn host_named<'a>(&self, access: &'a Access, initiator: &Iqn) -> Option<&'a Host> {
        self.named.get(initiator).map(|&at| &access.hosts[at])
    }

    /// A host that names the initiator goes before one that takes any, and keeps it even where it refuses the address.
    pub(super) fn host_of<'a>(&self, access: &'a Access, initiator: &Iqn, address: IpAddr) -> Option<&'a Host> {
        let mut open = self.open.iter().map(|&at| &access.hosts[at]);
        let host = self.host_named(access, initiator).or_else(|| open.find(|host| host.admits(initiator, address)))?;
        host.admits(initiator, address).then_some(host)
    }

    pub(super) fn target<'a>(&self, access: &'a Access, iqn: &Iqn) -> Option<&'a Target> {
        self.targets.get(iqn).map(|&at| &access.targets[at])
    }

    /// In which targets `host` is shown something, in their order.
    pub(super) fn targets_of<'a>(&self, access: &'a Access, host: &Host) -> impl Iterator<Item = &'a Target> {
        self.shown.get(&host.name).into_iter().flatten().map(|(&at, _)| &access.targets[at])
    }

    /// What `host` is shown in `target`, in its order.
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
    use model::Proof;

    #[test]
    fn host_that_names_the_initiator_goes_before_one_that_takes_any() {
        let host = |name: &str, initiators: Initiators, networks: &[&str]| Host {
            name: name.parse().expect("a name"),
            initiators,
            networks: networks.iter().map(|text| text.parse().expect("a network")).collect(),
            proof: Proof::default(),
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
