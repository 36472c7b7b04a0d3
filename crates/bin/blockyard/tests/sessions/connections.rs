//! Several connections of one session, served by the complete data plane.

use crate::array::{OPEN, portal};
use crate::host::{Host, Login};
use crate::node::furnished;
use crate::{play, sessions_of};
use control::request::{NewPortal, Removal};
use iscsi::initiator::Event;
use iscsi::pdu::AsyncEvent;
use iscsi::{CloseReason, LoginStatus};
use model::{ConnectionState, PortalAddress, code, event};
use shard::World;
use sim::Sim;
use std::net::SocketAddr;
use std::time::Duration;

fn refused(met: Result<Host, Event>) -> LoginStatus {
    match met {
        Err(Event::Closed(CloseReason::LoginRefused(status))) => status,
        Err(other) => panic!("the login came to {other:?}"),
        Ok(_) => panic!("the connection was taken in"),
    }
}

#[test]
fn connection_that_joins_is_the_same_nexus_and_carries_on_when_the_first_is_lost() {
    play(1, async |sim, array| {
        let login = Login::of(OPEN, 1);
        let mut first = Host::login(sim, &login).await;
        first.take_attention().await;
        first.write(3, 0x5a).await;
        let mut second = first.another(&login, 1, 3, portal()).await.unwrap();
        assert_eq!(second.read(3).await, [0x5a; 512], "no unit attention: it is the nexus that has had it");
        assert_eq!(sessions_of(array, &login.initiator()).await.len(), 1);
        drop(first);
        second.write(4, 0x77).await;
        assert_eq!(second.read(4).await, [0x77; 512]);
        assert_eq!(sessions_of(array, &login.initiator()).await.len(), 1);
        drop(second);
        while !sessions_of(array, &login.initiator()).await.is_empty() {}
    });
}

#[test]
fn commands_that_end_with_a_connection_are_told_of_on_the_next() {
    play(8, async |sim, _| {
        let login = Login::of(OPEN, 1);
        let mut first = Host::login(sim, &login).await;
        first.take_attention().await;
        let mut second = first.another(&login, 1, 3, portal()).await.unwrap();
        first.submit_write(3, 0x5a).await;
        drop(first);
        assert_eq!(second.try_read(3).await, Err((6, 0x47, 0x7f)), "SOME COMMANDS CLEARED BY ISCSI PROTOCOL EVENT");
        second.write(3, 0x77).await;
        assert_eq!(second.read(3).await, [0x77; 512], "the old write did not land behind the new one");
    });
}

#[test]
fn session_is_joined_by_nobody_but_its_initiator() {
    play(2, async |sim, _| {
        let login = Login::of(OPEN, 1);
        let mut first = Host::login(sim, &login).await;
        // As a further connection, and in place of the existing one.
        for (stranger, cid) in
            [Login::of(OPEN, 2), Login::of("web", 1)].iter().flat_map(|login| [(login, 1), (login, 0)])
        {
            assert_eq!(refused(first.another(stranger, cid, 1, portal()).await), LoginStatus::SessionDoesNotExist);
        }
        let unproven = Login { unproven: true, ..Login::of("web", 1) };
        let told = refused(first.another(&unproven, 1, 1, portal()).await);
        assert_eq!(told, LoginStatus::AuthenticationFailure, "who proves nothing learns nothing of sessions");
        first.take_attention().await;
    });
}

#[test]
fn connection_with_a_number_that_is_there_takes_its_place() {
    play(3, async |sim, array| {
        let login = Login::of(OPEN, 1);
        let mut first = Host::login(sim, &login).await;
        first.take_attention().await;
        let mut again = first.another(&login, 0, 2, portal()).await.unwrap();
        again.write(9, 0x11).await;
        first.until_closed().await;
        assert_eq!(again.read(9).await, [0x11; 512]);
        assert_eq!(sessions_of(array, &login.initiator()).await.len(), 1);
    });
}

