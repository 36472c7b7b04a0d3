//! Tests of clock, scheduler and nodes, and of the reproduction of a run from its seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use shard::{Listener, Stream, StreamOptions, World, mailbox};
use sim::{NetworkFaults, Sim};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;

/// Returns the order of events and the digest of a run with tasks, timers, a faulty network and random choices.
fn busy_run(seed: u64) -> (Vec<u64>, u64) {
    Sim::new(seed).run(async |sim| {
        sim.network().set_faults(NetworkFaults {
            delay: Duration::from_micros(5)..=Duration::from_millis(20),
            buffer_bytes: 16 << 10,
            split_per_million: 700_000,
            short_per_million: 500_000,
            stall_per_million: 200,
            stall: Duration::from_millis(100)..=Duration::from_secs(60),
            ..NetworkFaults::default()
        });
        let server = sim.add_node([10, 0, 0, 2].into());
        let listener = server.listen("10.0.0.2:3260".parse().unwrap()).unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        let (post, inbox) = mailbox::channel();
        for task in 0..8u64 {
            let (sim, order, post) = (sim.clone(), order.clone(), post.clone());
            sim.clone().spawn(async move {
                sim.sleep(Duration::from_micros(sim.random_below(50))).await;
                let stream = sim.connect("10.0.0.2:3260".parse().unwrap(), StreamOptions::default()).await.unwrap();
                poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(&[task as u8; 100])])).await.unwrap();
                order.borrow_mut().push(task);
                post.send(()).unwrap();
            });
        }
        drop(post);
        let seen = order.clone();
        server.spawn(async move {
            while let Ok(stream) = listener.accept(&StreamOptions::default()).await {
                let mut bytes = [0; 7];
                let count = poll_fn(|cx| stream.poll_read(cx, &mut bytes)).await.unwrap_or(0);
                seen.borrow_mut().push(1000 + count as u64);
            }
        });
        while inbox.receive().await.is_some() {}
        sim.sleep(Duration::from_secs(100)).await;
        (order.take(), sim.digest())
    })
}

#[test]
fn same_seed_gives_the_same_run_and_another_seed_another() {
    let runs: Vec<_> = (0..20).map(busy_run).collect();
    for (seed, run) in (0..20).zip(&runs) {
        assert_eq!(*run, busy_run(seed), "seed {seed}");
    }
    let mut digests: Vec<u64> = runs.iter().map(|run| run.1).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 20, "different seeds differ");
}

#[test]
fn ready_tasks_run_in_an_order_that_the_seed_chooses() {
    let order = |seed| {
        Sim::new(seed).run(async |sim| {
            let order = Rc::new(RefCell::new(Vec::new()));
            for task in 0..6 {
                let order = order.clone();
                sim.spawn(async move { order.borrow_mut().push(task) });
            }
            sim.sleep(Duration::from_secs(1)).await;
            order.take()
        })
    };
    assert_eq!(order(1), order(1));
    let orders: std::collections::BTreeSet<Vec<i32>> = (0..20).map(order).collect();
    assert!(orders.len() > 10, "{orders:?}");
}

#[test]
fn clock_jumps_to_the_next_timer() {
    let real = std::time::Instant::now();
    let slept = Sim::new(1).run(async |sim| {
        let start = sim.now();
        sim.sleep(Duration::from_secs(24 * 3600)).await;
        sim.now().since(start)
    });
    assert!(slept >= Duration::from_secs(24 * 3600) && slept < Duration::from_secs(24 * 3600 + 1));
    assert!(real.elapsed() < Duration::from_secs(5));
}

#[test]
#[should_panic(expected = "deadlock: no task is ready")]
fn deadlock_is_noticed() {
    Sim::new(1).run(async |_| std::future::pending::<()>().await);
}

#[test]
#[should_panic(expected = "the run is not over after 5s of its time")]
fn run_without_end_is_noticed() {
    Sim::new(1).run(async |sim| {
        sim.set_time_limit(Duration::from_secs(5));
        loop {
            sim.sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn killed_node_loses_its_tasks_at_once_and_starts_again() {
    Sim::new(3).run(async |sim| {
        let node = sim.add_node([10, 0, 0, 2].into());
        let ticks = Rc::new(RefCell::new(0));
        let count = ticks.clone();
        let own = node.clone();
        node.spawn(async move {
            loop {
                own.sleep(Duration::from_millis(10)).await;
                *count.borrow_mut() += 1;
            }
        });
        sim.sleep(Duration::from_millis(105)).await;
        node.kill();
        let before = *ticks.borrow();
        assert_eq!(before, 10);
        sim.sleep(Duration::from_secs(1)).await;
        assert_eq!(*ticks.borrow(), before);
        let (post, inbox) = mailbox::channel();
        node.spawn(async move { post.send(7).unwrap() });
        assert_eq!(inbox.receive().await, Some(7));
    });
}

#[test]
fn random_bytes_come_from_the_seed() {
    let draw = |seed| {
        Sim::new(seed).run(async |sim| {
            let mut bytes = [0; 20];
            sim.random(&mut bytes);
            bytes
        })
    };
    assert_eq!(draw(5), draw(5));
    assert_ne!(draw(5), draw(6));
}
