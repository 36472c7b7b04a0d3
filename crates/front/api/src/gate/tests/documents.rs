//! Visibility and changes of users and alert receivers in a document, by role and scope.

use super::token;
use crate::web::tests::browser::{Browser, Node};
use hyper::{Method, StatusCode};
use model::Role;
use serde_json::{Value, json};

async fn sections(asker: &Browser) -> [bool; 2] {
    let document = asker.ask(Method::GET, "/api/v1/config", "").await.json()["config"].clone();
    assert_eq!(document["schema"], json!(1), "{document}");
    ["user", "receiver"].map(|section| !document[section].is_null())
}

async fn may(asker: &Browser, path: &str, section: &Value) -> bool {
    let mut document = section.clone();
    document["schema"] = json!(1);
    let body = json!({ "document": document }).to_string();
    let page = asker.ask(Method::POST, &format!("/api/v1/config/{path}"), &body).await;
    assert!(page.status == StatusCode::OK || page.status == StatusCode::FORBIDDEN, "{}", page.text);
    page.status == StatusCode::OK
}

/// Otherwise a token for documents only could have given its creator any right.
#[tokio::test]
async fn document_holds_users_and_receivers_for_those_alone_who_may_see_them() {
    let node = Node::new().await;
    for role in Role::ALL {
        node.user(&format!("u-{role}"), role).await;
    }
    let hook = json!({"name": "desk", "settings": {"url": "http://127.0.0.1:9/hook"}});
    assert_eq!(node.local(Method::POST, "/api/v1/receivers", &hook).await.status, StatusCode::CREATED);
    let users = json!({"user": {"u-viewer": {"role": "viewer"}}});
    let receivers = json!({"receiver": {"desk": {"url": "http://127.0.0.1:9/hook"}}});
    for role in Role::ALL {
        let asker = node.browser_of(&format!("u-{role}")).await;
        let sees = [role == Role::Admin, role >= Role::Operator];
        assert_eq!(sections(&asker).await, sees, "{role}");
        assert_eq!([may(&asker, "plan", &users).await, may(&asker, "plan", &receivers).await], sees, "{role}");
    }
    for (name, scopes, sees) in [
        ("all", ["destroy", "access"].as_slice(), [true, true]),
        ("documents", &["config"], [false, false]),
        ("people", &["config", "users", "access"], [true, false]),
        ("alerts", &["config", "receivers"], [false, true]),
    ] {
        let asker = token(&node, name, Role::Admin, scopes).await;
        assert_eq!(sections(&asker).await, sees, "{name}");
        for path in ["plan", "apply"] {
            assert_eq!([may(&asker, path, &users).await, may(&asker, path, &receivers).await], sees, "{name} {path}");
        }
    }
}

#[tokio::test]
async fn logins_end_when_a_document_gives_another_role_and_not_when_it_is_taken_back() {
    let node = Node::new().await;
    node.user("alice", Role::Admin).await;
    node.user("bob", Role::Operator).await;
    let (alice, bob) = (node.browser_of("alice").await, node.browser_of("bob").await);
    let lives =
        async |browser: &Browser| browser.ask(Method::GET, "/api/v1/volumes", "").await.status == StatusCode::OK;
    let document = json!({"schema": 1, "user": {"alice": {"role": "admin"}, "bob": {"role": "viewer"}},
        "host": {"web": {"initiators": ["iqn.2001-04.com.example:web"]}}});
    let plan =
        alice.ask(Method::POST, "/api/v1/config/plan", &json!({ "document": document }).to_string()).await.json();
    let change = &plan["plan"]["steps"].as_array().expect("steps")[1]["change"];
    assert_eq!(*change, json!("operator → viewer, 1 login ends"));
    let late = json!({"document": document, "initiators": ["iqn.2001-04.com.example:web"], "within": "10ms"});
    let page = alice.ask(Method::POST, "/api/v1/config/apply", &late.to_string()).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.text);
    assert!(lives(&bob).await);
    let page = alice.ask(Method::POST, "/api/v1/config/apply", &json!({ "document": document }).to_string()).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert!(!lives(&bob).await && lives(&alice).await);
}
