//! Conditional and idempotent changes.

use super::Served;
use axum::http::HeaderMap;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::UnixStream;

impl Served {
    async fn with(
        &self,
        method: Method,
        path: &str,
        header: (&str, &str),
        body: Value,
    ) -> (StatusCode, HeaderMap, Value) {
        let stream = UnixStream::connect(self.dir.path().join("socket")).await.expect("connects");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("speaks");
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(format!("/api/v1{path}")).header("host", "blockyard");
        let request = request.header("content-type", "application/json").header(header.0, header.1);
        let request = request.body(Full::new(Bytes::from(body.to_string()))).expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, headers, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn tag(&self, path: &str) -> String {
        let (status, headers, _) = self.with(Method::GET, path, ("x-nothing", ""), Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        headers["etag"].to_str().expect("a tag").to_owned()
    }
}

const NONE: (&str, &str) = ("x-nothing", "");

#[tokio::test]
async fn change_of_what_was_not_seen_is_refused_and_changes_nothing() {
    let served = Served::new().await;
    let host = json!({"name": "web", "initiators": ["iqn.2001-04.com.example:web"]});
    assert_eq!(served.with(Method::POST, "/hosts", NONE, host).await.0, StatusCode::CREATED);
    let seen = served.tag("/hosts/web").await;
    let (status, _, body) = served.with(Method::GET, "/hosts/web", ("if-none-match", &seen), Value::Null).await;
    assert_eq!((status, body), (StatusCode::NOT_MODIFIED, Value::Null));
    let change = |iqn: &str| json!({"add_initiators": [format!("iqn.2001-04.com.example:{iqn}")]});
    let (status, headers, _) = served.with(Method::PATCH, "/hosts/web", ("if-match", &seen), change("web2")).await;
    let changed = served.tag("/hosts/web").await;
    assert_eq!((status, headers["etag"].to_str().expect("a tag")), (StatusCode::OK, changed.as_str()));
    assert_ne!(changed, seen);
    let (status, _, body) = served.with(Method::PATCH, "/hosts/web", ("if-match", &seen), change("web3")).await;
    assert_eq!((status, &body["code"]), (StatusCode::PRECONDITION_FAILED, &json!("BY-1207")), "{body}");
    let said = body["message"].as_str().expect("a sentence");
    assert!(
        said.starts_with("it has changed since it was read: ") && said.contains(" made the latest change "),
        "{said}"
    );
    assert!(said.contains("(audit record "), "{said}");
    assert_eq!(
        served.with(Method::DELETE, "/hosts/web", ("if-match", &seen), Value::Null).await.0,
        StatusCode::PRECONDITION_FAILED
    );
    assert_eq!(served.tag("/hosts/web").await, changed, "nothing was changed");
    let (status, _, _) = served.with(Method::GET, "/hosts/web", ("if-none-match", &seen), Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        served.with(Method::DELETE, "/hosts/web", ("if-match", "\"other\", *"), Value::Null).await.0,
        StatusCode::NO_CONTENT
    );
    let (status, _, _) = served.with(Method::PATCH, "/hosts/web", ("if-match", &seen), change("web4")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn tag_stays_while_only_counters_move() {
    let served = Served::new().await;
    for n in 0..2 {
        let disk =
            json!({"path": served.dir.path().join(format!("d{n}.img")), "name": format!("d{n}"), "create": "64MiB"});
        assert_eq!(served.with(Method::POST, "/disks", NONE, disk).await.0, StatusCode::CREATED);
    }
    let pool = json!({"name": "tank", "groups": [{"level": "raid1", "disks": ["d0", "d1"]}]});
    assert_eq!(served.with(Method::POST, "/pools", NONE, pool).await.0, StatusCode::CREATED);
    let pool = served.tag("/pools/tank").await;
    let volume = json!({"name": "tank/vm1", "size": "8MiB"});
    assert_eq!(served.with(Method::POST, "/volumes", NONE, volume).await.0, StatusCode::CREATED);
    assert_eq!(served.tag("/pools/tank").await, pool, "a volume takes space, and nothing of the pool is set");
    let settings = json!({"settings": {"rebuild": "fast"}});
    assert_eq!(served.with(Method::PATCH, "/pools/tank", ("if-match", &pool), settings).await.0, StatusCode::OK);
    let changed = served.tag("/pools/tank").await;
    assert_ne!(changed, pool);
    // A change below the path of the pool changes the pool.
    let pause = "/pools/tank/pause";
    let (status, _, body) = served.with(Method::POST, pause, ("if-match", &pool), json!({})).await;
    assert_eq!((status, &body["code"]), (StatusCode::PRECONDITION_FAILED, &json!("BY-1207")), "{body}");
    assert_eq!(served.tag("/pools/tank").await, changed, "nothing was changed");
    assert_eq!(served.with(Method::POST, pause, ("if-match", &changed), json!({})).await.0, StatusCode::OK);
    for path in [
        "/disks/d0",
        "/volumes/tank%2Fvm1",
        "/targets/default",
        "/portals/127.0.0.1:3260",
        "/portal-groups/1",
        "/balance",
        "/isns",
        "/auth",
    ] {
        assert!(served.tag(path).await.starts_with('"'), "{path}");
    }
}

#[tokio::test]
async fn post_with_a_key_happens_once() {
    let served = Served::new().await;
    let key = ("idempotency-key", "8e03978e-40d5-43e8-bc93-6894a57f9324");
    let host = json!({"name": "web", "initiators": ["iqn.2001-04.com.example:web"]});
    let (status, headers, first) = served.with(Method::POST, "/hosts", key, host.clone()).await;
    assert_eq!((status, headers.get("idempotent-replayed")), (StatusCode::CREATED, None));
    let (status, headers, again) = served.with(Method::POST, "/hosts", key, host.clone()).await;
    assert_eq!((status, again), (StatusCode::CREATED, first));
    assert_eq!(headers["idempotent-replayed"], "true");
    assert_eq!(served.with(Method::POST, "/hosts", NONE, host.clone()).await.0, StatusCode::CONFLICT);
    let other = json!({"name": "db", "initiators": ["iqn.2001-04.com.example:db"]});
    let (status, _, body) = served.with(Method::POST, "/hosts", key, other).await;
    assert_eq!((status, &body["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("BY-1014")));
    let (status, _, body) = served.with(Method::POST, "/pools/tank/key", key, json!({})).await;
    assert_eq!((status, &body["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("BY-1014")), "secrets are not kept");
    let (_, _, hosts) = served.with(Method::GET, "/hosts", key, Value::Null).await;
    assert_eq!(hosts["total"], 1);
}
