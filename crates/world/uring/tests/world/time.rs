//! Timers.

use crate::on_both;
use shard::World;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

on_both! {
    sleep_ends_not_before_its_time(world) {
        let start = world.now();
        world.sleep(Duration::from_millis(20)).await;
        let slept = world.now().since(start);
        assert!(slept >= Duration::from_millis(20), "{slept:?}");
        assert!(slept < Duration::from_secs(5), "{slept:?}");
    }

    sleeps_end_in_the_order_of_their_times(world) {
        let order = Rc::new(RefCell::new(Vec::new()));
        for ms in [30, 10, 20] {
            let (world, order) = (world.clone(), order.clone());
            world.clone().spawn(async move {
                world.sleep(Duration::from_millis(ms)).await;
                order.borrow_mut().push(ms);
            });
        }
        world.sleep(Duration::from_millis(60)).await;
        assert_eq!(*order.borrow(), [10, 20, 30]);
    }

    random_bytes_are_not_the_same_twice(world) {
        let (mut one, mut two) = ([0; 32], [0; 32]);
        world.random(&mut one);
        world.random(&mut two);
        assert_ne!(one, two);
    }

    idle_shard_uses_no_cpu(world) {
        let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        world.sleep(Duration::from_millis(1)).await;
        let before = used();
        world.sleep(Duration::from_millis(300)).await;
        let after = used();
        let spent = (after.tv_sec - before.tv_sec) * 1_000_000_000 + after.tv_nsec - before.tv_nsec;
        assert!(spent < 5_000_000, "{spent} ns of CPU in 300 ms of sleep");
    }
}
