//! The API as a client uses it: over the socket, byte for byte.

mod conditional;
mod documents;
mod large;
mod setup;
mod verdict;

use crate::{listen, serve};
use control::{Control, Engine, Settings, Store};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use testbed::Testbed;
use tokio::net::UnixStream;

mod live;

struct Served {
    control: Arc<Control>,
    dir: TempDir,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<Result<(), model::Refusal>>,
}

impl Served {
    async fn new() -> Self {
        Self::over(tempfile::tempdir().expect("a folder"), Testbed::default()).await
    }

    async fn over(dir: TempDir, testbed: Testbed) -> Self {
        let settings = Settings {
            state_dir: dir.path().join("state"),
            socket: dir.path().join("socket"),
            node: "node1".parse().expect("a name"),
            target_base: "iqn.2026-11.io.blockyard".to_owned(),
            portals: vec!["127.0.0.1:3260".parse().expect("an address")],
            disk_search: Vec::new(),
        };
        let listening = listen(&settings.socket).expect("listens");
        let store = Store::open(&settings.state_dir).expect("a store");
        let (orders, _thread) = testbed.start();
        let control = Arc::new(Control::start(settings, store, Engine::new(orders)).await.expect("starts"));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(serve(control.clone(), listening, async move { drop(stopped.await) }));
        Self { control, dir, stop: Some(stop), task }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: String) -> (StatusCode, String, String) {
        let stream = UnixStream::connect(self.dir.path().join("socket")).await.expect("connects");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("speaks");
        tokio::spawn(connection);
        let request =
            Request::builder().method(method).uri(path).header("host", "blockyard").header("content-type", kind);
        let request = request.body(Full::new(Bytes::from(body))).expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        let status = response.status();
        let kind = response.headers().get("content-type").map_or("", |kind| kind.to_str().expect("text")).to_owned();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).expect("text"))
    }

    async fn json(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let (status, _, text) = self.send(method, path, "application/json", body.to_string()).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}

