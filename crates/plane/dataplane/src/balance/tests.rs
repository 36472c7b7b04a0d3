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

fn counted(nexus: &NexusName, portal: SocketAddr, bytes: u64) -> Counted {
    Counted { nexus: nexus.clone(), portal, bytes }
}

/// Sends `hosts` initiators with `each` sessions, one after the other; how many come to each portal.
fn share_out(weights: &[u16], hosts: u64, each: u8, by: Balance) -> Vec<usize> {
    let (candidates, mut balancer, mut sessions) = (candidates(weights), Balancer::default(), Vec::new());
    for (host, session) in (0..hosts).flat_map(|host| (0..each).map(move |session| (host, session))) {
        let nexus = nexus(host, session);
        let portal = balancer.choose(&nexus, &candidates, by, &sessions, Time(0)).expect("there are portals");
        // Every second one has not logged in yet when the next comes.
        if host % 2 == 0 {
            assert!(balancer.arrived(&nexus, portal));
            sessions.push(counted(&nexus, portal, 0));
        }
    }
    let promised = balancer.promises.iter().map(|promise| promise.portal);
    let all: Vec<SocketAddr> = sessions.iter().map(|one| one.portal).chain(promised).collect();
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
    // The same session logs in again: it does not stand in its own way.
    let again = balancer.choose(&nexus(1, 1), &candidates, Balance::Sessions, &[], Time(0));
    assert_eq!(again, Some(address(1)));
    let other = NexusName { target: "iqn.u".to_owned(), ..nexus(1, 3) };
    assert_eq!(balancer.choose(&other, &candidates, Balance::Sessions, &[], Time(0)), Some(address(1)));
}

#[test]
fn portal_in_the_initiators_network_goes_before_the_emptier_one() {
    let mut near = candidates(&[1, 1]);
    near[1].is_near = true;
    let there = [counted(&nexus(8, 1), address(2), 0), counted(&nexus(9, 1), address(2), 0)];
    let mut balancer = Balancer::default();
    assert_eq!(balancer.choose(&nexus(1, 1), &near, Balance::Sessions, &there, Time(0)), Some(address(2)));
    assert_eq!(balancer.choose(&nexus(1, 2), &near, Balance::Sessions, &there, Time(0)), Some(address(1)));
}

#[test]
fn busy_portal_is_spared_by_bytes_and_not_by_sessions() {
    let (candidates, mut balancer) = (candidates(&[1, 1]), Balancer::default());
    let at = |bytes| [counted(&nexus(8, 1), address(1), bytes), counted(&nexus(9, 1), address(2), 1000)];
    balancer.look(&candidates, &at(1000), Time(0));
    let later = Time(0) + 2 * WINDOW;
    balancer.look(&candidates, &at(1 << 30), later);
    let choose = |balancer: &mut Balancer, by| {
        let chosen = balancer.choose(&nexus(1, 1), &candidates, by, &at(1 << 30), later);
        balancer.promises.clear();
        chosen
    };
    assert_eq!(choose(&mut balancer, Balance::Bytes), Some(address(2)));
    assert_eq!(choose(&mut balancer, Balance::Sessions), Some(address(1)));
    // Quiet since.
    balancer.look(&candidates, &at(1 << 30), later + WINDOW);
    assert_eq!(choose(&mut balancer, Balance::Bytes), Some(address(1)));
}

#[test]
fn promise_that_is_not_kept_is_forgotten() {
    let (candidates, mut balancer) = (candidates(&[1, 1]), Balancer::default());
    for host in 0..3 {
        balancer.choose(&nexus(host, 1), &candidates, Balance::Sessions, &[], Time(0));
    }
    let later = Time(0) + PROMISE;
    assert_eq!(balancer.choose(&nexus(9, 1), &candidates, Balance::Sessions, &[], later), Some(address(1)));
    assert_eq!(balancer.promises.len(), 1);
    assert!(!balancer.arrived(&nexus(9, 1), address(2)), "it was sent to the other one");
    assert_eq!(balancer.choose(&nexus(9, 1), &[], Balance::Sessions, &[], later), None);
}

#[test]
fn surplus_moves_until_the_parts_are_right_one_session_of_an_initiator_at_a_time() {
    let candidates = candidates(&[1, 1]);
    let sessions: Vec<Counted> = (0..10).map(|host| counted(&nexus(host, 1), address(1), 0)).collect();
    let all: BTreeSet<NexusName> = sessions.iter().map(|one| one.nexus.clone()).collect();
    assert_eq!(surplus(&candidates, &sessions, &all).len(), 5);
    let few: BTreeSet<NexusName> = all.iter().take(2).cloned().collect();
    assert_eq!(surplus(&candidates, &sessions, &few).len(), 2, "only those that were sent there");
    let paths: Vec<Counted> = (0..4).map(|session| counted(&nexus(1, session), address(1), 0)).collect();
    let both = paths.iter().map(|one| one.nexus.clone()).collect();
    assert_eq!(surplus(&candidates, &paths, &both).len(), 1);
    let even = [counted(&nexus(1, 1), address(1), 0), counted(&nexus(2, 1), address(2), 0)];
    assert!(surplus(&candidates, &even, &all).is_empty());
    let odd: Vec<Counted> = sessions[..1].to_vec();
    assert!(surplus(&candidates, &odd, &all).is_empty(), "one session has nowhere better to be");
}
