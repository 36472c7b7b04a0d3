//! Every row is called with tokens of every scope, and no token gains what its scopes do not permit.

use super::{CONSENTS, nouns};
use crate::gate::tests::{filled, rows, token};
use crate::table;
use crate::web::tests::browser::{Browser, Node, PASSWORD};
use hyper::{Method, StatusCode};
use model::{Role, Scope};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Booleans of requests that consent to no loss and remove nothing from hosts. A new one belongs here or into
/// [`CONSENTS`].
const HARMLESS: [&str; 15] = [
    "any",
    "digests",
    "encrypted",
    "must_be_new",
    "no_chap",
    "no_integrity",
    "no_mutual_chap",
    "no_second_factor",
    "now",
    "preferred",
    "read_only",
    "repairs",
    "spread",
    "thick",
    "zero_detection",
];

/// Rows that control access to the array.
const GIVE_ACCESS: [(&Method, &str); 8] = [
    (&Method::POST, "/pools/{name}/key"),
    (&Method::POST, "/users"),
    (&Method::PATCH, "/users/{name}"),
    (&Method::DELETE, "/users/{name}"),
    (&Method::DELETE, "/logins/{id}"),
    (&Method::POST, "/tokens"),
    (&Method::DELETE, "/tokens/{name}"),
    (&Method::POST, "/web/links"),
];

/// Everything that controls access to the array, as root sees it at the socket.
async fn people(node: &Node) -> Value {
    let of = async |path: &str| {
        let mut page = Browser::expect(node.local(Method::GET, &format!("/api/v1/{path}"), &Value::Null).await, 200);
        // The last use of tokens and their number are changed by the test itself.
        page[path]
            .as_array_mut()
            .expect("a list")
            .iter_mut()
            .for_each(|entry| drop(entry.as_object_mut().expect("an object").remove("used")));
        page[path].clone()
    };
    let kept = node.control.core.document("people").expect("reads").expect("is there");
    json!([of("users").await, of("logins").await, of("tokens").await, kept["users"].clone()])
}

/// Requests with which the thief of a token would try to gain other rights.
fn bodies(row: &crate::Row) -> Vec<Value> {
    let user = json!({"schema": 1, "user": {"victim": {"role": "admin"}, "mallory": {"role": "admin"}}});
    match (row.method.as_str(), row.path) {
        ("POST", "/users") => vec![json!({"name": "mallory", "role": "admin", "password": PASSWORD})],
        ("PATCH", "/users/{name}") => vec![json!({"password": "another long passphrase"}), json!({"role": "admin"})],
        ("POST", "/web/links") => vec![json!({"user": "victim"}), json!({"role": "admin"})],
        ("POST", "/tokens") => vec![json!({"name": "more", "role": "admin", "scopes": ["destroy", "access"]})],
        ("POST", "/config/apply" | "/config/plan") => vec![json!({ "document": user }), json!({})],
        _ if row.is_read_only() => Vec::new(),
        _ => vec![json!({})],
    }
}

/// Path at which `row` is called: for the user `victim` if it is about users.
fn place(row: &crate::Row) -> String {
    if row.path.starts_with("/users/") { format!("{}/users/victim", crate::row::BASE) } else { filled(row) }
}