#[tokio::test]
async fn api_walks_from_disks_to_a_presentation() {
    let served = Served::new().await;
    for n in 0..4 {
        let disk =
            json!({"path": served.dir.path().join(format!("d{n}.img")), "name": format!("d{n}"), "create": "64MiB"});
        let (status, body) = served.json(Method::POST, "/api/v1/disks", disk).await;
        assert_eq!((status, &body["disk"]["state"]), (StatusCode::CREATED, &json!("free")), "{body}");
    }
    let pool = json!({"name": "tank", "groups": [{"level": "raid6", "disks": ["d0", "d1", "d2", "d3"]}]});
    let (status, body) = served.json(Method::POST, "/api/v1/pools", pool).await;
    assert_eq!((status, &body["schema"]), (StatusCode::CREATED, &json!(1)), "{body}");
    assert_eq!(body["pool"]["size"], json!(80 << 20), "sizes are integers of bytes");
    let volume = json!({"name": "tank/vm1", "size": "8MiB"});
    assert_eq!(served.json(Method::POST, "/api/v1/volumes", volume).await.0, StatusCode::CREATED);
    let (status, body) = served.json(Method::PATCH, "/api/v1/volumes/tank/vm1", json!({"size": 16 << 20})).await;
    assert_eq!((status, &body["volume"]["size"]), (StatusCode::OK, &json!(16 << 20)));
    let host =
        json!({"name": "web", "initiators": ["iqn.2001-04.com.example:web"], "chap": {"secret": "twelve bytes."}});
    let (status, body) = served.json(Method::POST, "/api/v1/hosts", host).await;
    assert_eq!((status, &body["host"]["chap_user"]), (StatusCode::CREATED, &json!("web")));
    let seen = json!({"volume": "tank/vm1", "host": "web"});
    let (status, body) = served.json(Method::POST, "/api/v1/presentations", seen).await;
    assert_eq!((status, &body["presentation"]["lun"]), (StatusCode::CREATED, &json!(0)));

    for (noun, count) in [
        ("disks", 4),
        ("pools", 1),
        ("volumes", 1),
        ("hosts", 1),
        ("targets", 1),
        ("presentations", 1),
        ("sessions", 0),
        ("portals", 1),
    ] {
        let (status, body) = served.json(Method::GET, &format!("/api/v1/{noun}"), Value::Null).await;
        assert_eq!((status, body[noun].as_array().map(Vec::len)), (StatusCode::OK, Some(count)), "{noun}: {body}");
        assert_eq!((&body["total"], &body["next"]), (&json!(count), &Value::Null), "{noun}");
        assert!(!body.to_string().contains("twelve"), "no answer carries a secret");
    }
    let (status, body) = served.json(Method::GET, "/api/v1/status", Value::Null).await;
    assert_eq!((status, &body["status"]["summary"]), (StatusCode::OK, &json!("All good")));
    let (status, _) =
        served.json(Method::DELETE, "/api/v1/presentations?volume=tank%2Fvm1&host=web", Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(served.json(Method::DELETE, "/api/v1/volumes/tank/vm1", Value::Null).await.0, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn api_refuses_with_problem_documents() {
    let served = Served::new().await;
    let deep = "[".repeat(50_000);
    let json_kind = "application/json";
    for (method, path, kind, body, status, code) in [
        (Method::GET, "/api/v1/pools/tank", json_kind, String::new(), 404, "BY-1102"),
        (Method::GET, "/api/v1/pools/..%2F..%2Fetc", json_kind, String::new(), 422, "BY-1002"),
        (Method::GET, "/api/v1/nothing", json_kind, String::new(), 404, "BY-1108"),
        (Method::GET, "/", json_kind, String::new(), 404, "BY-1108"),
        (Method::PUT, "/api/v1/pools", json_kind, "{}".into(), 405, "BY-1011"),
        (Method::GET, "/api/v1/pools?colour=blue", json_kind, String::new(), 422, "BY-1028"),
        (Method::GET, "/api/v1/pools?limit=0", json_kind, String::new(), 422, "BY-1028"),
        (Method::GET, "/api/v1/pools?sort=colour", json_kind, String::new(), 422, "BY-1028"),
        (Method::GET, "/api/v1/pools?cursor=zz", json_kind, String::new(), 422, "BY-1028"),
        (Method::POST, "/api/v1/pools", json_kind, "{".into(), 422, "BY-1007"),
        (Method::PATCH, "/api/v1/auth", json_kind, "[null, null]".into(), 422, "BY-1007"),
        (Method::POST, "/api/v1/pools", json_kind, deep, 422, "BY-1007"),
        (Method::POST, "/api/v1/pools", json_kind, "x".repeat(100_000), 413, "BY-1013"),
        (Method::POST, "/api/v1/pools", "text/plain", r#"{"name":"a","groups":[]}"#.into(), 415, "BY-1012"),
        (Method::POST, "/api/v1/pools", json_kind, r#"{"name":"a","groups":[],"extra":1}"#.into(), 422, "BY-1007"),
        (Method::POST, "/api/v1/pools", json_kind, r#"{"name":"a","groups":[]}"#.into(), 409, "BY-1401"),
        (Method::POST, "/api/v1/volumes", json_kind, r#"{"name":"a/b","size":"much"}"#.into(), 422, "BY-1001"),
        (Method::POST, "/api/v1/volumes", json_kind, r#"{"name":"a/b","size":"1"}"#.into(), 422, "BY-1001"),
        (Method::POST, "/api/v1/volumes", json_kind, r#"{"name":"A/b","size":"1GiB"}"#.into(), 422, "BY-1002"),
        (Method::POST, "/api/v1/volumes", json_kind, r#"{"name":"a/b"}"#.into(), 404, "BY-1102"),
        (
            Method::POST,
            "/api/v1/volumes",
            json_kind,
            r#"{"name":"a/b","size":1,"x (BY-1901)":1}"#.into(),
            422,
            "BY-1007",
        ),
        (
            Method::POST,
            "/api/v1/volumes",
            json_kind,
            r#"{"name":"b","size":1,"backend":{"kind":"ram"}}"#.into(),
            422,
            "BY-1504",
        ),
        (Method::DELETE, "/api/v1/presentations", json_kind, String::new(), 422, "BY-1028"),
        (
            Method::DELETE,
            "/api/v1/presentations?volume=A/b&host=x&target=default",
            json_kind,
            String::new(),
            422,
            "BY-1002",
        ),
    ] {
        let (found, kind, text) = served.send(method.clone(), path, kind, body).await;
        let document: Value = serde_json::from_str(&text).expect("a document");
        assert_eq!((found.as_u16(), &document["code"]), (status, &json!(code)), "{method} {path}: {text}");
        assert_eq!(kind, "application/problem+json");
        assert_eq!(document["status"], json!(status));
        assert!(document["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }
}

#[tokio::test]
async fn socket_is_private_goes_away_and_is_not_stolen() {
    let mut served = Served::new().await;
    let path = served.dir.path().join("socket");
    assert_eq!(std::fs::metadata(&path).expect("is there").mode() & 0o777, 0o600);
    let refusal = listen(&path).expect_err("somebody answers there");
    assert_eq!(refusal.code, model::code::STATE_LOCKED);
    drop(served.stop.take());
    served.task.await.expect("ends").expect("well");
    assert!(!path.exists());
    served.control.stop().await.expect("stops");
}

#[tokio::test]
async fn socket_of_a_killed_daemon_is_taken_over_and_other_files_are_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
    assert!(path.exists(), "a killed daemon leaves its socket");
    drop(listen(&path).expect("takes it over"));
    std::fs::write(&path, "precious").expect("writes");
    assert!(listen(&path).is_err());
    assert_eq!(std::fs::read(&path).expect("reads"), b"precious");
    assert!(listen(Path::new(&format!("{}/{}", dir.path().display(), "x".repeat(200)))).is_err(), "too long");
}
