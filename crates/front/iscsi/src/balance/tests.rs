use super::*;

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, n, 1], 3260))
}

fn candidates(weights: &[u16]) -> Vec<Candidate> {
    (1..).zip(weights).map(|(n, &weight)| Candidate { address: address(n), weight, is_near: false }).collect()
}

fn nexus(host: u64, session: u8) -> NexusName {
    NexusName { initiator: format!("iqn.h{host}"), isid: [0, 0, 0, 0, 0, session], target: "iqn.t".to_owned() }
}

/// Session: nexus, portal, and bytes transferred.
type Session = (NexusName, SocketAddr, u64);

fn counted(sessions: &[Session]) -> Vec<Counted<'_>> {
    sessions.iter().map(|(nexus, portal, bytes)| Counted { nexus, portal: *portal, bytes: *bytes }).collect()
}

/// Logs in `hosts` initiators with `each` sessions, one after the other. Returns the number of sessions of each portal.
fn share_out(weights: &[u16], hosts: u64, each: u8, by: Balance) -> Vec<usize> {
    let (candidates, mut balancer, mut sessions) = (candidates(weights), Balancer::default(), Vec::<Session>::new());
    for (host, session) in (0..hosts).flat_map(|host| (0..each).map(move |session| (host, session))) {
        let nexus = nexus(host, session);
        let portal = balancer.choose(&nexus, &candidates, by, &counted(&sessions), Time(0)).expect("there are portals");
        // Every second session is still a pending redirection when the next one logs in.
        if host % 2 == 0 {
            assert!(balancer.arrived(&nexus, portal));
            sessions.push((nexus, portal, 0));
        }
    }
    let promised = balancer.redirections.iter().map(|promise| promise.portal);
    let all: Vec<SocketAddr> = sessions.iter().map(|one| one.1).chain(promised).collect();
    candidates.iter().map(|one| all.iter().filter(|&&portal| portal == one.address).count()).collect()
}

#[test]
fn sessions_are_shared_out_by_weight() {
    assert_eq!(share_out(&[1, 1, 1], 30, 1, Balance::Sessions), [10, 10, 10]);
    assert_eq!(share_out(&[3, 1], 40, 1, Balance::Sessions), [30, 10]);
    assert_eq!(share_out(&[1, 1], 10, 2, Balance::Bytes), [10, 10], "nobody has moved a byte");
}

#[test]
fn sessions_of_one_initiator_to_one_target_go_to_different_portals_whatever_the_load() {
    let (candidates, mut balancer) = (candidates(&[1000, 1]), Balancer::default());
    let first = balancer.choose(&nexus(1, 1), &candidates, Balance::Sessions, &[], Time(0));
    let second = balancer.choose(&nexus(1, 2), &candidates, Balance::Sessions, &[], Time(0));
    assert_eq!((first, second), (Some(address(1)), Some(address(2))));
    // A repeated login of the same session does not count against itself.
    let again = balancer.choose(&nexus(1, 1), &candidates, Balance::Sessions, &[], Time(0));
    assert_eq!(again, Some(address(1)));
    let other = NexusName { target: "iqn.u".to_owned(), ..nexus(1, 3) };
    assert_eq!(balancer.choose(&other, &candidates, Balance::Sessions, &[], Time(0)), Some(address(1)));
}

#[test]
fn portal_in_the_initiators_network_goes_before_the_emptier_one() {
    let mut near = candidates(&[1, 1]);
    near[1].is_near = true;
    let there = [(nexus(8, 1), address(2), 0), (nexus(9, 1), address(2), 0)];
    let there = counted(&there);
    let mut balancer = Balancer::default();
    assert_eq!(balancer.choose(&nexus(1, 1), &near, Balance::Sessions, &there, Time(0)), Some(address(2)));
    assert_eq!(balancer.choose(&nexus(1, 2), &near, Balance::Sessions, &there, Time(0)), Some(address(1)));
}

#[test]
fn busy_portal_is_spared_by_bytes_and_not_by_sessions() {
    let (candidates, mut balancer) = (candidates(&[1, 1]), Balancer::default());
    let at = |bytes| [(nexus(8, 1), address(1), bytes), (nexus(9, 1), address(2), 1000)];
    balancer.look(&candidates, &counted(&at(1000)), Time(0));
    let later = Time(0) + 2 * WINDOW;
    balancer.look(&candidates, &counted(&at(1 << 30)), later);
    let choose = |balancer: &mut Balancer, by| {
        let chosen = balancer.choose(&nexus(1, 1), &candidates, by, &counted(&at(1 << 30)), later);
        balancer.redirections.clear();
        chosen
    };
    assert_eq!(choose(&mut balancer, Balance::Bytes), Some(address(2)));
    assert_eq!(choose(&mut balancer, Balance::Sessions), Some(address(1)));
    // No transfers since the previous sample.
    balancer.look(&candidates, &counted(&at(1 << 30)), later + WINDOW);
    assert_eq!(choose(&mut balancer, Balance::Bytes), Some(address(1)));
}

#[test]
fn promise_that_is_not_kept_is_forgotten() {
    let (candidates, mut balancer) = (candidates(&[1, 1]), Balancer::default());
    for host in 0..3 {
        balancer.choose(&nexus(host, 1), &candidates, Balance::Sessions, &[], Time(0));
    }
    let later = Time(0) + REDIRECTION_TIMEOUT;
    assert_eq!(balancer.choose(&nexus(9, 1), &candidates, Balance::Sessions, &[], later), Some(address(1)));
    assert_eq!(balancer.redirections.len(), 1);
    assert!(!balancer.arrived(&nexus(9, 1), address(2)), "it was sent to the other one");
    assert_eq!(balancer.choose(&nexus(9, 1), &[], Balance::Sessions, &[], later), None);
}

#[test]
fn promise_that_is_kept_leaves_the_others_oldest_first() {
    let (candidates, mut balancer) = (candidates(&[1]), Balancer::default());
    for host in 0..4 {
        balancer.choose(&nexus(host, 1), &candidates, Balance::Sessions, &[], Time(host));
    }
    assert!(balancer.arrived(&nexus(0, 1), address(1)));
    let left: Vec<_> = balancer.redirections.iter().map(|promise| promise.nexus.clone()).collect();
    assert_eq!(left, [nexus(1, 1), nexus(2, 1), nexus(3, 1)]);
}

#[test]
fn surplus_moves_until_the_parts_are_right_one_session_of_an_initiator_at_a_time() {
    let candidates = candidates(&[1, 1]);
    let sessions: Vec<Session> = (0..10).map(|host| (nexus(host, 1), address(1), 0)).collect();
    let all: BTreeSet<&NexusName> = sessions.iter().map(|one| &one.0).collect();
    let moved =
        |sessions: &[Session], movable: &BTreeSet<&NexusName>| surplus(&candidates, &counted(sessions), movable).len();
    assert_eq!(moved(&sessions, &all), 5);
    let few: BTreeSet<&NexusName> = all.iter().take(2).copied().collect();
    assert_eq!(moved(&sessions, &few), 2, "only those that were sent there");
    let paths: Vec<Session> = (0..4).map(|session| (nexus(1, session), address(1), 0)).collect();
    assert_eq!(moved(&paths, &paths.iter().map(|one| &one.0).collect()), 1);
    let even = [(nexus(1, 1), address(1), 0), (nexus(2, 1), address(2), 0)];
    assert_eq!(moved(&even, &all), 0);
    assert_eq!(moved(&sessions[..1], &all), 0, "one session has nowhere better to be");
}
