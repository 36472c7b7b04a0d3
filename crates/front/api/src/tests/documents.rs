//! Users and alert receivers in a configuration document.

use super::Served;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

const ADMIN: &str = "correct horse battery staple";

async fn post(served: &Served, path: &str, body: Value) -> Value {
    let (status, body) = served.json(Method::POST, &format!("/api/v1{path}"), body).await;
    assert!(status.is_success(), "{path}: {body}");
    body
}

async fn get(served: &Served, noun: &str) -> Value {
    served.json(Method::GET, &format!("/api/v1/{noun}"), Value::Null).await.1[noun].clone()
}

async fn refused(served: &Served, path: &str, body: Value) -> Value {
    let (status, body) = served.json(Method::POST, &format!("/api/v1{path}"), body).await;
    assert!(!status.is_success(), "{path}: {body}");
    body
}

/// Creates the users alice, an admin who can log in, and bob; and receivers by mail and by webhook, both with a secret.
async fn furnished() -> Served {
    let served = Served::new().await;
    post(&served, "/users", json!({"name": "alice", "role": "admin", "password": ADMIN})).await;
    post(&served, "/users", json!({"name": "bob", "role": "viewer"})).await;
    let mail = json!({"to": ["a@example.com", "b@example.com"], "smtp": "127.0.0.1:9", "user": "array", "password": "pw of mail",
        "min_severity": "critical", "remind": "0s"});
    post(&served, "/receivers", json!({"name": "ops", "settings": mail})).await;
    let hook =
        json!({"url": "http://127.0.0.1:9/hook", "format": "ntfy", "secret": "a secret of hooks", "gather": "1min"});
    post(&served, "/receivers", json!({"name": "desk", "settings": hook})).await;
    served
}

async fn export(served: &Served) -> Value {
    get(served, "config").await
}

fn said(steps: &Value) -> Vec<String> {
    let steps: Vec<control::config::Step> = serde_json::from_value(steps.clone()).expect("steps");
    steps.iter().map(ToString::to_string).collect()
}

async fn plan(served: &Served, document: &Value, prune: bool) -> Value {
    post(served, "/config/plan", json!({"document": document, "prune": prune})).await["plan"].clone()
}

async fn apply(served: &Served, document: &Value, prune: bool) -> Vec<String> {
    let body = post(served, "/config/apply", json!({"document": document, "prune": prune})).await;
    said(&body["applied"]["steps"])
}

#[tokio::test]
async fn document_with_users_and_receivers_makes_them_elsewhere_and_is_the_same_there() {
    let served = furnished().await;
    let document = export(&served).await;
    assert_eq!(document["user"], json!({"alice": {"role": "admin"}, "bob": {"role": "viewer"}}));
    assert_eq!(
        document["receiver"],
        json!({"desk": {"url": "http://127.0.0.1:9/hook", "format": "ntfy", "signed": true, "gather": "1min"},
            "ops": {"to": ["a@example.com", "b@example.com"], "smtp": "127.0.0.1:9", "user": "array",
                "min_severity": "critical", "remind": "0s"}})
    );
    assert_eq!(plan(&served, &document, true).await["steps"], json!([]), "it is so already");

    let empty = Served::new().await;
    let refusal = refused(&empty, "/config/plan", json!({"document": document})).await;
    assert!(
        refusal["message"].as_str().is_some_and(|it| it.starts_with("receiver desk: its messages are signed")),
        "{refusal}"
    );
    let mut with_secrets = document.clone();
    with_secrets["receiver"]["desk"]["secret"] = json!("a secret of hooks");
    let refusal = refused(&empty, "/config/plan", json!({"document": with_secrets})).await;
    assert!(
        refusal["message"].as_str().is_some_and(|it| it.starts_with("receiver ops: user and password")),
        "{refusal}"
    );
    with_secrets["receiver"]["ops"]["password"] = json!("pw of mail");
    assert_eq!(
        apply(&empty, &with_secrets, false).await,
        [
            "+ user alice: admin, who can log in with what blockyard web link --user alice prints",
            "+ user bob: viewer, who can log in with what blockyard web link --user bob prints",
            "+ receiver desk: ntfy webhook http://127.0.0.1:9/hook",
            "+ receiver ops: mail to a@example.com, b@example.com through 127.0.0.1:9 (starttls)",
        ]
    );
    assert_eq!(export(&empty).await, document, "and there is no secret in it");
    assert_eq!(apply(&empty, &with_secrets, true).await, [""; 0], "the second time changes nothing");
    assert_eq!(apply(&empty, &document, true).await, [""; 0], "secrets that are not said stay");
    let users = get(&empty, "users").await;
    assert!(users.as_array().is_some_and(|users| users.iter().all(|user| user["password_set"].is_null())), "{users}");
}

