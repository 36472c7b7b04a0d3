//! Live data and metrics as a client sees them.

use super::Served;
use hyper::{Method, StatusCode};
use model::{EventSeverity, Subject, SubjectKind};
use serde_json::{Value, json};
use std::collections::BTreeSet;

impl Served {
    /// Creates four disks, a pool and a volume.
    async fn furnish(&self) {
        for n in 0..4 {
            let path = self.dir.path().join(format!("d{n}.img"));
            let disk = json!({"path": path, "name": format!("d{n}"), "create": "64MiB"});
            assert_eq!(self.json(Method::POST, "/api/v1/disks", disk).await.0, StatusCode::CREATED);
        }
        let pool = json!({"name": "tank", "groups": [{"level": "raid6", "disks": ["d0", "d1", "d2", "d3"]}]});
        assert_eq!(self.json(Method::POST, "/api/v1/pools", pool).await.0, StatusCode::CREATED);
        let volume = json!({"name": "tank/vm1", "size": "8MiB"});
        assert_eq!(self.json(Method::POST, "/api/v1/volumes", volume).await.0, StatusCode::CREATED);
    }
}

#[tokio::test]
async fn metrics_are_families_whose_samples_stand_together_and_each_has_a_line_of_help() {
    let served = Served::new().await;
    served.furnish().await;
    for path in ["/metrics", "/api/v1/metrics"] {
        let (status, kind, text) = served.send(Method::GET, path, "text/plain", String::new()).await;
        assert_eq!((status, kind.as_str()), (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8"));
        let mut families = BTreeSet::new();
        let mut family = "";
        for line in text.lines() {
            if let Some(named) = line.strip_prefix("# HELP ") {
                family = named.split(' ').next().expect("a name");
                assert!(families.insert(family), "{family} comes twice");
                assert!(named.ends_with('.'), "help is a sentence: {line}");
            } else if !line.starts_with("# TYPE ") {
                assert!(line.starts_with(family), "{line} is not of {family}");
            }
        }
        for line in [
            "blockyard_pool_capacity_bytes{pool=\"tank\"} 83886080",
            "blockyard_volume_online{volume=\"tank/vm1\"} 1",
            "blockyard_volume_size_bytes{volume=\"tank/vm1\"} 8388608",
            "blockyard_disk_up{disk=\"d3\",serial=\"\"} 1",
            "blockyard_disk_operations_total{disk=\"d3\",serial=\"\",kind=\"flush\"} ",
            "blockyard_portal_up{portal=\"127.0.0.1:3260\"} 1",
            "blockyard_problems{severity=\"critical\"} 0",
        ] {
            assert!(
                text.lines().any(|told| told == line || (line.ends_with(' ') && told.starts_with(line))),
                "{line} is not among\n{text}"
            );
        }
        assert!(families.contains("process_resident_memory_bytes") && families.contains("process_open_fds"));
    }
}

#[tokio::test]
async fn metrics_tell_a_pool_that_waits_from_one_that_needs_an_operator() {
    let served = Served::new().await;
    served.furnish().await;
    for (waiting, expected) in [(None, [0, 0]), (Some(false), [1, 0]), (Some(true), [0, 1])] {
        let mut pool = served.control.pools.list().await.unwrap().remove(0);
        pool.waiting = waiting.map(|needs_operator| model::PoolWaiting {
            reason: "a disk is absent".to_owned(),
            needs_operator,
            hint: None,
            disks: Vec::new(),
            degraded_in_s: None,
        });
        let mut text = crate::metrics::Text::default();
        crate::metrics::pools(&mut text, &[pool]);
        let text = text.into_string();
        for (name, value) in ["waits", "needs_operator"].into_iter().zip(expected) {
            let line = format!("blockyard_pool_{name}{{pool=\"tank\"}} {value}");
            assert!(text.lines().any(|told| told == line), "{line} is not among\n{text}");
        }
    }
}

#[tokio::test]
async fn stream_tells_moments_and_events_and_ends_with_the_daemon() {
    let mut served = Served::new().await;
    served.furnish().await;
    let (status, moment) = served.json(Method::GET, "/api/v1/activity?limit=3", Value::Null).await;
    assert_eq!((status, &moment["rates"]["volumes"]), (StatusCode::OK, &json!([])), "nobody does anything");
    assert_eq!(moment["rates"]["total"]["latency_histogram"].as_array().map(Vec::len), Some(24));
    let (status, problem) = served.json(Method::GET, "/api/v1/activity?many=3", Value::Null).await;
    assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("BY-1028")));

    let stop = served.stop.take().expect("serves");
    let control = served.control.clone();
    let (answer, ()) =
        tokio::join!(served.send(Method::GET, "/api/v1/stream?after=0", "text/plain", String::new()), async move {
            let mut watching = control.live.watch();
            for _ in 0..2 {
                watching.next().await.expect("goes on").expect("a moment");
            }
            drop(stop);
        });
    let (status, kind, text) = answer;
    assert_eq!((status, kind.as_str()), (StatusCode::OK, "text/event-stream"));
    let told: Vec<&str> = text.split("\n\n").filter(|told| !told.is_empty()).collect();
    assert!(told.iter().filter(|told| told.starts_with("event: rates\ndata: {")).count() >= 1, "{text}");
    let event = told.iter().find(|told| told.starts_with("id: 1\nevent: event\n")).expect("the daemon has started");
    let event: model::Event = serde_json::from_str(event.rsplit_once("data: ").expect("data").1).expect("an event");
    assert_eq!(event.severity, EventSeverity::Info);
    assert_eq!(event.subject, Subject::new(SubjectKind::Node, &"node1"));
    served.task.await.expect("ends").expect("well");
}
