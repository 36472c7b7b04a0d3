//! Authorization of every row, taken from the table itself.

mod documents;
mod logins;
mod paths;
mod records;

use crate::row::Row;
use crate::table;
use crate::web::tests::browser::{Browser, Node, PASSWORD, Page};
use hyper::{Method, StatusCode};
use model::{Role, Scope};
use serde_json::{Value, json};

/// Rows that destroy data regardless of the request.
const DESTROY: [&str; 9] = [
    "DELETE /disks/{name}",
    "POST /disks/{name}/fail",
    "DELETE /pools/{name}",
    "DELETE /volumes/{*name}",
    "POST /rollbacks",
    "DELETE /reservations/{*name}",
    "DELETE /snapshots/{*name}",
    "DELETE /hosts/{name}/luns",
    "DELETE /groups/{name}/luns",
];

/// Path of a row, with names that no object has.
pub(super) fn filled(row: &Row) -> String {
    let path = row.full_path();
    let (before, rest) = path.split_once('{').unwrap_or((&path, ""));
    let (hole, after) = rest.split_once('}').unwrap_or(("", ""));
    let name = match hole {
        "" => "",
        "*name" => "none/such",
        "id" if path.contains("/sessions") => "77",
        "tag" => "77",
        "address" => "10.9.9.9:3260",
        _ => "none",
    };
    format!("{before}{name}{after}")
}

/// Rows to call: all but logging out, which would end the test, and the stream, which does not end.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    table().iter().filter(|row| (row.path != "/session" || row.is_read_only()) && row.media != crate::stream::MEDIA)
}

pub(super) async fn token(node: &Node, name: &str, role: Role, scopes: &[&str]) -> Browser {
    let body = json!({ "name": name, "role": role, "scopes": scopes });
    let page = node.local(Method::POST, "/api/v1/tokens", &body).await;
    assert_eq!(page.status, StatusCode::CREATED, "{}", page.text);
    let secret = page.json()["token"]["secret"].as_str().expect("a secret").to_owned();
    Browser::of(node).but("authorization", Some(&format!("Bearer {secret}")))
}

