//! The API as a client meets it: over the socket, byte for byte.

use super::{Array, new_disk};
use crate::{listen, serve};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use model::Size;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tokio::net::UnixStream;

struct Served {
    array: Array,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<Result<(), model::Refusal>>,
}

impl Served {
    async fn new() -> Self {
        let array = Array::new().await;
        let listening = listen(&array.dir.path().join("socket")).expect("listens");
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(serve(array.control.clone(), listening, async move { drop(stopped.await) }));
        Self { array, stop: Some(stop), task }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: String) -> (StatusCode, String, String) {
        let stream = UnixStream::connect(self.array.dir.path().join("socket")).await.expect("connects");
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
            serde_json::to_value(new_disk(&served.array.folder(), &format!("d{n}"), Size::mib(32))).expect("json");
        let (status, body) = served.json(Method::POST, "/api/v1/disks", disk).await;
        assert_eq!((status, &body["disk"]["state"]), (StatusCode::CREATED, &json!("free")), "{body}");
    }
    let pool = json!({"name": "tank", "groups": [{"level": "raid6", "disks": ["d0", "d1", "d2", "d3"]}]});
    let (status, body) = served.json(Method::POST, "/api/v1/pools", pool).await;
    assert_eq!((status, &body["schema"]), (StatusCode::CREATED, &json!(1)), "{body}");
    assert_eq!(body["pool"]["size"], json!(64 << 20), "sizes are integers of bytes");
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
        assert!(!body.to_string().contains("twelve"), "no answer carries a secret");
    }
    let (status, body) = served.json(Method::GET, "/api/v1/status", Value::Null).await;
    assert_eq!((status, &body["status"]["verdict"]), (StatusCode::OK, &json!("All good")));
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
        (Method::PUT, "/api/v1/pools", json_kind, "{}".into(), 422, "BY-1007"),
        (Method::POST, "/api/v1/pools", json_kind, "{".into(), 422, "BY-1007"),
        (Method::POST, "/api/v1/pools", json_kind, deep, 422, "BY-1007"),
        (Method::POST, "/api/v1/pools", json_kind, "x".repeat(100_000), 422, "BY-1007"),
        (Method::POST, "/api/v1/pools", "text/plain", r#"{"name":"a","groups":[]}"#.into(), 422, "BY-1007"),
        (Method::POST, "/api/v1/pools", json_kind, r#"{"name":"a","groups":[],"extra":1}"#.into(), 422, "BY-1007"),
        (Method::POST, "/api/v1/pools", json_kind, r#"{"name":"a","groups":[]}"#.into(), 409, "BY-1401"),
        (Method::POST, "/api/v1/volumes", json_kind, r#"{"name":"a/b","size":"much"}"#.into(), 422, "BY-1007"),
        (Method::DELETE, "/api/v1/presentations", json_kind, String::new(), 422, "BY-1007"),
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
    let path = served.array.dir.path().join("socket");
    assert_eq!(std::fs::metadata(&path).expect("is there").mode() & 0o777, 0o600);
    let refusal = listen(&path).expect_err("somebody answers there");
    assert_eq!(refusal.code, model::code::STATE_LOCKED);
    drop(served.stop.take());
    served.task.await.expect("ends").expect("well");
    assert!(!path.exists());
    served.array.control.stop().await.expect("stops");
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
