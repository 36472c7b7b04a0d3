//! Access control as the shards apply it: one immutable snapshot, the same on every shard, replaced as a whole.

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

/// Snapshot of the operator's access table and of the home shards of open volumes. Immutable; a change is a new
/// snapshot.
#[derive(Clone, Debug, Default)]
pub struct AccessView {
    /// Access table from the control plane.
    pub access: Access,
    /// Home shard of every open volume.
    pub homes: BTreeMap<VolumeId, usize>,
    /// Volumes of open pools that are out of service.
    pub held: BTreeSet<VolumeId>,
    /// Addresses of this machine, with their link state.
    pub links: Links,
    /// Lookup index, built at first use.
    index: OnceLock<Index>,
}

/// Entry of a LUN map: location of a logical unit, and the access mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LunEntry {
    /// Volume behind the LUN.
    pub unit: VolumeId,
    /// Home shard of the unit.
    pub home: usize,
    /// True when this session has read-only access.
    pub read_only: bool,
    /// True for the stand-in of a volume that is not open.
    pub stand_in: bool,
}

impl LunEntry {
    /// True when both entries are the same unit with the same access mode for the initiator.
    pub fn is_same_unit(&self, other: &Self) -> bool {
        (self.unit, self.read_only) == (other.unit, other.read_only)
    }

    /// True when both entries refer to the same object: same volume, home shard, and unit or stand-in.
    pub fn is_same_place(&self, other: &Self) -> bool {
        (self.unit, self.home, self.stand_in) == (other.unit, other.home, other.stand_in)
    }
}

/// Shard of all stand-in units: the shard of the conductor.
pub const STAND_INS_HOME: usize = 0;

/// Placement of a session by the portal policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Session stays on the portal that was reached.
    Here,
    /// Session is redirected to one of these portals.
    OneOf(Vec<Candidate>),
    /// Session may not stay, and there is no other portal.
    Nowhere,
}

/// LUN map of a session: logical units by LUN.
pub type LunMap = BTreeMap<u16, LunEntry>;

impl AccessView {
    /// Creates a snapshot from the access table, the home shards of volumes and the link state.
    #[must_use]
    pub fn new(access: Access, homes: BTreeMap<VolumeId, usize>, held: BTreeSet<VolumeId>, links: Links) -> Self {
        Self { access, homes, held, links, index: OnceLock::new() }
    }

    /// Returns the reason why the presented volume is not open. `None` when it is open, or when nothing is known of it.
    #[must_use]
    pub fn absence(&self, volume: VolumeId) -> Option<Absence> {
        let absent = self.access.absent.get(&volume).filter(|_| !self.homes.contains_key(&volume))?;
        // An open pool that keeps a volume out of service needs an operator; waiting does not help the host.
        Some(if self.held.contains(&volume) { Absence::NeedsOperator } else { absent.absence })
    }

