//! Who may see what, as the shards use it: one snapshot, the same on every shard, replaced whole.

use model::{Access, Host, Iqn, Network, Presentation, Target, VolumeId};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The operator's access table, and where each open volume has its home.
#[derive(Clone, Debug, Default)]
pub struct AccessView {
    /// What control said.
    pub access: Access,
    /// The home shard of every open volume.
    pub homes: BTreeMap<VolumeId, usize>,
    /// The networks that this machine's addresses are in.
    pub networks: Vec<Network>,
}

/// Where a logical unit of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LunEntry {
    /// The unit.
    pub unit: VolumeId,
    /// The shard that may touch it.
    pub home: usize,
    /// True when this session may not write it.
    pub read_only: bool,
}

/// The logical units that one session sees, by number.
pub type LunMap = BTreeMap<u16, LunEntry>;

impl AccessView {
    /// The host that `initiator` from `address` is, if it may log in at all.
    #[must_use]
    pub fn host_of(&self, initiator: &str, address: IpAddr) -> Option<&Host> {
        let initiator: Iqn = initiator.parse().ok()?;
        self.access.host_of(&initiator, address.to_canonical())
    }

    /// The target named `iqn`.
    #[must_use]
    pub fn target_of(&self, iqn: &str) -> Option<&Target> {
        let iqn: Iqn = iqn.parse().ok()?;
        self.access.targets.iter().find(|target| target.iqn == iqn)
    }

    /// What `host` sees in `target`. A presentation whose volume is not open shows nothing.
    #[must_use]
    pub fn luns(&self, target: &Target, host: &Host) -> LunMap {
        let shown = |presentation: &Presentation| {
            let &home = self.homes.get(&presentation.volume_id)?;
            let entry = LunEntry { unit: presentation.volume_id, home, read_only: presentation.read_only };
            Some((presentation.lun, entry))
        };
        self.presentations(target, host).filter_map(shown).collect()
    }

    /// The targets in which `host` is shown something: all that it hears of in discovery.
    #[must_use]
    pub fn targets_of(&self, host: &Host) -> Vec<&Target> {
        let shown = |target: &&Target| self.presentations(target, host).next().is_some();
        self.access.targets.iter().filter(shown).collect()
    }

    /// The portals that `peer`, which reached us at `reached`, can reach: that one first, and every other
    /// that shares its address, or whose network also holds the reached address or the peer's own. A
    /// portal of which we cannot tell is not named: a dead address costs a host minutes at boot.
    #[must_use]
    pub fn portals_for(&self, reached: SocketAddr, peer: IpAddr) -> Vec<(SocketAddr, u16)> {
        let reached = SocketAddr::new(reached.ip().to_canonical(), reached.port());
        let peer = peer.to_canonical();
        let mut portals: Vec<(SocketAddr, u16)> = Vec::new();
        for portal in &self.access.portals {
            let ours = portal.address.ip().to_canonical();
            if ours.is_unspecified() || ours == reached.ip() {
                portals.push((SocketAddr::new(reached.ip(), portal.address.port()), portal.tag));
            } else if self
                .networks
                .iter()
                .any(|network| network.contains(ours) && (network.contains(reached.ip()) || network.contains(peer)))
            {
                portals.push((portal.address, portal.tag));
            }
        }
        portals.sort_by_key(|&(address, _)| (address != reached, address));
        portals.dedup();
        portals
    }

    fn presentations<'a>(&'a self, target: &'a Target, host: &'a Host) -> impl Iterator<Item = &'a Presentation> {
        self.access
            .presentations
            .iter()
            .filter(|presentation| presentation.target == target.name && presentation.host == host.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Initiators, Portal, VolumeName};

    fn portal(address: &str) -> Portal {
        Portal { address: address.parse().expect("an address"), tag: 1 }
    }

    fn view(portals: &[&str], networks: &[&str]) -> AccessView {
        let access = Access { portals: portals.iter().map(|text| portal(text)).collect(), ..Access::default() };
        let networks = networks.iter().map(|text| text.parse().expect("a network")).collect();
        AccessView { access, networks, ..AccessView::default() }
    }

    fn named(view: &AccessView, reached: &str, peer: &str) -> Vec<String> {
        let portals = view.portals_for(reached.parse().expect("an address"), peer.parse().expect("an address"));
        portals.into_iter().map(|(address, _)| address.to_string()).collect()
    }

    #[test]
    fn portals_that_the_asker_cannot_reach_are_not_named() {
        let portals = ["127.0.0.1:3260", "10.0.0.1:3260", "10.0.0.2:3260", "10.0.1.1:3260", "[fd00::1]:3260"];
        let view = view(&portals, &["127.0.0.0/8", "10.0.0.0/24", "10.0.1.0/24", "fd00::/64"]);
        assert_eq!(named(&view, "10.0.0.2:3260", "10.0.0.9"), ["10.0.0.2:3260", "10.0.0.1:3260"]);
        assert_eq!(named(&view, "10.0.0.1:3260", "10.0.1.9"), ["10.0.0.1:3260", "10.0.0.2:3260", "10.0.1.1:3260"]);
        assert_eq!(named(&view, "10.0.1.1:3260", "172.16.0.1"), ["10.0.1.1:3260"], "routed from afar");
        assert_eq!(named(&view, "127.0.0.1:3260", "127.0.0.1"), ["127.0.0.1:3260"]);
        assert_eq!(named(&view, "[fd00::1]:3260", "fd00::9"), ["[fd00::1]:3260"]);
    }

    #[test]
    fn wildcard_portal_is_named_by_the_address_that_was_reached() {
        let view = view(&["0.0.0.0:3261", "0.0.0.0:3260"], &[]);
        assert_eq!(named(&view, "10.1.2.3:3261", "10.9.9.9"), ["10.1.2.3:3261", "10.1.2.3:3260"]);
        assert_eq!(named(&view, "[::ffff:10.1.2.3]:3260", "10.9.9.9"), ["10.1.2.3:3260", "10.1.2.3:3261"]);
    }

    #[test]
    fn luns_show_only_this_hosts_open_volumes_in_this_target() {
        let id = |n| VolumeId::from_bytes([n; 16]);
        let host = |name: &str| Host {
            name: name.parse().expect("a name"),
            initiators: Initiators::Any,
            networks: Vec::new(),
            chap: None,
            mutual_chap: None,
        };
        let target = |name: &str| Target {
            name: name.parse().expect("a name"),
            iqn: format!("iqn.2026-11.io.blockyard:{name}").parse().expect("an iqn"),
        };
        let show = |n, host: &str, target: &str, lun| Presentation {
            volume: VolumeName::bare(format!("v{n}").parse().expect("a name")),
            volume_id: id(n),
            host: host.parse().expect("a name"),
            target: target.parse().expect("a name"),
            lun,
            read_only: false,
        };
        let presentations =
            vec![show(1, "a", "t", 0), show(2, "a", "u", 1), show(3, "b", "t", 2), show(4, "a", "t", 3)];
        let access = Access { targets: vec![target("t"), target("u")], presentations, ..Access::default() };
        let view = AccessView { access, homes: [(id(1), 0), (id(2), 0), (id(3), 1)].into(), ..AccessView::default() };
        assert_eq!(view.luns(&target("t"), &host("a")).keys().copied().collect::<Vec<_>>(), [0]);
        assert_eq!(view.targets_of(&host("b")), [&target("t")]);
        assert_eq!(view.target_of("IQN.2026-11.io.blockyard:T"), Some(&target("t")));
        assert_eq!(view.target_of("iqn.2026-11.io.blockyard:x"), None);
    }
}
