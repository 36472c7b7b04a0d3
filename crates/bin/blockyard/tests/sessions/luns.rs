//! LUN numbers under a live session: data sent to one volume never reaches another.

use crate::array::{OPEN, portal};
use crate::host::{Host, Login, POWER_ON, REPORTED_LUNS_CHANGED};
use crate::node::{Node, SIZE, furnished, name};
use control::request::{NewPresentation, NewVolume, Unpresent};
use model::{Refusal, code};
use shard::World;
use sim::Sim;
use std::time::Duration;

/// LOGICAL UNIT NOT SUPPORTED: there is no unit.
const NOT_THERE: (u8, u8, u8) = (5, 0x25, 0);
/// INQUIRY DATA HAS CHANGED.
const INQUIRY_CHANGED: (u8, u8) = (0x3f, 3);
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];
const REPORT_LUNS: [u8; 12] = [0xa0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];

/// Creates volumes `tank/b` and `tank/c`, and presents `tank/c` as LUN 1.
async fn with_others(node: &Node) {
    for volume in ["tank/b", "tank/c"] {
        let new = NewVolume::new(volume.parse().unwrap(), Some(SIZE));
        node.control.volumes.create(new).await.unwrap();
    }
    node.show_as("tank/c", 1).await;
}

async fn present(node: &Node, volume: &str, lun: Option<u16>, force: bool) -> Result<u16, Refusal> {
    let (volume, host, target) = (volume.parse().unwrap(), name("web"), Some(name("t")));
    let request = NewPresentation { volume, host, target, lun, read_only: false, groups: Vec::new(), force };
    node.control.presentations.present(request).await.map(|seen| seen.lun)
}

fn play(seed: u64, test: impl AsyncFn(&Sim, Node) + Copy + 'static) {
    for shards in [1, 3] {
        Sim::new(seed).run(async move |sim| {
            let (node, host) = furnished(&sim, shards).await;
            drop(host);
            with_others(&node).await;
            test(&sim, node).await;
        });
    }
}

/// Regression: the host wrote into volume b immediately.
#[test]
fn number_of_a_volume_that_is_taken_away_is_nothing_and_no_other_volumes() {
    play(91, async |sim, node| {
        let mut host = Host::login(sim, &Login::of(OPEN, 7)).await;
        host.take_attention().await;
        host.write(3, 0x5a).await;
        host.address(1);
        assert_eq!(host.test_unit_ready().await, Some(POWER_ON));
        node.hide("tank/vm1").await;
        assert_eq!(present(&node, "tank/b", None, false).await, Ok(2), "LUN 0 was tank/vm1");
        assert_eq!(host.test_unit_ready().await, Some(REPORTED_LUNS_CHANGED), "the LUN that stays says so");
        host.address(0);
        assert_eq!(host.try_read(3).await, Err(NOT_THERE));
        assert_eq!(host.try_write(3, 0x77).await, Err(NOT_THERE));
        assert_eq!(host.ask(&INQUIRY).await.unwrap()[0], 0x7f, "no unit is there");
        let refusal = present(&node, "tank/b", Some(0), false).await.unwrap_err();
        assert_eq!(refusal.code, code::PRESENTED_ALREADY);
        node.hide("tank/b").await;
        let refusal = present(&node, "tank/b", Some(0), false).await.unwrap_err();
        assert!(refusal.code == code::LUN_REMEMBERED && refusal.message.contains("for volume tank/vm1"), "{refusal}");
        assert_eq!(present(&node, "tank/vm1", None, false).await, Ok(0), "it has its own number again");
        host.take_attention().await;
        assert_eq!(host.read(3).await, [0x5a; 512]);
    });
}

#[test]
fn host_that_is_away_while_the_daemon_restarts_finds_no_other_volume() {
    Sim::new(92).run(async move |sim| {
        let (node, host) = furnished(&sim, 2).await;
        with_others(&node).await;
        drop(host);
        node.hide("tank/vm1").await;
        let node = node.restarted(2).await;
        assert_eq!(present(&node, "tank/b", None, false).await, Ok(2));
        let mut host = Host::login(&sim, &Login::of(OPEN, 0)).await;
        assert_eq!(host.try_write(3, 0x77).await, Err(NOT_THERE));
    });
}

/// Regression: a unit attention stops one command, and those queued behind it wrote into the new volume.
#[test]
fn nothing_reaches_the_volume_that_was_forced_onto_a_number_before_the_host_has_looked() {
    play(93, async |sim, node| {
        let mut host = Host::login(sim, &Login::of(OPEN, 7)).await;
        host.take_attention().await;
        host.write(3, 0x5a).await;
        node.hide("tank/vm1").await;
        assert_eq!(present(&node, "tank/b", Some(0), true).await, Ok(0));
        assert_eq!(host.try_write(3, 0x77).await, Err((6, 0x3f, 0x0e)), "the list of LUNs has changed");
        for _ in 0..3 {
            assert_eq!(host.try_write(3, 0x77).await, Err(NOT_THERE));
        }
        assert_eq!(host.ask(&REPORT_LUNS).await.unwrap()[..8], [0, 0, 0, 16, 0, 0, 0, 0], "two LUNs");
        host.take_attention().await;
        assert_eq!(host.test_unit_ready().await, Some(INQUIRY_CHANGED));
        assert_eq!(host.read(3).await, [0; 512]);
        host.write(3, 0x11).await;
        node.hide("tank/b").await;
        assert_eq!(present(&node, "tank/vm1", Some(0), true).await, Ok(0));
        host.ask(&REPORT_LUNS).await.unwrap();
        host.take_attention().await;
        assert_eq!(host.test_unit_ready().await, Some(INQUIRY_CHANGED));
        assert_eq!(host.read(3).await, [0x5a; 512], "nothing was written there besides");
    });
}

/// The data of a write arrives after its unit was replaced, and after another connection of the session has read the
/// LUN list.
#[test]
fn write_that_waits_for_its_data_never_reaches_another_volume() {
    play(94, async |sim, node| {
        let login = Login { unasked: false, ..Login::of(OPEN, 7) };
        let mut first = Host::login(sim, &login).await;
        first.take_attention().await;
        first.submit_write(3, 0x77).await;
        sim.sleep(Duration::from_millis(50)).await;
        let mut second = first.another(&login, 1, 3, portal()).await.unwrap();
        node.hide("tank/vm1").await;
        assert_eq!(present(&node, "tank/b", Some(0), true).await, Ok(0));
        second.ask(&REPORT_LUNS).await.unwrap();
        first.wait_for_answers().await;
        second.take_attention().await;
        assert_eq!(second.test_unit_ready().await, Some(INQUIRY_CHANGED));
        assert_eq!(second.read(3).await, [0; 512], "the write was for tank/vm1");
    });
}

#[test]
fn volume_is_not_taken_from_a_session_that_sees_it_unless_that_is_forced() {
    play(95, async |sim, node| {
        let mut host = Host::login(sim, &Login::of(OPEN, 7)).await;
        host.take_attention().await;
        let seen = |force| Unpresent { volume: "tank/vm1".parse().unwrap(), host: name("web"), target: None, force };
        let refusal = node.control.presentations.unpresent(&seen(false)).await.unwrap_err();
        assert_eq!(refusal.code, code::SESSIONS_DISRUPTED);
        assert!(matches!(&refusal.sessions[..], [one] if one.effect == "loses volume tank/vm1 (LUN 0)"), "{refusal:?}");
        host.write(3, 0x5a).await;
        node.control.presentations.unpresent(&seen(true)).await.unwrap();
        assert_eq!(host.try_write(3, 0x77).await, Err(NOT_THERE));
    });
}
