//! The HTTPS server as unauthenticated clients and browsers meet it.

pub(crate) mod browser;

use self::browser::{Browser, Node};
use crate::web::{HANDSHAKE, HEAD, unfit};
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use model::{CertificateReport, Problem, Role, Severity, Timestamp};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trust::Trust;

#[tokio::test]
async fn console_is_served_over_tls_with_headers_that_bind_the_browser() {
    let node = Node::new().await;
    let browser = Browser::of(&node);
    let page = browser.page("/pools/tank").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains("<title>"), "{}", page.text);
    for (name, wanted) in [
        ("content-security-policy", "default-src 'self'"),
        ("strict-transport-security", "max-age"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert!(page.header(name).contains(wanted), "{name}: {}", page.header(name));
    }
    assert!(!page.header("content-security-policy").contains("unsafe"), "nothing inline");
}

#[tokio::test]
async fn stranger_hears_nothing_but_that_it_is_one() {
    let node = Node::new().await;
    let browser = Browser::of(&node);
    for (method, path) in [
        (Method::GET, "/api/v1/status"),
        (Method::GET, "/api/v1/hosts"),
        (Method::POST, "/api/v1/hosts"),
        (Method::DELETE, "/api/v1/pools/tank"),
        (Method::GET, "/api/v1/web"),
    ] {
        let answer = browser.ask(method.clone(), path, "{}").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path}: {}", answer.text);
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(answer.text.contains("BY-1841") && !answer.text.contains("tank"), "{}", answer.text);
    }
}

#[tokio::test]
async fn another_key_is_not_believed_and_older_tls_is_not_spoken() {
    let node = Node::new().await;
    let pin = node.pin();
    assert!(Browser::with(&node, Trust::Pin(pin)).connect().await.is_ok());
    let other = Browser::with(&node, Trust::Pin(format!("sha256:{}", "0".repeat(64)))).connect().await;
    assert!(other.expect_err("another key").to_string().contains("not the pinned one"));
    // ClientHello of TLS 1.2 without the extension for later versions.
    let hello = [&[22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3][..], &[7; 32], &[0, 0, 4, 0xc0, 0x2b, 0, 0xff, 1, 0]].concat();
    let mut stream = TcpStream::connect(node.address).await.expect("connects");
    stream.write_all(&hello).await.expect("sends");
    let mut alert = Vec::new();
    let _ = stream.read_to_end(&mut alert).await;
    assert_eq!(alert.first(), Some(&21), "an alert and no handshake: {alert:?}");
}

#[tokio::test]
async fn plain_http_is_sent_to_https() {
    let node = Node::new().await;
    let mut stream = TcpStream::connect(node.address).await.expect("connects");
    stream.write_all(b"GET /pools HTTP/1.1\r\nHost: node1:8443\r\n\r\n").await.expect("sends");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    assert!(text.starts_with("HTTP/1.1 308") && text.contains("Location: https://node1:8443/pools\r\n"), "{text}");
}

#[tokio::test]
async fn who_sends_its_head_drop_by_drop_or_nothing_is_cut_off() {
    let node = Node::new().await;
    let begun = Instant::now();
    let mut silent = TcpStream::connect(node.address).await.expect("connects");
    let mut byte = [0];
    let ended = silent.read(&mut byte).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "a silent connection ends");
    assert!(begun.elapsed() >= HANDSHAKE, "{:?}", begun.elapsed());
    let mut slow = Browser::of(&node).connect().await.expect("connects");
    let begun = Instant::now();
    while begun.elapsed() < 10 * HEAD && slow.write_all(b"G").await.is_ok() && slow.flush().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!((HEAD..3 * HEAD).contains(&begun.elapsed()), "it was let go on for {:?}", begun.elapsed());
}

#[tokio::test]
async fn head_and_body_that_are_too_long_are_refused_and_the_door_stays_open() {
    let node = Node::new().await;
    let browser = Browser::of(&node);
    let mut stream = browser.connect().await.expect("connects");
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(200_000));
    let _ = stream.write_all(head.as_bytes()).await;
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    let text = String::from_utf8_lossy(&text);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    let long = browser.ask(Method::POST, "/api/v1/hosts", &"x".repeat(300_000)).await;
    assert!(long.status.is_client_error(), "{}", long.status);
    assert_eq!(browser.page("/").await.status, StatusCode::OK);
}

