//! The door to the network, as strangers and browsers meet it.

pub(crate) mod browser;

use self::browser::{Browser, Node};
use crate::web::{HANDSHAKE, HEAD, unfit};
use hyper::{Method, StatusCode};
use model::{CertificateReport, Problem, Severity, Timestamp};
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
    // A ClientHello of TLS 1.2 without the extension of later versions.
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
    stream.write_all(b"GET /pools HTTP/1.1\r\nHost: array1:8443\r\n\r\n").await.expect("sends");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    assert!(text.starts_with("HTTP/1.1 308") && text.contains("Location: https://array1:8443/pools\r\n"), "{text}");
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
async fn flood_of_connections_is_bounded_and_others_are_served() {
    let node = Node::new().await;
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(TcpStream::connect(node.address).await.expect("connects"));
    }
    // All of the address' seats are taken: one more is closed without a word.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(Browser::of(&node).connect().await.is_err());
    drop(held);
    let begun = Instant::now();
    while Browser::of(&node).connect().await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(5), "seats come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
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
    assert_eq!(state(of(Timestamp::from_unix(0), now, false)).as_deref(), Some("over"));
    let soon = of(now.minus(day), now.plus(13 * day), false).expect("it ends");
    assert_eq!((soon.state.as_str(), soon.severity), ("ending soon", Severity::Warning));
    assert!(soon.action.contains("set the clock right"), "{}", soon.action);
}
