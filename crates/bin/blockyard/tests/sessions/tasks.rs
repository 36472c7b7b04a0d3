//! Commands without a response, and their place.

use crate::host::Host;
use crate::node::{SIZE, furnished, furnished_with};
use control::request::{NewVolume, VolumeSettings};
use futures_util::future::{Either, select};
use iscsi::pdu::TaskAttribute;
use model::TaskStage::{self, Disk, Limit, Waiting};
use shard::World;
use sim::{DiskHandle, Sim};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn commands_without_an_answer_are_told_with_what_holds_them() {
    for shards in [1, 2] {
        Sim::new(97).run(async move |sim| {
            let (node, mut host) = furnished(&sim, shards).await;
            let (volume, tasks) = ("tank/vm1".parse().unwrap(), async || node.control.sessions.tasks().await.unwrap());
            host.write(0, 1).await;
            assert_eq!(tasks().await, [], "everything is answered");

            let settings = [("iops", "1"), ("burst", "1s")].map(|(key, value)| (key.to_owned(), value.to_owned()));
            node.control.volumes.set(&volume, VolumeSettings { settings: settings.into() }).await.unwrap();
            host.write(0, 2).await;
            host.submit_write(1, 3).await;
            host.attribute = TaskAttribute::Ordered;
            host.submit_write(2, 4).await;
            sim.sleep(Duration::from_millis(20)).await;
            let held = tasks().await;
            let seen: Vec<(u8, TaskStage)> = held.iter().map(|task| (task.operation_code, task.stage)).collect();
            assert_eq!(seen, [(0x2a, Limit), (0x2a, Waiting)], "{shards} shards");
            assert_eq!(held[1].cmd_sn, held[0].cmd_sn + 1);
            for task in &held {
                assert!((15..25).contains(&task.waited_ms), "{} ms", task.waited_ms);
                assert_eq!((task.lun, task.volume.as_ref()), (Some(0), Some(&volume)));
                assert_eq!(task.host.as_ref().map(ToString::to_string).as_deref(), Some("web"));
                let sessions = node.control.sessions.list().await.unwrap();
                assert!(sessions.iter().any(|one| one.id == task.session && one.initiator == task.initiator));
            }

            host.wait_for_answers().await;
            assert_eq!(tasks().await, [], "everything is answered");
        });
    }
}

#[test]
fn command_that_a_disk_does_not_answer_is_told_with_the_disk_and_for_how_long() {
    for shards in [1, 2] {
        Sim::new(98).run(async move |sim| {
            let (node, disks, mut host) = furnished_with(&sim, shards, &[], true).await;
            disks[0].hang();
            let mut last = 0;
            for block in 0..64 {
                host.submit_write(block, 1).await;
            }
            for _ in 0..3 {
                sim.sleep(Duration::from_millis(100)).await;
                let tasks = node.control.sessions.tasks().await.unwrap();
                let oldest = tasks.first().expect("a disk of the stripe does not respond");
                assert_eq!(
                    (oldest.stage, oldest.disk.as_ref().map(ToString::to_string)),
                    (Disk, Some("d0".to_owned()))
                );
                assert_eq!(oldest.waits_for(), "disk d0");
                assert!((95..=105).contains(&(oldest.waited_ms - last)), "{} ms after {last}", oldest.waited_ms);
                assert!(tasks.is_sorted_by_key(|task| std::cmp::Reverse(task.waited_ms)), "the oldest is first");
                last = oldest.waited_ms;
            }
            assert_eq!(node.control.status.report().await.unwrap().summary, "All good", "a moment is nothing");
            sim.sleep(Duration::from_secs(6)).await;
            let status = node.control.status.report().await.unwrap();
            assert!(status.summary.starts_with("disk d0 is not responding: check its cable"), "{}", status.summary);
            assert_eq!(status.severity, model::Severity::Critical);
            let alerted = node.control.status.conditions().await.unwrap().active;
            assert!(alerted.iter().any(|it| it.code == model::event::DISK_STALLED && it.subject.name == "d0"));
            disks[0].revive();
        });
    }
}

#[test]
fn disk_that_does_not_answer_keeps_nobody_from_the_events_and_is_taken_out() {
    for shards in [1, 2] {
        Sim::new(99).run(async move |sim| {
            let (node, disks, mut host) = furnished_with(&sim, shards, &[], true).await;
            hang(&sim, &disks[0], &mut host).await;
            // Reporting it changes the state, which is to be copied to all disks.
            let looked = async { node.control.reconciler.handle_events(Vec::new()).await.unwrap() };
            soon(&sim, looked).await;
            let told = node.codes().await;
            assert!(told.contains(&model::event::DISK_STALLED), "{told:?}");
            let failed = async { node.control.pools.fail_disk(&"d0".parse().unwrap()).await.unwrap() };
            soon(&sim, failed).await;
            disks[0].revive();
        });
    }
}

#[test]
fn change_that_waits_for_a_disk_keeps_nobody_from_the_events() {
    Sim::new(100).run(async move |sim| {
        let (node, disks, mut host) = furnished_with(&sim, 1, &[], true).await;
        hang(&sim, &disks[0], &mut host).await;
        let (control, made) = (node.control.clone(), Rc::new(Cell::new(false)));
        let (new, is_made) = (NewVolume::new("tank/vm2".parse().unwrap(), Some(SIZE)), made.clone());
        sim.spawn(async move {
            control.volumes.create(new).await.unwrap();
            is_made.set(true);
        });
        sim.sleep(Duration::from_secs(1)).await;
        let looked = async { node.control.reconciler.handle_events(Vec::new()).await.unwrap() };
        soon(&sim, looked).await;
        let told = node.codes().await;
        assert!(told.contains(&model::event::DISK_STALLED) && !made.get(), "{told:?}");
        disks[0].revive();
    });
}

/// Hangs the disk until the host's commands have waited for a while.
async fn hang(sim: &Sim, disk: &DiskHandle, host: &mut Host) {
    disk.hang();
    for block in 0..64 {
        host.submit_write(block, 1).await;
    }
    sim.sleep(Duration::from_secs(2)).await;
}

/// Returns the result of `work`, which must not wait for the hanging disk.
async fn soon<T>(sim: &Sim, work: impl Future<Output = T>) -> T {
    match select(pin!(work), pin!(sim.sleep(Duration::from_secs(5)))).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => panic!("it waits for the disk"),
    }
}
