//! Audit records of calls.

use super::*;
use std::sync::Arc;

async fn last(node: &Node) -> u64 {
    let check = Browser::expect(node.local(Method::GET, "/api/v1/audit/check", &Value::Null).await, 200);
    assert!(check["check"]["broken"].is_null(), "{check}");
    check["check"]["last"].as_u64().expect("a number")
}

async fn latest(node: &Node) -> Value {
    let page = Browser::expect(node.local(Method::GET, "/api/v1/audit?limit=1", &Value::Null).await, 200);
    page["audit"]["records"][0].clone()
}

#[tokio::test]
async fn every_row_that_changes_something_or_reads_data_of_hosts_writes_an_intent_and_a_result_and_others_none() {
    let node = Node::new().await;
    for row in rows() {
        let before = last(&node).await;
        let body = if row.is_read_only() { Value::Null } else { json!({}) };
        let page = node.local(row.method.clone(), &filled(row), &body).await;
        // A login has no intent: unauthenticated clients may attempt it.
        let records = if row.is_open() { 1 } else { 2 };
        let records = if row.is_recorded() { records } else { 0 };
        assert_eq!(last(&node).await - before, records, "{row:?}: {}", page.text);
        if row.is_recorded() {
            let record = latest(&node).await;
            let intent = if row.is_open() { Value::Null } else { json!(before + 1) };
            assert_eq!((&record["phase"], &record["intent"]), (&json!("result"), &intent), "{row:?}");
            let stands = (&record["method"], &record["path"], &record["status"]);
            assert_eq!(
                stands,
                (&json!(row.method.as_str()), &json!(filled(row)), &json!(page.status.as_u16())),
                "{row:?}"
            );
            assert_eq!(record["code"], page.json()["code"], "{row:?}");
        }
    }
}

#[tokio::test]
async fn record_says_what_was_so_before_and_what_is_so_since() {
    let node = Node::new().await;
    let ask = async |method, path: &str, body: Value| {
        let answer = node.local(method, &format!("/api/v1{path}"), &body).await;
        assert!(answer.status.is_success(), "{}", answer.text);
        latest(&node).await["changed"].clone()
    };
    let group = json!({"name": "cluster", "hosts": []});
    assert_eq!(ask(Method::POST, "/groups", group).await, Value::Null, "the body says it");
    ask(Method::POST, "/hosts", json!({"name": "web", "initiators": ["iqn.2001-04.com.example:web"]})).await;
    let joined = ask(Method::PATCH, "/groups/cluster", json!({"join": ["web"], "leave": []})).await;
    assert_eq!(joined, json!({"hosts": {"was": [], "is": ["web"]}}));
    let nothing = ask(Method::PATCH, "/groups/cluster", json!({"join": ["web"], "leave": []})).await;
    assert_eq!(nothing, json!({}), "nothing has changed");
    let balance = ask(Method::PATCH, "/balance", json!({"by": "bytes"})).await;
    assert_eq!(balance, json!({"balance": {"was": "sessions", "is": "bytes"}}));
    let gone = ask(Method::DELETE, "/groups/cluster", Value::Null).await;
    assert_eq!(gone, json!({"name": {"was": "cluster"}, "hosts": {"was": ["web"]}}));
}

#[tokio::test]
async fn record_says_who_from_where_and_what_and_no_secret() {
    let node = Node::new().await;
    node.user("alice", Role::Operator).await;
    let alice = node.browser_of("alice").await;
    let record = latest(&node).await;
    assert_eq!((&record["path"], &record["caller"]), (&json!("/api/v1/session"), &Value::Null));
    assert_eq!(record["body"], json!({"name": "alice", "password": "…"}));
    let host =
        json!({"name": "web", "initiators": ["iqn.2001-04.com.example:web"], "chap": {"secret": "twelve bytes."}});
    Browser::expect(alice.ask(Method::POST, "/api/v1/hosts", &host.to_string()).await, 201);
    let record = latest(&node).await;
    assert_eq!(
        (&record["caller"], &record["role"], &record["auth_method"], &record["address"], &record["status"]),
        (&json!("alice"), &json!("operator"), &json!("session"), &json!("127.0.0.1"), &json!(201))
    );
    assert_eq!((&record["body"]["name"], &record["body"]["chap"]["secret"]), (&json!("web"), &json!("…")));
    // A refused change is recorded as well.
    let before = last(&node).await;
    let refused = alice.ask(Method::DELETE, "/api/v1/pools/tank", "").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(last(&node).await, before + 1);
    assert_eq!(latest(&node).await["code"], "BY-1807");
    let files = node.dir.path().join("state/audit");
    for entry in std::fs::read_dir(files).expect("a folder") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("reads");
        assert!(!text.contains(PASSWORD) && !text.contains("twelve bytes"), "{text}");
    }
}

