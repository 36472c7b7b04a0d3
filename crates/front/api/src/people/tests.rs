//! Tests of credentials that are changed while a password is checked.

use super::*;
use crate::web::tests::browser::{Node, PASSWORD};

const FROM: (IpAddr, &str) = (IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), "a browser");

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn password(text: &str) -> Password {
    Password::new(text.to_owned())
}

/// Users alice and bob with different passwords; the node keeps their document.
async fn furnished() -> (Node, Users) {
    let node = Node::new().await;
    let users = Users::open(node.control.clone()).expect("users");
    for (user, word) in [("alice", PASSWORD), ("bob", "another horse battery")] {
        let new = NewUser { name: name(user), role: Role::Viewer, password: Some(password(word)) };
        users.add_user(new).await.expect("a user");
    }
    (node, users)
}

/// Gives alice the password of bob, without a hash that would take its time, and ends her logins.
fn change_password(users: &Users) {
    let changed = users.store.change(|registry| {
        let of_bob = registry.user(&name("bob"))?.password.clone();
        registry.user_mut(&name("alice"))?.password = of_bob;
        Ok(())
    });
    changed.expect("changed");
    users.logins.end_others(&name("alice"), None);
}

/// Regression: the session was opened after those of the old password had been ended, and stayed.
#[tokio::test]
async fn login_with_a_password_that_is_replaced_while_it_is_hashed_is_refused() {
    let (_node, users) = furnished().await;
    let alice = name("alice");
    let login = users.log_in(&alice, password(PASSWORD), None, FROM);
    let (opened, ()) = tokio::join!(login, async { change_password(&users) });
    assert_eq!(opened.err().map(|refusal| refusal.code), Some(code::LOGIN_FAILED));
    assert!(users.logins(Some(&alice), None).is_empty());
    users.log_in(&alice, password("another horse battery"), None, FROM).await.expect("the new password is right");
}

/// Regression: the old password was enough to replace the new one.
#[tokio::test]
async fn password_that_is_replaced_while_it_is_hashed_permits_no_change() {
    let (_node, users) = furnished().await;
    let alice = name("alice");
    let NewLogin { login, .. } = users.log_in(&alice, password(PASSWORD), None, FROM).await.expect("a login");
    let change = users.change_own_password(&login, password(PASSWORD), password("a brand new password"));
    let (changed, ()) = tokio::join!(change, async { change_password(&users) });
    assert_eq!(changed.expect_err("the password was another one").code, code::LOGIN_FAILED);
    users.log_in(&alice, password("another horse battery"), None, FROM).await.expect("the new password stays");
}
