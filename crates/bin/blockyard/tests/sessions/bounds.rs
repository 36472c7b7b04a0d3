//! Requests beyond a limit are refused, and do not affect others.

use crate::array::{Array, OPEN};
use crate::host::{Host, Login};
use block::Buf;
use engine::{Budget, Limits};
use shard::World;
use sim::Sim;
use std::time::Duration;

const TASK_SET_FULL: u8 = 0x28;

fn limits() -> Limits {
    Limits::of(Budget { shards: 2, buffer_bytes: 1 << 40, cache_bytes: 8 << 20 })
}

#[test]
fn session_beyond_what_the_daemon_takes_is_refused_with_the_reason_and_hurts_nobody() {
    Sim::new(31).run(async |sim| {
        let array = Array::within(Limits { sessions_max: 3, ..limits() }, &sim).await;
        let mut hosts = Vec::new();
        for isid in 0..3 {
            hosts.push(Host::login(&sim, &Login::of(OPEN, isid)).await);
        }
        Host::refused(&sim, &Login::of("web", 3)).await;
        let told = array.events().await;
        assert!(told.iter().any(|told| told.sentence.contains("out of resources")), "{told:?}");
        for host in &mut hosts {
            host.take_attention().await;
            host.read(0).await;
        }
        drop(hosts.pop());
        sim.sleep(Duration::from_secs(1)).await;
        assert!(Host::is_let_in(&sim, &Login::of("web", 3)).await, "there is a place again");
    });
}

#[test]
fn large_write_finds_the_task_set_full_while_memory_is_short_and_small_ones_are_served() {
    for (buffer_bytes_max, status) in [(0, TASK_SET_FULL), (1 << 40, 0)] {
        Sim::new(32).run(async move |sim| {
            let _array = Array::within(Limits { buffer_bytes_max, ..limits() }, &sim).await;
            let _taken = Buf::zeroed(1 << 20);
            let mut host = Host::login(&sim, &Login::of(OPEN, 1)).await;
            host.take_attention().await;
            let write_of_one_block = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
            assert_eq!(host.status_of(&write_of_one_block, &[7; 80 << 10]).await, (status, None));
            host.write(0, 8).await;
            assert_eq!((host.read(0).await, host.read(1).await), (vec![8; 512], vec![0; 512]));
        });
    }
}

#[test]
fn more_commands_than_a_round_takes_are_answered_though_nothing_follows_them() {
    Sim::new(33).run(async |sim| {
        let _array = Array::within(limits(), &sim).await;
        let mut host = Host::login(&sim, &Login::of(OPEN, 1)).await;
        host.take_attention().await;
        let began = sim.now();
        // The receive buffer of a connection grows with its traffic.
        for _ in 0..8 {
            host.read_together(100).await;
        }
        assert!(sim.now().since(began) < Duration::from_secs(1), "something had to come before they were answered");
    });
}