/// Regression: a link sent under a wrong key was refused, stayed valid, and was readable in the audit log.
#[tokio::test]
async fn body_that_is_not_understood_is_told_by_its_length_alone() {
    let node = Node::new().await;
    let wrong = [
        (Method::POST, "/api/v1/session/link", json!({"link": "a token that is valid"})),
        (Method::POST, "/api/v1/session", json!({"name": "alice", "passwort": "a token that is valid"})),
        (Method::POST, "/api/v1/hosts", json!({"name": "web", "chap": {"geheimnis": "a token that is valid"}})),
        (Method::DELETE, "/api/v1/hosts/web", json!({"word": "a token that is valid"})),
    ];
    for (method, path, body) in wrong {
        let refused = node.local(method, path, &body).await;
        assert!(refused.status.is_client_error(), "{}", refused.text);
        let record = latest(&node).await;
        let told = (&record["path"], &record["body"]);
        assert_eq!(told, (&json!(path), &json!(format!("{} bytes", body.to_string().len()))));
    }
    let files = std::fs::read_dir(node.dir.path().join("state/audit")).expect("a folder");
    for entry in files {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("reads");
        assert!(!text.contains("a token that is valid"), "{text}");
    }
}

#[tokio::test]
async fn byte_that_is_changed_in_the_files_is_found_by_whoever_asks() {
    let node = Node::new().await;
    for name in ["a", "b", "c"] {
        node.user(name, Role::Viewer).await;
    }
    assert_eq!(last(&node).await, 6);
    let path = node.dir.path().join("state/audit/000000000001.jsonl");
    let text = std::fs::read_to_string(&path).expect("reads").replace("\"name\":\"b\"", "\"name\":\"x\"");
    std::fs::write(&path, text).expect("writes");
    let check = Browser::expect(node.local(Method::GET, "/api/v1/audit/check", &Value::Null).await, 200);
    assert_eq!(check["check"]["broken"]["number"], 3, "{check}");
    let exported = node.local(Method::GET, "/api/v1/audit/records", &Value::Null).await;
    assert_eq!(exported.text.lines().count(), 8, "with the intent and the result of this reading");
}

/// Unauthenticated clients neither fill the files nor displace the records of users.
#[tokio::test]
async fn refused_logins_of_strangers_have_records_up_to_a_bound() {
    let node = Node::new().await;
    for _ in 0..3 {
        // No password is hashed for a malformed body.
        let page = Browser::of(&node).ask(Method::POST, "/api/v1/session", "{").await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", page.text);
    }
    assert_eq!(last(&node).await, 3);
    assert!(latest(&node).await["caller"].is_null());
}

/// Reads of host data and of the audit log are recorded.
#[tokio::test]
async fn who_reads_data_of_hosts_is_written_down() {
    let read: Vec<&str> = table().iter().filter(|row| row.reads_host_data).map(|row| row.path).collect();
    let data = ["/log", "/pools/{name}/dump", "/recording", "/trace-files/{*name}", "/audit/records"];
    assert_eq!(read.iter().collect::<std::collections::BTreeSet<_>>(), data.iter().collect());
}

/// A call that cannot be recorded is not started.
#[tokio::test]
async fn change_whose_intent_cannot_be_written_is_refused_with_nothing_done() {
    let node = Node::new().await;
    node.user("alice", Role::Admin).await;
    let audit = node.dir.path().join("state/audit");
    std::fs::rename(&audit, node.dir.path().join("away")).expect("moves");
    std::fs::write(&audit, "no folder").expect("writes");
    let host = json!({"name": "web", "initiators": ["iqn.2001-04.com.example:web"]});
    let refused = node.local(Method::POST, "/api/v1/hosts", &host).await;
    assert_eq!(refused.json()["code"], "BY-1824", "{}", refused.text);
    let hosts = Browser::expect(node.local(Method::GET, "/api/v1/hosts", &Value::Null).await, 200);
    assert_eq!(hosts["hosts"], json!([]), "nothing was done");
    let status = Browser::expect(node.local(Method::GET, "/api/v1/status", &Value::Null).await, 200);
    let problems = status["status"]["problems"].as_array().expect("a list");
    assert!(problems.iter().any(|problem| problem["subject"] == "audit"), "{status}");
    let conditions = node.control.status.conditions().await.expect("told").active;
    assert!(conditions.iter().any(|condition| condition.topic == model::event::AUDIT_UNWRITABLE));

    std::fs::remove_file(&audit).expect("removes");
    std::fs::rename(node.dir.path().join("away"), &audit).expect("moves back");
    Browser::expect(node.local(Method::POST, "/api/v1/hosts", &host).await, 201);
    let events = node.control.reconciler.events(control::EventFilter::default()).await;
    let told = |code| events.iter().filter(|event| event.code == code).count();
    assert_eq!((told(model::event::AUDIT_UNWRITABLE), told(model::event::AUDIT_READABLE)), (1, 1));
    assert!(node.control.status.conditions().await.expect("told").active.is_empty());
}

/// A change interrupted by the end of the daemon has only an intent, which is listed.
#[tokio::test]
async fn intent_without_a_result_is_listed() {
    let node = Node::new().await;
    let audit = Arc::new(crate::audit::Audit::open(node.control.clone()));
    let uri = "/api/v1/pools".parse().expect("a path");
    let entry = crate::audit::Entry::of(None, &Method::POST, &uri, &axum::body::Bytes::from(r#"{"name":"tank"}"#));
    audit.begin(entry).await.expect("is written");
    let page = audit.page(None, 10, None).await.expect("is read");
    let said = (page.records.len(), page.records[0].phase, &page.records[0].body, page.records[0].status);
    assert_eq!(said, (1, crate::audit::Phase::Intent, &json!({"name": "tank"}), None));
}