#[tokio::test]
async fn document_changes_and_prunes_what_its_sections_name_and_leaves_the_rest_alone() {
    let served = furnished().await;
    post(&served, "/users", json!({"name": "carol", "role": "operator", "password": ADMIN})).await;
    let before = export(&served).await;
    let mut document = before.clone();
    for section in ["user", "receiver"] {
        document.as_object_mut().expect("an object").remove(section);
    }
    let told = plan(&served, &document, true).await;
    assert_eq!((&told["steps"], &told["kept"]), (&json!([]), &json!([])), "no section, no change");

    document["user"] = json!({"alice": {"role": "admin"}, "bob": {"role": "operator"}});
    document["receiver"] = json!({"desk": {"url": "http://127.0.0.1:9/hook", "secret": "another secret"}});
    let told = plan(&served, &document, false).await;
    assert_eq!(told["kept"], json!(["user carol", "receiver ops"]));
    let steps =
        ["~ user bob: viewer → operator", "~ receiver desk: format ntfy → generic, gather 1min → default, credentials"];
    assert_eq!(said(&told["steps"]), steps);
    let pruned = plan(&served, &document, true).await;
    assert_eq!(said(&pruned["steps"]), [steps[0], "- user carol", steps[1], "- receiver ops"]);
    assert_ne!(told["fingerprint"], json!("1"), "what it was like has to do with them");

    // A user is changed in between.
    served.json(Method::PATCH, "/api/v1/users/carol", json!({"role": "viewer"})).await;
    let body = json!({"document": document, "prune": true, "fingerprint": pruned["fingerprint"]});
    assert_eq!(refused(&served, "/config/apply", body).await["code"], json!("BY-1851"));
    assert_eq!(apply(&served, &document, true).await.len(), 4);
    let names =
        |list: Value| list.as_array().expect("a list").iter().map(|one| one["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(get(&served, "users").await), ["alice", "bob"]);
    assert_eq!(names(get(&served, "receivers").await), ["desk"]);
    assert_eq!(apply(&served, &document, true).await, [""; 0]);
    assert_eq!(served.json(Method::POST, "/api/v1/receivers/ops/test", json!({})).await.0, StatusCode::NOT_FOUND);
    // A receiver that cannot be restored without its secret is refused, and nothing else is applied.
    refused(&served, "/config/apply", json!({"document": before})).await;
    assert_eq!(names(get(&served, "users").await), ["alice", "bob"]);
}

#[tokio::test]
async fn document_never_takes_the_last_admin_away() {
    let served = furnished().await;
    let before = export(&served).await;
    let document = |users: Value| json!({"schema": 1, "user": users});
    for (users, prune, fate) in [
        (json!({"alice": {"role": "operator"}}), false, "alice would become operator"),
        (json!({}), true, "alice would be removed"),
        // Bob has no password and would be the only admin, so nobody could log in.
        (json!({"alice": {"role": "viewer"}, "bob": {"role": "admin"}}), false, "alice would become viewer"),
    ] {
        for path in ["/config/plan", "/config/apply"] {
            let refusal = refused(&served, path, json!({"document": document(users.clone()), "prune": prune})).await;
            assert_eq!(refusal["code"], json!("BY-1848"), "{refusal}");
            assert_eq!(refusal["message"], json!(format!("no admin that can log in would remain: {fate}")));
        }
    }
    assert_eq!(export(&served).await, before);
    served.json(Method::PATCH, "/api/v1/users/bob", json!({"password": ADMIN})).await;
    let swap = document(json!({"alice": {"role": "viewer"}, "bob": {"role": "admin"}}));
    assert_eq!(apply(&served, &swap, false).await.len(), 2, "another who can log in is admin instead");
}

#[tokio::test]
async fn users_and_receivers_go_back_with_the_rest_of_a_document() {
    let served = furnished().await;
    post(&served, "/users", json!({"name": "carol", "role": "operator", "password": ADMIN})).await;
    let (before, users) = (export(&served).await, get(&served, "users").await);
    let mut document = before.clone();
    document["user"] = json!({"alice": {"role": "admin"}, "bob": {"role": "operator"}, "dave": {"role": "viewer"}});
    document["receiver"] = json!({"desk": {"url": "http://127.0.0.1:9/hook"}, "chat": {"url": "http://127.0.0.1:9/x"}});
    document["host"] = json!({"web": {"initiators": ["iqn.2001-04.com.example:web"]}});
    let late =
        json!({"document": document, "prune": true, "initiators": ["iqn.2001-04.com.example:web"], "within": "10ms"});
    assert_eq!(refused(&served, "/config/apply", late).await["code"], json!("BY-1854"));
    assert_eq!(export(&served).await, before);
    assert_eq!(get(&served, "users").await, users, "carol has her password still");
    let has_secret =
        |receivers: &Value| receivers.as_array().expect("a list").iter().all(|it| it["has_secret"] == true);
    assert!(has_secret(&get(&served, "receivers").await));
    for wrong in [
        json!({"user": {"bob": {"role": "root"}}}),
        json!({"user": {"bob": {"role": "admin", "password": ADMIN}}}),
        json!({"user": {"../bob": {"role": "admin"}}}),
        json!({"receiver": {"audit": {"url": "http://127.0.0.1:9/x"}}}),
        json!({"receiver": {"x": {}}}),
        json!({"receiver": {"x": {"url": "http://127.0.0.1:9/x", "smtp": "127.0.0.1:25"}}}),
        json!({"receiver": {"x": {"url": "http://example.com/x"}}}),
        json!({"receiver": {"x": {"to": ["nobody"], "smtp": "127.0.0.1:25", "tls": "none"}}}),
        // The secret of the existing receiver would be sent to another destination.
        json!({"receiver": {"desk": {"url": "http://127.0.0.2:9/hook"}}}),
    ] {
        let mut document = wrong.clone();
        document["schema"] = json!(1);
        let refusal = refused(&served, "/config/apply", json!({"document": document})).await;
        assert!(refusal["hint"].is_string() || refusal["message"].is_string(), "{wrong}: {refusal}");
        assert_eq!(export(&served).await, before, "{wrong}");
    }
}
