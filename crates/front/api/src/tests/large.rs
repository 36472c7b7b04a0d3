//! Ten thousand objects of each kind.

use super::Served;
use control::{State, Store};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;
use testbed::Testbed;

const MANY: usize = 10_000;

fn id(n: usize) -> String {
    // Without the digits that the test searches for.
    format!("ffffffff-ffff-4fff-bfff-ff{:010x}", 0xff_ffff_ffff - n)
}

/// Desired state of an array with that many volumes, hosts, targets and presentations.
fn large() -> State {
    let map = |value: &dyn Fn(usize) -> (String, Value)| Value::Object((0..MANY).map(value).collect());
    let volume = |n| {
        (format!("v{n:05}"), json!({"id": id(n), "size": 1 << 20, "block_bytes": 512, "backend": {"kind": "null"}}))
    };
    let host = |n| {
        let initiators = [format!("iqn.2001-04.com.example:h{n:05}")];
        (format!("h{n:05}"), json!({"any": false, "initiators": initiators, "networks": []}))
    };
    let target = |n| (format!("t{n:05}"), json!({"iqn": format!("iqn.2026-11.io.blockyard:t{n:05}")}));
    let group = |n| (format!("g{n:05}"), json!([format!("h{n:05}")]));
    let shown = |n| {
        json!({"volume": format!("v{n:05}"), "volume_id": id(n), "host": format!("h{n:05}"), "target": format!("t{n:05}"),
            "lun": 0, "read_only": false})
    };
    let presentations: Vec<Value> = (0..MANY).map(shown).collect();
    let state = json!({"disks": {}, "pools": {}, "pending": {}, "volumes": map(&volume), "hosts": map(&host),
        "groups": map(&group), "targets": map(&target), "presentations": presentations});
    serde_json::from_value(state).expect("a state")
}

/// Prints the duration of each list, as a whole and by pages. Durations depend on the machine, so they are shown and
/// not judged; quadratic growth shows as minutes.
#[tokio::test]
async fn lists_of_ten_thousand_are_walked_page_by_page() {
    let dir = tempfile::tempdir().expect("a folder");
    Store::open(&dir.path().join("state")).expect("a store").commit(large()).expect("is kept");
    let begun = Instant::now();
    let served = Served::over(dir, Testbed::default()).await;
    println!("{MANY} volumes, hosts, groups, targets and presentations; started in {:?}", begun.elapsed());
    for noun in ["volumes", "hosts", "groups", "presentations", "targets"] {
        let begun = Instant::now();
        let (status, whole) = served.json(Method::GET, &format!("/api/v1/{noun}"), Value::Null).await;
        assert_eq!((status, whole[noun].as_array().map(Vec::len)), (StatusCode::OK, Some(MANY)));
        let (all, mut walked, mut pages) = (begun.elapsed(), BTreeSet::new(), 0);
        let begun = Instant::now();
        let mut cursor = String::new();
        loop {
            let (_, page) = served.json(Method::GET, &format!("/api/v1/{noun}?limit=500{cursor}"), Value::Null).await;
            pages += 1;
            walked.extend(page[noun].as_array().expect("a list").iter().map(Value::to_string));
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(walked.len(), whole[noun].as_array().map_or(0, Vec::len), "each once");
        println!("{noun}: all in {all:?}, a page of 500 in {:?}", begun.elapsed() / pages);
        let begun = Instant::now();
        let (_, found) = served.json(Method::GET, &format!("/api/v1/{noun}?search=0777&limit=5"), Value::Null).await;
        assert_eq!((found[noun].as_array().map(Vec::len), &found["total"]), (Some(5), &json!(11)), "{noun}");
        println!("{noun}: searched in {:?}", begun.elapsed());
    }
    let begun = Instant::now();
    assert_eq!(served.json(Method::GET, "/api/v1/status", Value::Null).await.0, StatusCode::OK);
    println!("status: {:?}", begun.elapsed());
}
