//! Who may see what, as the shards use it: one snapshot, the same on every shard, replaced whole.

mod index;

use crate::balance::Candidate;
use crate::links::Links;
use index::Index;
use model::{
    Absence, Access, GroupAccess, Host, Iqn, Portal, PortalGroupPolicy, PortalPolicy, PortalRole, Presentation, Target,
    VolumeId, only_fronts,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

/// The operator's access table, and where each open volume has its home. Never changed, but replaced whole.
#[derive(Clone, Debug, Default)]
pub struct AccessView {
    /// What control said.
    pub access: Access,
    /// The home shard of every open volume.
    pub homes: BTreeMap<VolumeId, usize>,
    /// Volumes of open pools that do not serve.
    pub held: BTreeSet<VolumeId>,
    /// This machine's addresses, and their links.
    pub links: Links,
    index: OnceLock<Index>,
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
    /// True for the stand-in of a volume that is not open.
    pub stand_in: bool,
}

impl LunEntry {
    /// True when both are one unit, which the same initiator may use in the same way.
    pub fn is_same_unit(&self, other: &Self) -> bool {
        (self.unit, self.read_only) == (other.unit, other.read_only)
    }

    /// True when what serves one serves the other.
    pub fn is_same_place(&self, other: &Self) -> bool {
        (self.unit, self.home, self.stand_in) == (other.unit, other.home, other.stand_in)
    }
}

/// The shard on which the stand-ins of volumes are that are not open: that of the conductor.
pub const STAND_INS_HOME: usize = 0;

/// Where a session belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It stays.
    Here,
    /// It is sent to one of these.
    OneOf(Vec<Candidate>),
    /// It may not stay, and there is no other portal.
    Nowhere,
}

/// The logical units that one session sees, by number.
pub type LunMap = BTreeMap<u16, LunEntry>;

impl AccessView {
    /// The table, with where volumes and networks are.
    #[must_use]
    pub fn new(access: Access, homes: BTreeMap<VolumeId, usize>, held: BTreeSet<VolumeId>, links: Links) -> Self {
        Self { access, homes, held, links, index: OnceLock::new() }
    }

    /// Why the presented volume has no device, where it is not open; nothing of one that is open or of which nothing is known.
    #[must_use]
    pub fn absence(&self, volume: VolumeId) -> Option<Absence> {
        let absent = self.access.absent.get(&volume).filter(|_| !self.homes.contains_key(&volume))?;
        Some(if self.held.contains(&volume) { Absence::NeedsOperator } else { absent.absence })
    }

