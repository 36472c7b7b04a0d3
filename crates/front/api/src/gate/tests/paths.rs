//! Files and devices that an operator may open.

use super::*;

#[tokio::test]
async fn path_that_is_not_offered_takes_an_admin() {
    let node = Node::new().await;
    node.user("olga", Role::Operator).await;
    node.user("anna", Role::Admin).await;
    let (olga, anna) = (node.browser_of("olga").await, node.browser_of("anna").await);
    let file = node.dir.path().join("secret.img");
    std::fs::write(&file, vec![0; 64 << 20]).expect("writes");
    let before = std::fs::metadata(&file).expect("is there").modified().expect("a time");
    let path = file.to_str().expect("text");
    let made = node.dir.path().join("new.img");
    let asks = [
        ("/api/v1/disks", json!({ "path": path })),
        ("/api/v1/disks", json!({ "path": "/dev/shm/none" })),
        ("/api/v1/disks", json!({ "path": made, "create": "64MiB" })),
        (
            "/api/v1/setup",
            json!({ "volume": "tank/v", "size": "8MiB", "disks": [{ "name": "d0", "path": path }], "host": "h", "initiators": ["iqn.2001-04.com.example:h"] }),
        ),
        ("/api/v1/volumes", json!({ "name": "loose", "backend": { "kind": "file", "path": path } })),
        ("/api/v1/volumes", json!({ "name": "loose", "size": "1MiB", "backend": { "kind": "file", "path": made } })),
    ];
    for (row, body) in asks {
        let page = olga.ask(Method::POST, row, &body.to_string()).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{body}: {}", page.text);
        let said = page.json();
        assert_eq!(said["code"], "BY-1807", "{said}");
        assert!(said["detail"].as_str().is_some_and(|detail| detail.contains("only an admin")), "{said}");
        assert!(said["hint"].as_str().is_some_and(|hint| hint.contains("ask an admin")), "{said}");
    }
    assert!(!made.exists(), "nothing was made");
    assert_eq!(std::fs::metadata(&file).expect("is there").modified().expect("a time"), before);
    let page = anna.ask(Method::POST, "/api/v1/disks", &json!({ "path": path }).to_string()).await;
    assert_eq!(page.status, StatusCode::CREATED, "{}", page.text);
    // Operations without a path stay permitted for the operator.
    let page = olga
        .ask(
            Method::POST,
            "/api/v1/volumes",
            &json!({ "name": "r", "size": "1MiB", "backend": { "kind": "ram" } }).to_string(),
        )
        .await;
    assert_eq!(page.status, StatusCode::CREATED, "{}", page.text);
}

/// A volume on a file of the state would let a host overwrite the users of the array.
#[tokio::test]
async fn files_of_the_array_itself_are_nobodys_disk_or_volume() {
    let node = Node::new().await;
    node.user("anna", Role::Admin).await;
    let (anna, plain) = (node.browser_of("anna").await, token(&node, "plain", Role::Admin, &["destroy"]).await);
    let access = token(&node, "access", Role::Admin, &["access"]).await;
    let state = node.dir.path().join("state");
    let linked = node.dir.path().join("linked");
    std::os::unix::fs::symlink(&state, &linked).expect("a link");
    let own = [
        state.join("people.000000000999"),
        state.join("audit/000000000001.jsonl"),
        state.join("node.key"),
        linked.join("state.000000009999"),
        node.dir.path().join("socket"),
    ];
    for path in own {
        for asker in [&anna, &access] {
            let volume = json!({ "name": "forge", "size": "1MiB", "backend": { "kind": "file", "path": path } });
            let disk = json!({ "path": path, "create": "64MiB" });
            for (row, body) in [("/api/v1/volumes", volume), ("/api/v1/disks", disk)] {
                let page = asker.ask(Method::POST, row, &body.to_string()).await;
                assert!(page.text.contains("belongs to the state of the array"), "{row} {body}: {}", page.text);
            }
        }
        assert!(
            path.ends_with("node.key")
                || path.ends_with("socket")
                || path.ends_with("000000000001.jsonl")
                || !path.exists()
        );
    }
    let elsewhere = node.dir.path().join("v.img");
    let volume = json!({ "name": "v", "size": "1MiB", "backend": { "kind": "file", "path": elsewhere } }).to_string();
    let page = plain.ask(Method::POST, "/api/v1/volumes", &volume).await;
    assert!(page.status == StatusCode::FORBIDDEN && page.text.contains("--scope access"), "{}", page.text);
    let page = access.ask(Method::POST, "/api/v1/volumes", &volume).await;
    assert_eq!(page.status, StatusCode::CREATED, "{}", page.text);
}