#[tokio::test]
async fn no_row_gives_a_token_more_than_its_scopes_say() {
    let node = Node::new().await;
    node.user("victim", Role::Viewer).await;
    node.user("boss", Role::Admin).await;
    let _open = node.browser_of("boss").await;
    let all: Vec<(String, Vec<&str>)> = nouns(table())
        .into_iter()
        .flat_map(|noun| [(noun.to_owned(), vec![noun]), (format!("{noun}-d"), vec![noun, Scope::DESTROY])])
        .chain([("plain".to_owned(), vec![]), ("destroyer".to_owned(), vec![Scope::DESTROY])])
        .collect();
    let mut tokens = Vec::new();
    for (name, scopes) in &all {
        tokens.push((name, scopes, token(&node, &format!("t-{name}"), Role::Admin, scopes).await));
    }
    let before = people(&node).await;
    for (name, scopes, asker) in &tokens {
        let only: Vec<&str> = scopes.iter().copied().filter(|scope| *scope != Scope::DESTROY).collect();
        for row in rows().filter(|row| !row.is_open()) {
            let noun = row.path.split('/').nth(1).expect("a noun");
            if !only.is_empty() && !only.contains(&noun) {
                continue;
            }
            for body in bodies(row) {
                let page = asker.ask(row.method.clone(), &place(row), &body.to_string()).await;
                if GIVE_ACCESS.contains(&(&row.method, row.path)) {
                    assert_eq!(page.status, StatusCode::FORBIDDEN, "{name}, {row:?}: {}", page.text);
                    assert!(page.text.contains("scope access"), "{name}, {row:?}: {}", page.text);
                }
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        }
        assert_eq!(people(&node).await, before, "token {name} changed who may use the array");
    }
    // An unauthenticated client gains nothing from the answers either.
    assert_eq!(Browser::of(&node).log_in("mallory", PASSWORD).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn token_with_the_scope_access_manages_users_within_its_nouns() {
    let node = Node::new().await;
    let user = |name: &str| json!({"name": name, "role": "viewer", "password": PASSWORD}).to_string();
    for (scopes, allowed) in
        [(&["access"][..], true), (&["access", "users"], true), (&["users"], false), (&["access", "volumes"], false)]
    {
        let name = format!("t-{}", scopes.join("-"));
        let asker = token(&node, &name, Role::Admin, scopes).await;
        let page = asker.ask(Method::POST, "/api/v1/users", &user(&format!("u-{}", scopes.join("-")))).await;
        let wanted = if allowed { StatusCode::CREATED } else { StatusCode::FORBIDDEN };
        assert_eq!(page.status, wanted, "{scopes:?}: {}", page.text);
    }
    let operator = token(&node, "operator", Role::Operator, &["access"]).await;
    assert_eq!(operator.ask(Method::POST, "/api/v1/users", &user("x")).await.status, StatusCode::FORBIDDEN);
    let document = json!({"document": {"schema": 1, "user": {"u-access": {"role": "admin"}}}}).to_string();
    let plain = token(&node, "plain", Role::Admin, &[]).await;
    assert_eq!(plain.ask(Method::POST, "/api/v1/config/plan", &document).await.status, StatusCode::OK);
    let refused = plain.ask(Method::POST, "/api/v1/config/apply", &document).await;
    assert!(refused.status == StatusCode::FORBIDDEN && refused.text.contains("--scope access"), "{}", refused.text);
    let access = token(&node, "access", Role::Admin, &["access"]).await;
    assert_eq!(access.ask(Method::POST, "/api/v1/config/apply", &document).await.status, StatusCode::OK);
}

#[test]
fn rows_that_give_access_are_these() {
    let marked: Vec<(&Method, &str)> =
        table().iter().filter(|row| row.scope == Some(Scope::ACCESS)).map(|row| (&row.method, row.path)).collect();
    assert_eq!(marked, GIVE_ACCESS);
}

/// Names of all booleans in a schema, at any depth.
fn booleans(schema: &Value, all: &Value, top: bool, seen: &mut BTreeSet<String>, found: &mut BTreeSet<(String, bool)>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        if seen.insert(format!("{name} {top}")) {
            booleans(&all[name], all, top, seen, found);
        }
        return;
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        schema[key].as_array().into_iter().flatten().for_each(|one| booleans(one, all, top, seen, found));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let kind = &property["type"];
        if *kind == json!("boolean") || kind.as_array().is_some_and(|kinds| kinds.contains(&json!("boolean"))) {
            found.insert((name.clone(), top));
        }
        booleans(property, all, false, seen, found);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            booleans(&schema[key], all, false, seen, found);
        }
    }
}

#[test]
fn every_boolean_of_a_request_is_a_consent_or_harmless() {
    let description: Value = serde_json::from_str(&crate::description()).expect("JSON");
    let all = &description["components"]["schemas"];
    let mut found = BTreeSet::new();
    for operation in
        description["paths"].as_object().expect("paths").values().flat_map(|path| path.as_object().expect("methods"))
    {
        let ("post" | "put" | "patch" | "delete", operation) = (operation.0.as_str(), operation.1) else { continue };
        booleans(
            &operation["requestBody"]["content"]["application/json"]["schema"],
            all,
            true,
            &mut BTreeSet::new(),
            &mut found,
        );
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            if parameter["schema"]["type"].to_string().contains("boolean") {
                found.insert((parameter["name"].as_str().expect("a name").to_owned(), true));
            }
        }
    }
    let names: BTreeSet<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, CONSENTS.into_iter().chain(HARMLESS).collect::<BTreeSet<_>>());
    let below: Vec<&(String, bool)> =
        found.iter().filter(|(name, top)| !top && CONSENTS.contains(&name.as_str())).collect();
    assert!(below.is_empty(), "consents are looked for at the top of a request alone: {below:?}");
}