    /// The host of this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.index().host(&self.access, &name.parse().ok()?)
    }

    /// The host that `initiator` from `address` is, if it may log in at all.
    #[must_use]
    pub fn host_of(&self, initiator: &str, address: IpAddr) -> Option<&Host> {
        let initiator: Iqn = initiator.parse().ok()?;
        self.index().host_of(&self.access, &initiator, address.to_canonical())
    }

    /// The host that names `initiator`, from wherever it comes.
    #[must_use]
    pub fn host_named(&self, initiator: &str) -> Option<&Host> {
        self.index().host_named(&self.access, &initiator.parse().ok()?)
    }

    /// The target named `iqn`.
    #[must_use]
    pub fn target_of(&self, iqn: &str) -> Option<&Target> {
        self.index().target(&self.access, &iqn.parse().ok()?)
    }

    /// What `host` sees in `target` through portals of the group `tag`. A volume that is not open is seen by its stand-in; a
    /// presentation of one of which nothing is known shows nothing.
    #[must_use]
    pub fn luns(&self, target: &Target, host: &Host, tag: u16) -> LunMap {
        let shown = |presentation: &Presentation| {
            let (unit, read_only) = (presentation.volume_id, presentation.read_only);
            let (home, stand_in) = match self.homes.get(&unit) {
                Some(&home) => (home, false),
                None => self.absence(unit).map(|_| (STAND_INS_HOME, true))?,
            };
            let entry = LunEntry { unit, home, read_only, stand_in };
            Some((presentation.lun, entry))
        };
        self.presentations(target, host).filter(|shown| shown.is_shown_in(tag)).filter_map(shown).collect()
    }

    /// True when `host` is shown something in `target` through portals of the group `tag`, open or not.
    #[must_use]
    pub fn shows(&self, target: &Target, host: &Host, tag: u16) -> bool {
        self.presentations(target, host).any(|presentation| presentation.is_shown_in(tag))
    }

    /// The targets in which `host` is shown something: all that it hears of in discovery.
    #[must_use]
    pub fn targets_of(&self, host: &Host) -> Vec<&Target> {
        self.index().targets_of(&self.access, host).collect()
    }

    /// True when `host` hears of `target` in discovery.
    #[must_use]
    pub fn is_told_of(&self, target: &Target, host: &Host) -> bool {
        self.presentations(target, host).next().is_some()
    }

    /// The target ports through which `volume` is shown to somebody.
    #[must_use]
    pub fn ports_of(&self, volume: VolumeId) -> Vec<scsi::TargetPort> {
        let tags: BTreeSet<u16> = self.access.portals.iter().map(|portal| portal.policy.tag).collect();
        let shown: Vec<&Presentation> =
            self.access.presentations.iter().filter(|shown| shown.volume_id == volume).collect();
        let is_port = |target: &Target, tag: u16| {
            shown.iter().any(|presentation| presentation.target == target.name && presentation.is_shown_in(tag))
        };
        let ports = self.access.targets.iter().flat_map(|target| tags.iter().map(move |&tag| (target, tag)));
        ports
            .filter(|&(target, tag)| is_port(target, tag))
            .map(|(target, tag)| target_port(target.iqn.as_str(), tag))
            .collect()
    }

    /// The target port groups for which something is set.
    #[must_use]
    pub fn port_groups(&self) -> Vec<scsi::PortGroup> {
        let group = |(&id, policy): (&u16, &PortalGroupPolicy)| scsi::PortGroup {
            id,
            state: access_state(policy.access),
            preferred: policy.preferred,
        };
        self.access.portal_groups.iter().map(group).collect()
    }

    /// What is set for the portal that was reached at this address of ours.
    #[must_use]
    pub fn policy_at(&self, reached: SocketAddr) -> PortalPolicy {
        let reached = canonical(reached);
        let is_it = |portal: &&Portal| canonical(portal.address) == reached;
        let is_wild =
            |portal: &&Portal| portal.address.ip().is_unspecified() && portal.address.port() == reached.port();
        let portals = &self.access.portals;
        let found = portals.iter().find(is_it).or_else(|| portals.iter().find(is_wild));
        found.map(|portal| portal.policy.clone()).unwrap_or_default()
    }

    /// The portals that `peer`, which reached us at `reached`, is told of: that one first, and every other
    /// that it can reach. Where a front portal is among them, only those; none that is drained, unless all are.
    #[must_use]
    pub fn portals_for(&self, reached: SocketAddr, peer: IpAddr) -> Vec<(SocketAddr, PortalPolicy)> {
        let mut portals = self.reachable(reached, peer);
        only_fronts(&mut portals);
        if portals.iter().any(|(_, policy)| !policy.drained) {
            portals.retain(|(_, policy)| !policy.drained);
        }
        let reached = canonical(reached);
        portals.sort_by_key(|(address, _)| (*address != reached, *address));
        portals.dedup();
        portals
    }

    /// Where a session of `peer`, which reached us at `reached`, belongs. It stays in its portal group: in another one it would
    /// be another nexus, without what the first one has registered.
    #[must_use]
    pub fn place_for(&self, reached: SocketAddr, peer: IpAddr) -> Place {
        let own = self.policy_at(reached);
        if own.role != PortalRole::Front && !own.drained {
            return Place::Here;
        }
        let portals = self.reachable(reached, peer);
        let near = |ours: IpAddr| self.links.are_near(ours, peer);
        let of = |takes: fn(&PortalPolicy) -> bool| -> Vec<Candidate> {
            let fits = |policy: &PortalPolicy| policy.tag == own.tag && takes(policy);
            let some = portals.iter().filter(|(address, policy)| fits(policy) && *address != canonical(reached));
            some.map(|(address, policy)| Candidate {
                address: *address,
                weight: policy.weight,
                is_near: near(address.ip()),
            })
            .collect()
        };
        let data = of(PortalPolicy::takes_sessions);
        let others = if data.is_empty() && own.drained { of(|policy| !policy.drained) } else { data };
        match others.is_empty() {
            false => Place::OneOf(others),
            true if own.drained => Place::Nowhere,
            true => Place::Here,
        }
    }

    /// The portals that sessions are sent to and that have a link, for any peer, by their groups.
    #[must_use]
    pub fn data_portals(&self) -> BTreeMap<u16, Vec<Candidate>> {
        let mut groups: BTreeMap<u16, Vec<Candidate>> = BTreeMap::new();
        for portal in self.access.portals.iter().filter(|portal| portal.policy.takes_sessions()) {
            if self.links.missing_at(portal.address.ip()).is_some() {
                continue;
            }
            let (address, weight) = (canonical(portal.address), portal.policy.weight);
            groups.entry(portal.policy.tag).or_default().push(Candidate { address, weight, is_near: false });
        }
        groups
    }

    /// The portals that share the reached address, or whose network also holds it or the peer's own, and that have a link. Of
    /// another one we cannot tell: a dead address costs a host minutes at boot.
    fn reachable(&self, reached: SocketAddr, peer: IpAddr) -> Vec<(SocketAddr, PortalPolicy)> {
        let (reached, peer) = (canonical(reached), peer.to_canonical());
        let mut portals = Vec::new();
        for portal in &self.access.portals {
            let ours = portal.address.ip().to_canonical();
            if ours.is_unspecified() || ours == reached.ip() {
                portals.push((SocketAddr::new(reached.ip(), portal.address.port()), portal.policy.clone()));
            } else if self.links.missing_at(ours).is_none()
                && (self.links.are_near(ours, reached.ip()) || self.links.are_near(ours, peer))
            {
                portals.push((portal.address, portal.policy.clone()));
            }
        }
        portals
    }

    fn presentations<'a>(&'a self, target: &'a Target, host: &'a Host) -> impl Iterator<Item = &'a Presentation> {
        self.index().presentations(&self.access, target, host)
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(&self.access))
    }
}

