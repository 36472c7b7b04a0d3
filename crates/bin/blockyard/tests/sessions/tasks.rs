//! Commands that have no answer yet, and where they stand.

use crate::node::furnished;
use control::request::VolumeSettings;
use iscsi::pdu::TaskAttribute;
use model::TaskStage::{self, Running, Waiting};
use shard::World;
use sim::Sim;
use std::time::Duration;

#[test]
fn commands_without_an_answer_are_told_with_what_holds_them() {
    for shards in [1, 2] {
        Sim::new(97).run(async move |sim| {
            let (node, mut host) = furnished(&sim, shards).await;
            let (volume, tasks) = ("tank/vm1".parse().unwrap(), async || node.control.tasks().await.unwrap());
            host.write(0, 1).await;
            assert_eq!(tasks().await, [], "everything is answered");

            let settings = [("iops", "1"), ("burst", "1s")].map(|(key, value)| (key.to_owned(), value.to_owned()));
            node.control.set_volume(&volume, VolumeSettings { settings: settings.into() }).await.unwrap();
            host.write(0, 2).await;
            host.submit_write(1, 3).await;
            host.attribute = TaskAttribute::Ordered;
            host.submit_write(2, 4).await;
            sim.sleep(Duration::from_millis(20)).await;
            let held = tasks().await;
            let seen: Vec<(u8, TaskStage)> = held.iter().map(|task| (task.operation_code, task.stage)).collect();
            assert_eq!(seen, [(0x2a, Running), (0x2a, Waiting)], "{shards} shards");
            assert_eq!(held[1].cmd_sn, held[0].cmd_sn + 1);
            for task in &held {
                assert_eq!((task.lun, task.volume.as_ref()), (Some(0), Some(&volume)));
                assert_eq!(task.host.as_ref().map(ToString::to_string).as_deref(), Some("web"));
                let sessions = node.control.sessions().await.unwrap();
                assert!(sessions.iter().any(|one| one.id == task.session && one.initiator == task.initiator));
            }

            host.wait_for_answers().await;
            assert_eq!(tasks().await, [], "everything is answered");
        });
    }
}
