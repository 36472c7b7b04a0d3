//! Setup from disks to a mapped volume in one request.

use super::Served;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

const IQN: &str = "iqn.2001-04.com.example:web";

impl Served {
    async fn counts(&self) -> Vec<u64> {
        let mut counts = Vec::new();
        for noun in ["disks", "pools", "volumes", "hosts", "presentations"] {
            let (_, body) = self.json(Method::GET, &format!("/api/v1/{noun}"), Value::Null).await;
            counts.push(body["total"].as_u64().expect("a count"));
        }
        counts
    }

    fn setup(&self, volume: &str, disks: &[&str]) -> Value {
        let disk = |name: &&str| json!({"name": name, "path": self.dir.path().join(format!("{name}.img"))});
        let disks: Vec<Value> = disks.iter().map(disk).collect();
        json!({"volume": volume, "size": "8MiB", "disks": disks, "host": "web", "initiators": [IQN], "must_be_new": true})
    }
}

#[tokio::test]
async fn setup_is_made_whole_or_not_at_all() {
    let served = Served::new().await;
    for name in ["d0", "d1", "d2"] {
        let disk = json!({"path": served.dir.path().join(format!("{name}.img")), "name": name, "create": "128MiB"});
        assert_eq!(served.json(Method::POST, "/api/v1/disks", disk).await.0, StatusCode::CREATED);
    }
    let asked = served.setup("tank/vm1", &["d0", "d1"]);
    for (key, wrong, status, code) in [
        ("initiators", json!(["no name"]), StatusCode::UNPROCESSABLE_ENTITY, "BY-1003"),
        ("initiators", json!([]), StatusCode::NOT_FOUND, "BY-1104"),
        ("volume", json!("vm1"), StatusCode::UNPROCESSABLE_ENTITY, "BY-1002"),
        ("size", json!("1TiB"), StatusCode::CONFLICT, "BY-1405"),
        ("level", json!("raid6"), StatusCode::CONFLICT, "BY-1401"),
    ] {
        let mut asked = asked.clone();
        asked[key] = wrong;
        let (is, body) = served.json(Method::POST, "/api/v1/setup", asked).await;
        assert_eq!((is, &body["code"]), (status, &json!(code)), "{key}: {body}");
        assert_eq!(served.counts().await, [3, 0, 0, 0, 0], "{key}: nothing is left");
    }
    let (status, body) = served.json(Method::POST, "/api/v1/setup", asked.clone()).await;
    assert_eq!((status, &body["applied"]["presentation"]["lun"]), (StatusCode::OK, &json!(0)), "{body}");
    assert_eq!(served.counts().await, [3, 1, 1, 1, 1]);
    // The second admin's form has the same default values.
    for asked in [asked, served.setup("tank/vm1", &[]), served.setup("tank/vm2", &[])] {
        let (status, body) = served.json(Method::POST, "/api/v1/setup", asked).await;
        assert_eq!((status, &body["code"]), (StatusCode::CONFLICT, &json!("BY-1201")), "{body}");
    }
    let mut again = served.setup("tank/vm2", &[]);
    again["initiators"] = json!([]);
    assert_eq!(served.json(Method::POST, "/api/v1/setup", again).await.0, StatusCode::OK, "a host that is there");
    assert_eq!(served.counts().await, [3, 1, 2, 1, 2]);
}