fn access_state(access: GroupAccess) -> scsi::AccessState {
    match access {
        GroupAccess::Optimized => scsi::AccessState::ActiveOptimized,
        GroupAccess::NonOptimized => scsi::AccessState::ActiveNonOptimized,
        GroupAccess::Standby => scsi::AccessState::Standby,
        GroupAccess::Unavailable => scsi::AccessState::Unavailable,
        GroupAccess::Offline => scsi::AccessState::Offline,
    }
}

/// The port of the target named `iqn` that the portals of the group `tag` are.
#[must_use]
pub fn target_port(iqn: &str, tag: u16) -> scsi::TargetPort {
    scsi::TargetPort { target_name: iqn.to_owned(), portal_group_tag: tag, relative_port: tag }
}

/// An IPv4 address inside IPv6 counts as IPv4.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Initiators, LocalAddress, VolumeName};

    fn portal(address: &str) -> Portal {
        Portal { address: address.parse().expect("an address"), policy: PortalPolicy::default() }
    }

    /// These portals, each with a link in a network of its own size.
    fn view(portals: &[&str]) -> AccessView {
        let portals: Vec<Portal> = portals.iter().map(|text| portal(text)).collect();
        let local = |portal: &Portal| LocalAddress {
            address: portal.address.ip(),
            prefix: if portal.address.is_ipv4() { 24 } else { 64 },
            interface: "eth0".to_owned(),
            is_up: true,
            mtu_bytes: 1500,
        };
        let links = Links(portals.iter().map(local).collect());
        AccessView { access: Access { portals, ..Access::default() }, links, ..AccessView::default() }
    }

    fn named(view: &AccessView, reached: &str, peer: &str) -> Vec<String> {
        let portals = view.portals_for(reached.parse().expect("an address"), peer.parse().expect("an address"));
        portals.into_iter().map(|(address, _)| address.to_string()).collect()
    }

    #[test]
    fn portals_that_the_asker_cannot_reach_are_not_named() {
        let portals = ["127.0.0.1:3260", "10.0.0.1:3260", "10.0.0.2:3260", "10.0.1.1:3260", "[fd00::1]:3260"];
        let view = view(&portals);
        assert_eq!(named(&view, "10.0.0.2:3260", "10.0.0.9"), ["10.0.0.2:3260", "10.0.0.1:3260"]);
        assert_eq!(named(&view, "10.0.0.1:3260", "10.0.1.9"), ["10.0.0.1:3260", "10.0.0.2:3260", "10.0.1.1:3260"]);
        assert_eq!(named(&view, "10.0.1.1:3260", "172.16.0.1"), ["10.0.1.1:3260"], "routed from afar");
        assert_eq!(named(&view, "127.0.0.1:3260", "127.0.0.1"), ["127.0.0.1:3260"]);
        assert_eq!(named(&view, "[fd00::1]:3260", "fd00::9"), ["[fd00::1]:3260"]);
    }

    #[test]
    fn wildcard_portal_is_named_by_the_address_that_was_reached() {
        let view = view(&["0.0.0.0:3261", "0.0.0.0:3260"]);
        assert_eq!(named(&view, "10.1.2.3:3261", "10.9.9.9"), ["10.1.2.3:3261", "10.1.2.3:3260"]);
        assert_eq!(named(&view, "[::ffff:10.1.2.3]:3260", "10.9.9.9"), ["10.1.2.3:3260", "10.1.2.3:3261"]);
    }

    /// The view with these roles, in the order of its portals.
    fn with_roles(mut view: AccessView, roles: &[(PortalRole, bool)]) -> AccessView {
        for (portal, &(role, drained)) in view.access.portals.iter_mut().zip(roles) {
            portal.policy = PortalPolicy { role, drained, ..PortalPolicy::default() };
        }
        view
    }

    #[test]
    fn session_stays_unless_its_portal_is_a_front_or_drained() {
        use PortalRole::{Data, Front, Plain};
        let portals = ["10.0.0.1:3260", "10.0.0.2:3260", "10.0.1.1:3260"];
        let place = |roles: &[(PortalRole, bool)], reached: &str, peer: &str| {
            let view = with_roles(view(&portals), roles);
            match view.place_for(reached.parse().expect("an address"), peer.parse().expect("an address")) {
                Place::Here => vec!["here".to_owned()],
                Place::Nowhere => Vec::new(),
                Place::OneOf(some) => some.iter().map(|one| one.address.to_string()).collect(),
            }
        };
        let fronted = [(Front, false), (Data, false), (Data, false)];
        assert_eq!(place(&fronted, "10.0.0.1:3260", "10.0.0.9"), ["10.0.0.2:3260"]);
        assert_eq!(place(&fronted, "10.0.0.1:3260", "10.0.1.9"), ["10.0.0.2:3260", "10.0.1.1:3260"]);
        assert_eq!(place(&fronted, "10.0.0.2:3260", "10.0.0.9"), ["here"]);
        let drained = [(Front, false), (Data, true), (Data, false)];
        assert_eq!(place(&drained, "10.0.0.2:3260", "10.0.1.9"), ["10.0.1.1:3260"]);
        assert_eq!(
            place(&drained, "10.0.0.1:3260", "10.0.0.9"),
            ["here"],
            "a front without data portals serves itself"
        );
        let plain = [(Plain, true), (Plain, false), (Plain, false)];
        assert_eq!(place(&plain, "10.0.0.1:3260", "10.0.0.9"), ["10.0.0.2:3260"]);
        assert!(place(&[(Plain, true); 3], "10.0.0.1:3260", "10.0.0.9").is_empty());
    }

    #[test]
    fn front_portal_is_all_that_hosts_are_told_of() {
        use PortalRole::{Data, Front};
        let view = view(&["10.0.0.1:3260", "10.0.0.2:3260", "10.0.1.1:3260"]);
        let fronted = with_roles(view.clone(), &[(Front, false), (Data, false), (Data, false)]);
        assert_eq!(named(&fronted, "10.0.0.2:3260", "10.0.0.9"), ["10.0.0.1:3260"]);
        assert_eq!(named(&fronted, "10.0.1.1:3260", "10.0.1.9"), ["10.0.1.1:3260"], "it cannot reach the front");
        let drained = with_roles(view, &[(Data, true), (Data, false), (Data, false)]);
        assert_eq!(named(&drained, "10.0.0.1:3260", "10.0.0.9"), ["10.0.0.2:3260"]);
    }

    #[test]
    fn portal_without_a_link_is_told_to_nobody_and_takes_no_session() {
        use PortalRole::{Data, Front};
        let roles = [(Front, false), (Data, false), (Data, false)];
        let whole = with_roles(view(&["10.0.0.1:3260", "10.0.0.2:3260", "10.0.0.3:3260"]), &roles);
        let sent =
            |view: &AccessView| match view.place_for("10.0.0.1:3260".parse().unwrap(), "10.0.0.9".parse().unwrap()) {
                Place::OneOf(some) => some.iter().map(|one| one.address.ip().to_string()).collect(),
                _ => Vec::new(),
            };
        let ends = |view: &AccessView| view.data_portals().into_values().flatten().count();
        assert_eq!((sent(&whole), ends(&whole)), (vec!["10.0.0.2".to_owned(), "10.0.0.3".to_owned()], 2));
        let mut down = whole.clone();
        down.links.0[1].is_up = false;
        assert_eq!((sent(&down), ends(&down)), (vec!["10.0.0.3".to_owned()], 1));
        let mut gone = down.clone();
        gone.links.0.remove(2);
        assert_eq!((sent(&gone), ends(&gone)), (vec![], 0), "the front serves");
        let mut dark = whole;
        dark.links.0[0].is_up = false;
        assert_eq!(named(&dark, "10.0.0.2:3260", "10.0.0.9"), ["10.0.0.2:3260", "10.0.0.3:3260"], "without its front");
        dark.links.0.clear();
        assert_eq!(named(&dark, "10.0.0.1:3260", "10.0.0.9"), ["10.0.0.1:3260"], "where nobody knows, it is believed");
    }

    #[test]
    fn ports_of_a_volume_are_those_of_every_target_and_group_that_shows_it() {
        let volume = |number| VolumeId::from_bytes([number; 16]);
        let target = |name: &str| Target {
            name: name.parse().expect("a name"),
            iqn: format!("iqn.2026-11.io.blockyard:{name}").parse().expect("an iqn"),
        };
        let show = |number, host: &str, target: &str, groups: &[u16]| Presentation {
            volume: VolumeName::bare(format!("v{number}").parse().expect("a name")),
            volume_id: volume(number),
            host: host.parse().expect("a name"),
            target: target.parse().expect("a name"),
            lun: 0,
            groups: groups.to_vec(),
            read_only: false,
        };
        let in_group =
            |address: &str, tag| Portal { policy: PortalPolicy { tag, ..PortalPolicy::default() }, ..portal(address) };
        let access = Access {
            portals: vec![in_group("10.0.0.1:3260", 1), in_group("10.0.0.2:3260", 1), in_group("10.0.0.3:3260", 2)],
            targets: vec![target("t"), target("u"), target("v")],
            presentations: vec![
                show(1, "a", "t", &[]),
                show(1, "b", "t", &[1]),
                show(1, "a", "u", &[2, 3]),
                show(2, "a", "v", &[]),
            ],
            ..Access::default()
        };
        let view = AccessView { access, ..AccessView::default() };
        let ports = view.ports_of(volume(1)).into_iter().map(|port| (port.target_name, port.portal_group_tag));
        let [t, u] = ["t", "u"].map(|name| format!("iqn.2026-11.io.blockyard:{name}"));
        assert_eq!(ports.collect::<Vec<_>>(), [(t.clone(), 1), (t, 2), (u, 2)]);
    }

    #[test]
    fn luns_show_only_this_hosts_open_volumes_in_this_target() {
        let id = |n| VolumeId::from_bytes([n; 16]);
        let host = |name: &str| Host {
            name: name.parse().expect("a name"),
            initiators: Initiators::Any,
            networks: Vec::new(),
            proof: model::Proof::default(),
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
            groups: if lun == 3 { vec![2] } else { Vec::new() },
            read_only: false,
        };
        let presentations = vec![
            show(1, "a", "t", 0),
            show(2, "a", "u", 1),
            show(3, "b", "t", 2),
            show(4, "a", "t", 3),
            show(5, "a", "t", 4),
        ];
        let access = Access { targets: vec![target("t"), target("u")], presentations, ..Access::default() };
        let homes = [(id(1), 0), (id(2), 0), (id(3), 1), (id(4), 1)].into();
        let view = AccessView { access, homes, ..AccessView::default() };
        let numbers = |tag| view.luns(&target("t"), &host("a"), tag).into_keys().collect::<Vec<_>>();
        assert_eq!(
            (numbers(1), numbers(2)),
            (vec![0], vec![0, 3]),
            "one is shown in group 2 only, another is not open"
        );
        assert_eq!(view.targets_of(&host("b")), [&target("t")]);
        assert_eq!(view.target_of("IQN.2026-11.io.blockyard:T"), Some(&target("t")));
        assert_eq!(view.target_of("iqn.2026-11.io.blockyard:x"), None);
    }
}