/// Every row for every role, over a session and with a token of all scopes: permitted, or refused for the role only.
#[tokio::test]
async fn every_row_is_for_its_role_and_those_above_and_nobody_else() {
    let node = Node::new().await;
    for role in Role::ALL {
        let name = format!("u-{role}");
        node.user(&name, role).await;
        let all = token(&node, &format!("t-{role}"), role, &["destroy", "access"]).await;
        for (how, asker) in [("session", node.browser_of(&name).await), ("token", all)] {
            for row in rows().filter(|row| !row.is_open()) {
                // A recording runs until it is ended.
                let body = if row.is_read_only() { "" } else { "{}" };
                let page = asker.ask(row.method.clone(), &filled(row), body).await;
                let refused = page.text.contains("\"BY-1807\"") && page.text.contains("this needs role");
                assert_eq!(refused, role < row.role, "{how} of {role}, {row:?}: {} {}", page.status, page.text);
                assert_ne!(page.status, StatusCode::UNAUTHORIZED, "{how} of {role}, {row:?}");
                assert_eq!(refused, refused && page.status == StatusCode::FORBIDDEN);
                // The rate limit must not interfere with this test.
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        }
    }
    for row in rows() {
        let page = node
            .local(row.method.clone(), &filled(row), &if row.is_read_only() { Value::Null } else { json!({}) })
            .await;
        assert!(!page.text.contains("this needs role"), "root, {row:?}: {}", page.text);
    }
}

#[tokio::test]
async fn no_row_but_logging_in_is_for_strangers() {
    let open: Vec<String> =
        table().iter().filter(|row| row.is_open()).map(|row| format!("{} {}", row.method, row.path)).collect();
    assert_eq!(open, ["POST /session", "POST /session/link"]);
    let node = Node::new().await;
    for row in rows().filter(|row| !row.is_open()) {
        let page = Browser::of(&node).ask(row.method.clone(), &filled(row), "{}").await;
        let unknown = page.status == StatusCode::UNAUTHORIZED || page.status == StatusCode::TOO_MANY_REQUESTS;
        assert!(unknown, "{row:?}: {} {}", page.status, page.text);
    }
    let description = Browser::of(&node).ask(Method::GET, "/openapi.json", "").await;
    assert!(description.status == StatusCode::UNAUTHORIZED || description.status == StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn what_destroys_takes_a_scope_of_a_token_and_scopes_bind_it_to_their_nouns() {
    let node = Node::new().await;
    let plain = token(&node, "plain", Role::Admin, &[]).await;
    let destroying: Vec<&Row> = table().iter().filter(|row| row.scope == Some(Scope::DESTROY)).collect();
    let named: Vec<String> = destroying.iter().map(|row| format!("{} {}", row.method, row.path)).collect();
    assert_eq!(named, DESTROY);
    for row in destroying {
        let page = plain.ask(row.method.clone(), &filled(row), "{}").await;
        assert!(
            page.status == StatusCode::FORBIDDEN && page.text.contains("can destroy data"),
            "{row:?}: {}",
            page.text
        );
    }
    for body in [json!({"replacement": "d1", "force": true}), json!({"replacement": "d1", "confirmed": true})] {
        let page = plain.ask(Method::POST, "/api/v1/disks/d0/replace", &body.to_string()).await;
        assert!(page.text.contains("can destroy data"), "{}", page.text);
    }
    let forced = plain.ask(Method::DELETE, "/api/v1/portals/10.9.9.9:3260?force=true", "").await;
    assert!(forced.text.contains("can destroy data"), "{}", forced.text);
    let destroyer = token(&node, "destroyer", Role::Admin, &["destroy"]).await;
    assert_eq!(destroyer.ask(Method::DELETE, "/api/v1/pools/none", "").await.status, StatusCode::NOT_FOUND);
    let narrow = token(&node, "narrow", Role::Admin, &["snapshots"]).await;
    assert_eq!(narrow.ask(Method::GET, "/api/v1/snapshots", "").await.status, StatusCode::OK);
    assert_eq!(narrow.ask(Method::GET, "/api/v1/pools", "").await.status, StatusCode::FORBIDDEN);
    assert_eq!(narrow.ask(Method::DELETE, "/api/v1/snapshots/a/b@c", "").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn token_may_no_more_than_its_maker_ends_and_is_kept_as_a_hash() {
    let node = Node::new().await;
    node.user("alice", Role::Operator).await;
    node.user("root2", Role::Admin).await;
    let alice = node.browser_of("alice").await;
    let ask = |role: &str| json!({ "name": "mine", "role": role }).to_string();
    let too_high = alice.ask(Method::POST, "/api/v1/tokens", &ask("admin")).await;
    assert!(too_high.status == StatusCode::FORBIDDEN && too_high.text.contains("BY-1849"), "{}", too_high.text);
    let made = Browser::expect(alice.ask(Method::POST, "/api/v1/tokens", &ask("operator")).await, 201);
    let secret = made["token"]["secret"].as_str().expect("a secret").to_owned();
    let program = Browser::of(&node).but("authorization", Some(&format!("Bearer {secret}")));
    assert_eq!(program.ask(Method::GET, "/api/v1/pools", "").await.status, StatusCode::OK);
    let child =
        program.ask(Method::POST, "/api/v1/tokens", &json!({"name": "child", "role": "viewer"}).to_string()).await;
    assert_eq!(child.status, StatusCode::FORBIDDEN, "a token makes none");
    assert!(!alice.ask(Method::GET, "/api/v1/tokens", "").await.text.contains(&secret));
    let kept = node.control.core.document("people").expect("reads").expect("is there").to_string();
    assert!(kept.contains("mine") && !kept.contains(&secret[10..]), "only a hash is kept");
    // Her role is lowered, and with it that of her tokens.
    Browser::expect(node.local(Method::PATCH, "/api/v1/users/alice", &json!({"role": "viewer"})).await, 200);
    let spare = json!({}).to_string();
    assert_eq!(program.ask(Method::POST, "/api/v1/disks/none/spare", &spare).await.status, StatusCode::FORBIDDEN);
    assert_eq!(program.ask(Method::GET, "/api/v1/pools", "").await.status, StatusCode::OK);
    assert_eq!(node.local(Method::DELETE, "/api/v1/users/alice", &Value::Null).await.status, StatusCode::NO_CONTENT);
    assert_eq!(program.ask(Method::GET, "/api/v1/pools", "").await.status, StatusCode::UNAUTHORIZED);
    for wrong in ["Bearer ", "Bearer x", "Basic YTpi", "blockyard_00"] {
        let page = Browser::of(&node).but("authorization", Some(wrong)).ask(Method::GET, "/api/v1/pools", "").await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{wrong}");
    }
}

/// Checks that the table of threats in the manual names existing tests.
#[test]
fn tests_that_the_manual_names_are_there() {
    fn sources(folder: &std::path::Path, all: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(&path, all);
            } else {
                *all += &std::fs::read_to_string(path).unwrap_or_default();
            }
        }
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    sources(&root.join("src"), &mut all);
    let manual = std::fs::read_to_string(root.join("../../../docs/operate/access.md")).expect("the manual");
    let (_, table) = manual.split_once("## Attacks, defenses and their tests").expect("it has the table");
    let names = table.split('`').filter(|word| {
        word.len() > 20 && word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(all.contains(&format!("fn {name}(")), "there is no test {name}");
    }
}