#[tokio::test]
async fn consent_takes_the_scope_destroy_however_it_is_written() {
    let node = Node::new().await;
    let plain = token(&node, "plain", Role::Admin, &[]).await;
    for query in ["force=true", "force=%74rue", "forc%65=true", "x=1&force=true", "force=true&force=true"] {
        let page = plain.ask(Method::DELETE, &format!("/api/v1/portals/10.9.9.9:3260?{query}"), "").await;
        assert!(page.status == StatusCode::FORBIDDEN && page.text.contains("scope destroy"), "{query}: {}", page.text);
    }
    for consent in CONSENTS {
        let body = json!({ consent: true }).to_string();
        let page = plain.ask(Method::POST, "/api/v1/config/apply", &body).await;
        assert!(
            page.status == StatusCode::FORBIDDEN && page.text.contains("scope destroy"),
            "{consent}: {}",
            page.text
        );
    }
    let escaped = plain.ask(Method::POST, "/api/v1/config/apply", r#"{"\u0066orce": true}"#).await;
    assert!(escaped.text.contains("scope destroy"), "{}", escaped.text);
    let plan = json!({"document": {"schema": 1}, "prune": true}).to_string();
    assert_eq!(
        plain.ask(Method::POST, "/api/v1/config/plan", &plan).await.status,
        StatusCode::OK,
        "a plan changes nothing"
    );
}

#[tokio::test]
async fn no_row_locks_for_long_or_risks_what_is_written_without_the_scope_destroy() {
    let node = Node::new().await;
    let plain = token(&node, "plain", Role::Admin, &[Scope::ACCESS]).await;
    let destroyer = token(&node, "destroyer", Role::Admin, &[Scope::ACCESS, Scope::DESTROY]).await;
    let volatile = json!({"settings": {"write-policy": "back-volatile"}});
    let risks = [
        json!({"lock": "permanent"}),
        json!({"lock": {"for": "5000w"}}),
        json!({"lock": {"until": "2999-01-01T00:00:00Z"}}),
        json!({"document": {"schema": 1, "volume": {"t/one": {}, "t/v": volatile}}}),
        volatile,
    ];
    for row in rows().filter(|row| !row.is_open() && !row.is_read_only() && row.scope != Some(Scope::ACCESS)) {
        for risk in &risks {
            let (method, path, body) = (|| row.method.clone(), filled(row), risk.to_string());
            let told = plain.ask(method(), &path, &body).await;
            let is_refused = told.status == StatusCode::FORBIDDEN && told.text.contains("scope destroy");
            assert_eq!(is_refused, !row.only_plans, "{row:?} {risk}: {}", told.text);
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
    let lock = format!("{}/snapshots/t/v@s", crate::row::BASE);
    for (asker, body) in [
        (&destroyer, json!({"lock": "permanent"})),
        (&plain, json!({"lock": {"for": "30d"}})),
        (&plain, json!({"settings": {"write-policy": "through"}})),
    ] {
        let told = asker.ask(Method::PATCH, &lock, &body.to_string()).await;
        assert!(!told.text.contains("scope destroy"), "{body}: {}", told.text);
    }
}