#[tokio::test]
async fn connections_that_are_idle_shut_nobody_of_their_address_out() {
    let node = Node::new().await;
    let browser = Browser::of(&node);
    let mut silent = Vec::new();
    for _ in 0..80 {
        silent.push(TcpStream::connect(node.address).await.expect("connects"));
    }
    let mut met = Vec::new();
    for _ in 0..80 {
        met.push(browser.connect().await.expect("a handshake, though the address has as many connections as it may"));
    }
    assert_eq!(browser.page("/").await.status, StatusCode::OK);
    let ended = async |stream: &mut (dyn tokio::io::AsyncRead + Unpin + Send)| {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_millis(500), stream.read(&mut byte)).await;
        matches!(read, Ok(Ok(0) | Err(_)))
    };
    for stream in &mut silent {
        assert!(ended(stream).await, "the oldest have ended for those that came later");
    }
    assert!(ended(&mut met[0]).await && !ended(&mut met[79]).await);
}

#[tokio::test]
async fn connection_with_a_request_under_way_ends_for_nobody() {
    let node = Node::new().await;
    node.user("alice", Role::Viewer).await;
    let alice = node.browser_of("alice").await;
    let mut stream = alice.open(Method::GET, "/api/v1/stream", "").await;
    assert_eq!(stream.status(), StatusCode::OK);
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(alice.connect().await.expect("a handshake"));
    }
    let piece = tokio::time::timeout(Duration::from_secs(10), stream.frame()).await.expect("it goes on");
    assert!(piece.is_some_and(|frame| frame.is_ok()));
}

#[tokio::test]
async fn requests_that_strangers_never_end_shut_nobody_of_their_address_out() {
    let node = Node::new().await;
    let browser = Browser::of(&node);
    let mut slow = Vec::new();
    for _ in 0..70 {
        let mut stream = browser.connect().await.expect("a handshake");
        let head = "POST /api/v1/session HTTP/1.1\r\nHost: node1\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.expect("sends");
        slow.push(stream);
    }
    assert_eq!(browser.page("/").await.status, StatusCode::OK);
}

#[tokio::test]
async fn request_for_a_host_that_is_not_the_array_is_refused_unread() {
    let node = Node::new().await;
    node.user("alice", Role::Admin).await;
    let alice = node.browser_of("alice").await;
    let port = node.address.port();
    for ours in ["node1", "NODE1:8443", "127.0.0.1", &node.address.to_string()] {
        let page = alice.but("host", Some(ours)).ask(Method::GET, "/api/v1/status", "").await;
        assert_eq!(page.status, StatusCode::OK, "{ours}: {}", page.text);
    }
    for other in ["evil.example", &format!("evil.example:{port}"), "10.9.9.9", "node1.evil.example", "", "a b"] {
        let page = alice.but("host", Some(other)).ask(Method::GET, "/api/v1/status", "").await;
        assert_eq!(page.status, StatusCode::MISDIRECTED_REQUEST, "{other}: {}", page.text);
        assert!(page.text.contains("BY-1833"), "{}", page.text);
        assert_eq!(alice.but("host", Some(other)).page("/").await.status, StatusCode::MISDIRECTED_REQUEST, "{other}");
    }
    // Host header twice, absent, or different from an absolute target.
    for head in [
        "GET / HTTP/1.1\r\nHost: node1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET https://evil.example/ HTTP/1.1\r\nHost: node1\r\nConnection: close\r\n\r\n",
    ] {
        let mut stream = alice.connect().await.expect("connects");
        stream.write_all(head.as_bytes()).await.expect("sends");
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text).await;
        let text = String::from_utf8_lossy(&text);
        assert!(text.starts_with("HTTP/1.1 421") || text.starts_with("HTTP/1.1 400"), "{head}: {text}");
    }
}

#[test]
fn certificate_that_is_not_valid_now_or_not_for_long_is_a_problem() {
    let day = 24 * 3600;
    let now = Timestamp::from_unix(1_795_000_000);
    let of = |from: Timestamp, until: Timestamp, generated: bool| {
        let (names, fingerprint, pin) = Default::default();
        unfit(&CertificateReport { generated, names, from, until, fingerprint, pin }, now)
    };
    assert_eq!(of(now.minus(day), now.plus(60 * day), false), None);
    let state = |problem: Option<Problem>| problem.map(|problem| problem.state);
    assert_eq!(state(of(now.plus(1), now.plus(60 * day), false)).as_deref(), Some("not valid yet"));
    assert_eq!(state(of(Timestamp::from_unix(0), now, false)).as_deref(), Some("expired"));
    let soon = of(now.minus(day), now.plus(13 * day), false).expect("it ends");
    assert_eq!((soon.state.as_str(), soon.severity), ("about to expire", Severity::Warning));
    assert!(soon.action.contains("correct the clock"), "{}", soon.action);
}