    /// Returns the host with this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.index().host(&self.access, &name.parse().ok()?)
    }

    /// Returns the host to which `initiator` at `address` belongs, if it may log in at all.
    #[must_use]
    pub fn host_of(&self, initiator: &str, address: IpAddr) -> Option<&Host> {
        let initiator: Iqn = initiator.parse().ok()?;
        // An IPv4 host on a dual-stack socket has a mapped address, while networks are written as IPv4.
        self.index().host_of(&self.access, &initiator, address.to_canonical())
    }

    /// Returns the host that lists `initiator`, from any address.
    #[must_use]
    pub fn host_named(&self, initiator: &str) -> Option<&Host> {
        self.index().host_named(&self.access, &initiator.parse().ok()?)
    }

    /// Returns the target with the name `iqn`.
    #[must_use]
    pub fn target_of(&self, iqn: &str) -> Option<&Target> {
        self.index().target(&self.access, &iqn.parse().ok()?)
    }

    /// Returns the LUN map of `host` in `target` through portals of the group `tag`. A volume that is not open is
    /// represented by its stand-in; a volume of which nothing is known is left out.
    #[must_use]
    pub fn luns(&self, target: &Target, host: &Host, tag: u16) -> LunMap {
        let shown = |presentation: &Presentation| {
            let (unit, read_only) = (presentation.volume_id, presentation.read_only);
            let (home, stand_in) = match self.homes.get(&unit) {
                Some(&home) => (home, false),
                // Nothing is known of the volume, neither a home nor an absence, so its LUN is left out.
                None => self.absence(unit).map(|_| (STAND_INS_HOME, true))?,
            };
            let entry = LunEntry { unit, home, read_only, stand_in };
            Some((presentation.lun, entry))
        };
        self.presentations(target, host).filter(|shown| shown.is_shown_in(tag)).filter_map(shown).collect()
    }

    /// True when at least one volume is mapped for `host` in `target` through portals of the group `tag`, open or not.
    #[must_use]
    pub fn shows(&self, target: &Target, host: &Host, tag: u16) -> bool {
        self.presentations(target, host).any(|presentation| presentation.is_shown_in(tag))
    }

    /// Returns the targets with a mapping for `host`: all that it discovers with SendTargets.
    #[must_use]
    pub fn targets_of(&self, host: &Host) -> Vec<&Target> {
        self.index().targets_of(&self.access, host).collect()
    }

    /// True when `host` discovers `target`, because at least one volume is mapped for it there.
    #[must_use]
    pub fn is_told_of(&self, target: &Target, host: &Host) -> bool {
        self.presentations(target, host).next().is_some()
    }

    /// Returns the target ports through which `volume` is mapped for any host.
    #[must_use]
    pub fn ports_of(&self, volume: VolumeId) -> Vec<scsi::TargetPort> {
        let tags: BTreeSet<u16> = self.access.portals.iter().map(|portal| portal.policy.tag).collect();
        // Every pair of target and portal group is a target port (RFC 7143 §4.1.1), so the product is searched.
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

    /// Returns the target port groups with an ALUA state or a preference.
    #[must_use]
    pub fn port_groups(&self) -> Vec<scsi::PortGroup> {
        let group = |(&id, policy): (&u16, &PortalGroupPolicy)| scsi::PortGroup {
            id,
            state: access_state(policy.access),
            preferred: policy.preferred,
        };
        self.access.portal_groups.iter().map(group).collect()
    }

    /// Returns the policy of the portal that was reached at this local address.
    #[must_use]
    pub fn policy_at(&self, reached: SocketAddr) -> PortalPolicy {
        let reached = canonical(reached);
        let is_it = |portal: &&Portal| canonical(portal.address) == reached;
        let is_wild =
            |portal: &&Portal| portal.address.ip().is_unspecified() && portal.address.port() == reached.port();
        let portals = &self.access.portals;
        // A portal with the exact address takes precedence over one that listens on the wildcard address.
        let found = portals.iter().find(is_it).or_else(|| portals.iter().find(is_wild));
        // A portal that is not in the access table has the default policy.
        found.map(|portal| portal.policy.clone()).unwrap_or_default()
    }

    /// Returns the portals to report to `peer`, which reached us at `reached`: that one first, then all others that it
    /// can reach. If front portals are among them, only those are reported; drained portals are left out, unless all
    /// are drained.
    #[must_use]
    pub fn portals_for(&self, reached: SocketAddr, peer: IpAddr) -> Vec<(SocketAddr, PortalPolicy)> {
        let mut portals = self.reachable(reached, peer);
        // A front portal redirects logins to a data portal, so hosts need to know only the front portals.
        only_fronts(&mut portals);
        if portals.iter().any(|(_, policy)| !policy.drained) {
            portals.retain(|(_, policy)| !policy.drained);
        }
        let reached = canonical(reached);
        // The sorting also makes equal portals adjacent for `dedup`.
        portals.sort_by_key(|(address, _)| (*address != reached, *address));
        portals.dedup();
        portals
    }

    /// Decides on which portal a session of `peer`, which reached us at `reached`, belongs. The portal group never
    /// changes: in another one the session would be another nexus, without the persistent reservations of the first
    /// one.
    #[must_use]
    pub fn place_for(&self, reached: SocketAddr, peer: IpAddr) -> Placement {
        let own = self.policy_at(reached);
        if own.role != PortalRole::Front && !own.drained {
            return Placement::Here;
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
        // Without a data portal, a drained portal hands its sessions to any portal that is not drained.
        let others = if data.is_empty() && own.drained { of(|policy| !policy.drained) } else { data };
        match others.is_empty() {
            false => Placement::OneOf(others),
            true if own.drained => Placement::Nowhere,
            // A front portal without data portals serves its sessions itself.
            true => Placement::Here,
        }
    }

    /// Returns the data portals with a working link, by portal group, independent of a peer.
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

    /// Returns the portals that share the reached address, and those with a working link whose network also contains
    /// the reached address or the peer. For other portals the reachability is unknown, and an unreachable address costs
    /// a host minutes at boot.
    fn reachable(&self, reached: SocketAddr, peer: IpAddr) -> Vec<(SocketAddr, PortalPolicy)> {
        let (reached, peer) = (canonical(reached), peer.to_canonical());
        let mut portals = Vec::new();
        for portal in &self.access.portals {
            let ours = portal.address.ip().to_canonical();
            if ours.is_unspecified() || ours == reached.ip() {
                // A wildcard portal is reachable at the address that the peer has used.
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
        // Built by the first shard that looks something up, and shared by all others with the snapshot.
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

/// Returns the port of the target `iqn` that consists of the portals of the group `tag`.
#[must_use]
pub fn target_port(iqn: &str, tag: u16) -> scsi::TargetPort {
    scsi::TargetPort { target_name: iqn.to_owned(), portal_group_tag: tag, relative_port: tag }
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
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

    /// Snapshot with these portals, each with a link in a network of its own size.
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

    /// Snapshot whose portals have these roles, in order.
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
                Placement::Here => vec!["here".to_owned()],
                Placement::Nowhere => Vec::new(),
                Placement::OneOf(some) => some.iter().map(|one| one.address.to_string()).collect(),
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
                Placement::OneOf(some) => some.iter().map(|one| one.address.ip().to_string()).collect(),
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
            chap: model::ChapCredentials::default(),
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