#[test]
fn portal_that_closes_takes_its_connections_and_leaves_the_session() {
    Sim::new(4).run(async move |sim| {
        let (node, first) = furnished(&sim, 2).await;
        drop(first);
        let other = SocketAddr::new(portal().ip(), 4001);
        let new = NewPortal { address: PortalAddress(other), settings: Default::default() };
        node.control.portals.add(new).await.unwrap();
        let login = Login::of(OPEN, 7);
        let mut first = Host::login(&sim, &login).await;
        first.take_attention().await;
        let mut second = first.another(&login, 1, 2, other).await.unwrap();
        second.write(5, 0x33).await;
        node.control.portals.remove(PortalAddress(other), Removal { force: true }).await.unwrap();
        let told = second.until_told_and_closed().await;
        assert_eq!(told, AsyncEvent::ConnectionDropped { cid: 1, time2wait_s: 0, time2retain_s: 0 });
        assert_eq!(first.another(&login, 2, 3, portal()).await.unwrap().read(5).await, [0x33; 512]);
    });
}

#[test]
fn connections_of_a_session_are_listed_and_ended_one_by_one() {
    play(6, async |sim, array| {
        let login = Login { recovery: 2, ..Login::of(OPEN, 1) };
        let mut first = Host::login(sim, &login).await;
        first.take_attention().await;
        let mut second = first.another(&login, 7, 2, portal()).await.unwrap();
        second.write(4, 0x21).await;
        let told = async || {
            let session = sessions_of(array, &login.initiator()).await.remove(0);
            let states: Vec<_> = session.connections.iter().map(|one| (one.cid, one.state)).collect();
            assert!(session.connections.iter().all(|one| one.portal == portal()));
            (session.id, states, session.address)
        };
        let (id, states, address) = told().await;
        assert_eq!(states, [(0, ConnectionState::Open), (7, ConnectionState::Open)]);
        let unknown = array.end_connection(id, 1).await;
        assert_eq!(unknown.unwrap_err().code, code::CONNECTION_UNKNOWN);
        array.end_connection(id, 0).await.unwrap();
        first.until_closed().await;
        let (_, states, now) = told().await;
        assert_eq!(states, [(0, ConnectionState::Lost), (7, ConnectionState::Open)]);
        assert_ne!(address, now, "the session is where its first open connection is");
        assert_eq!(second.read(4).await, [0x21; 512]);
        for _ in 0..30 {
            sim.sleep(Duration::from_secs(1)).await;
            second.read(4).await;
        }
        assert_eq!(told().await.1, [(7, ConnectionState::Open)], "nobody has taken its tasks over");
    });
}

/// At recovery level 2 a session outlives its connections; a reinstating login does not wait for it.
#[test]
fn session_that_waits_for_a_connection_is_reinstated_at_once() {
    play(5, async |sim, array| {
        let login = Login { recovery: 2, ..Login::of(OPEN, 1) };
        let first = Host::login(sim, &login).await;
        drop(first);
        sim.sleep(Duration::from_secs(1)).await;
        assert_eq!(sessions_of(array, &login.initiator()).await.len(), 1, "its tasks may be asked for");
        let mut again = Host::login(sim, &login).await;
        let begun = sim.now();
        again.take_attention().await;
        assert!(sim.now().since(begun) < Duration::from_secs(1));
        assert_eq!(sessions_of(array, &login.initiator()).await.len(), 1);
    });
}

/// Reported with the initiator and the reason, when it has not answered within its timeout.
#[test]
fn host_that_answers_no_more_is_cut_off_and_that_is_told() {
    play(7, async |sim, array| {
        let login = Login::of(OPEN, 1);
        let silent = Host::login(sim, &login).await;
        sim.sleep(Duration::from_secs(29)).await;
        assert_eq!(sessions_of(array, &login.initiator()).await.len(), 1);
        sim.sleep(Duration::from_secs(2)).await;
        assert!(sessions_of(array, &login.initiator()).await.is_empty(), "15 s of silence, and 15 s without an answer");
        let told = array.events().await;
        assert_eq!((told.len(), told[0].code), (1, event::HOST_CUT_OFF), "{told:?}");
        let said = format!(
            "session of host open closed ({} at 10.0.0.1): the peer did not answer a ping; check the host and the \
             network",
            login.initiator()
        );
        assert_eq!(told[0].sentence, said);
        drop(silent);
    });
}
