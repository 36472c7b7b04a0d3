//! Logging in, staying logged in, and logging out.

use super::*;
use crate::people::shown_number;
use http_body_util::BodyExt;

async fn link(node: &Node, body: Value) -> String {
    let page = Browser::expect(node.local(Method::POST, "/api/v1/web/links", &body).await, 201);
    let url = page["link"]["url"].as_str().expect("a link").to_owned();
    let (place, secret) = url.split_once("/welcome#").expect("a secret that no server hears of");
    assert!(place.starts_with("https://127.0.0.1:"), "{url}");
    secret.to_owned()
}

async fn follow(browser: &Browser, secret: &str, name: Option<&str>, password: &str) -> Page {
    let body = json!({ "token": secret, "name": name, "password": password }).to_string();
    browser.ask(Method::POST, "/api/v1/session/link", &body).await
}

#[tokio::test]
async fn first_admin_comes_by_a_link_that_is_good_once() {
    let node = Node::new().await;
    let secret = link(&node, json!({})).await;
    let mut browser = Browser::of(&node);
    let weak = follow(&browser, &secret, Some("alice"), "short").await;
    assert!(weak.text.contains("BY-1846"), "{}", weak.text);
    let nameless = follow(&browser, &secret, None, PASSWORD).await;
    assert_eq!(nameless.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", nameless.text);
    let page = follow(&browser, &secret, Some("alice"), PASSWORD).await;
    let session = Browser::expect(Page { headers: page.headers.clone(), ..page }, 201)["session"].clone();
    assert_eq!(
        (&session["name"], &session["role"], &session["auth_method"]),
        (&json!("alice"), &json!("admin"), &json!("session"))
    );
    let cookie = page_cookie(&page.headers);
    for part in ["__Host-blockyard=", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    assert!(!cookie.contains("Domain"));
    browser.headers = vec![("cookie", cookie.split(';').next().expect("a pair").to_owned())];
    Browser::expect(browser.ask(Method::GET, "/api/v1/users", "").await, 200);
    let again = follow(&Browser::of(&node), &secret, Some("mallory"), PASSWORD).await;
    assert!(again.status == StatusCode::FORBIDDEN && again.text.contains("BY-1845"), "{}", again.text);
    // A user who forgot her password gets a link, too, and her other logins end.
    let secret = link(&node, json!({"user": "alice"})).await;
    let other = follow(&Browser::of(&node), &secret, Some("bob"), PASSWORD).await;
    assert_eq!(other.status, StatusCode::FORBIDDEN, "it is hers: {}", other.text);
    Browser::expect(follow(&Browser::of(&node), &secret, None, "another horse battery").await, 201);
    assert_eq!(browser.ask(Method::GET, "/api/v1/users", "").await.status, StatusCode::UNAUTHORIZED);
    let unknown = node.local(Method::POST, "/api/v1/web/links", &json!({"user": "nobody"})).await;
    assert!(unknown.text.contains("BY-1861"), "{}", unknown.text);
}

fn page_cookie(headers: &hyper::HeaderMap) -> String {
    headers.get("set-cookie").and_then(|value| value.to_str().ok()).expect("a cookie").to_owned()
}

#[tokio::test]
async fn wrong_password_costs_time_and_says_nothing_about_who_there_is() {
    let node = Node::new().await;
    node.user("alice", Role::Admin).await;
    let mut answers = Vec::new();
    for name in ["alice", "nobody"] {
        let begun = std::time::Instant::now();
        let page = Browser::of(&node).log_in(name, "wrong horse battery").await;
        assert!(begun.elapsed() >= std::time::Duration::from_secs(1), "{name}: {:?}", begun.elapsed());
        assert_eq!(page.status, StatusCode::UNAUTHORIZED);
        answers.push(page.text);
    }
    assert_eq!(answers[0], answers[1]);
    // While a wrong password is being delayed, other attempts from its address are not judged; after that the right one
    // is not held back.
    let guess = tokio::spawn({
        let mut guesser = Browser::of(&node);
        async move { guesser.log_in("alice", "another wrong battery").await.status }
    });
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    let meanwhile = Browser::of(&node).log_in("alice", PASSWORD).await;
    assert_eq!(meanwhile.status, StatusCode::TOO_MANY_REQUESTS, "{}", meanwhile.text);
    assert!(!meanwhile.header("retry-after").is_empty());
    assert_eq!(guess.await.expect("ends"), StatusCode::UNAUTHORIZED);
    node.browser_of("alice").await;
}

#[tokio::test]
async fn change_takes_the_logins_word_and_our_own_origin() {
    let node = Node::new().await;
    node.user("alice", Role::Admin).await;
    let alice = node.browser_of("alice").await;
    let change = r#"{"name":"bob","role":"viewer"}"#;
    let host = format!("https://{}", node.address);
    for (what, browser) in [
        ("no word", alice.but("x-csrf-token", None)),
        ("another word", alice.but("x-csrf-token", Some(&"0".repeat(64)))),
        ("no origin", alice.but("origin", None)),
        ("another origin", alice.but("origin", Some("https://evil.example"))),
        ("an origin that begins so", alice.but("origin", Some(&format!("{host}.evil.example")))),
        ("no TLS", alice.but("origin", Some(&host.replace("https", "http")))),
        ("null", alice.but("origin", Some("null"))),
        ("another site", alice.but("sec-fetch-site", Some("cross-site"))),
    ] {
        let page = browser.ask(Method::POST, "/api/v1/users", change).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{what}: {}", page.text);
    }
    let cookie = alice.headers[0].1.clone();
    let twice = alice.but("cookie", Some(&format!("{cookie}; {cookie}")));
    assert_eq!(twice.ask(Method::GET, "/api/v1/users", "").await.status, StatusCode::UNAUTHORIZED, "whose is it?");
    Browser::expect(alice.ask(Method::POST, "/api/v1/users", change).await, 201);
    // A foreign page cannot log a browser in either.
    let elsewhere = Browser::of(&node).but("origin", Some("https://evil.example"));
    let login = json!({"name": "alice", "password": PASSWORD}).to_string();
    assert_eq!(elsewhere.ask(Method::POST, "/api/v1/session", &login).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn login_is_never_the_one_that_somebody_else_has_prepared() {
    let node = Node::new().await;
    node.user("alice", Role::Admin).await;
    node.user("mallory", Role::Viewer).await;
    let mallory = node.browser_of("mallory").await;
    let prepared = mallory.headers[0].1.clone();
    let mut alice = Browser::of(&node).but("cookie", Some(&prepared));
    let page = alice.log_in("alice", PASSWORD).await;
    assert_eq!(page.status, StatusCode::CREATED, "{}", page.text);
    assert_ne!(alice.headers[0].1, prepared, "a login has a number of its own");
    // A cookie that was planted in a browser gives no more than the login of its owner.
    assert_eq!(mallory.ask(Method::GET, "/api/v1/users", "").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn login_is_ended_by_logging_out_by_its_user_by_a_new_password_and_by_an_admin() {
    let node = Node::new().await;
    node.user("alice", Role::Viewer).await;
    node.user("boss", Role::Admin).await;
    let lives =
        async |browser: &Browser| browser.ask(Method::GET, "/api/v1/session", "").await.status == StatusCode::OK;
    let (first, second) = (node.browser_of("alice").await, node.browser_of("alice").await);
    assert_ne!(first.headers[0].1, second.headers[0].1, "each login has a cookie of its own");
    let out = second.ask(Method::DELETE, "/api/v1/session", "").await;
    assert!(out.header("set-cookie").contains("Max-Age=0"), "{:?}", out.headers);
    assert!(!lives(&second).await && lives(&first).await);

    let second = node.browser_of("alice").await;
    let boss = node.browser_of("boss").await;
    let own = Browser::expect(first.ask(Method::GET, "/api/v1/logins", "").await, 200);
    assert_eq!(own["logins"].as_array().map(Vec::len), Some(2), "a viewer sees its own: {own}");
    let all = Browser::expect(boss.ask(Method::GET, "/api/v1/logins", "").await, 200);
    assert_eq!(all["logins"].as_array().map(Vec::len), Some(3));
    let of_boss = all["logins"].as_array().expect("a list").iter().find(|login| login["user"] == "boss").expect("his");
    let his = format!("/api/v1/logins/{}", of_boss["id"].as_str().expect("an id"));
    assert_eq!(first.ask(Method::DELETE, &his, "").await.status, StatusCode::NOT_FOUND, "not hers to end");

    let wrong = json!({"old_password": "wrong horse battery", "password": "a brand new password"}).to_string();
    let refused = first.ask(Method::POST, "/api/v1/session/password", &wrong).await;
    assert!(refused.text.contains("BY-1847"), "{}", refused.text);
    let right = json!({"old_password": PASSWORD, "password": "a brand new password"}).to_string();
    Browser::expect(first.ask(Method::POST, "/api/v1/session/password", &right).await, 200);
    assert!(lives(&first).await && !lives(&second).await, "others are over, one's own stays");

    let hers = Browser::expect(boss.ask(Method::GET, "/api/v1/logins?search=alice", "").await, 200);
    let hers = format!("/api/v1/logins/{}", hers["logins"][0]["id"].as_str().expect("an id"));
    assert_eq!(boss.ask(Method::DELETE, &hers, "").await.status, StatusCode::NO_CONTENT);
    assert!(!lives(&first).await);
    let last = boss.ask(Method::PATCH, "/api/v1/users/boss", r#"{"role":"viewer"}"#).await;
    assert!(last.text.contains("BY-1848"), "{}", last.text);
}

#[tokio::test]
async fn second_factor_is_offered_confirmed_and_asked_for() {
    let node = Node::new().await;
    node.user("alice", Role::Operator).await;
    let alice = node.browser_of("alice").await;
    let prove = json!({ "password": PASSWORD }).to_string();
    let offered = Browser::expect(alice.ask(Method::POST, "/api/v1/session/second-factor", &prove).await, 200);
    let secret = offered["second_factor"]["secret"].as_str().expect("a secret").to_owned();
    assert!(offered["second_factor"]["link"].as_str().is_some_and(|link| link.contains(&secret)));
    let confirm = "/api/v1/session/second-factor/confirm";
    let wrong = alice.ask(Method::POST, confirm, r#"{"code":"000000"}"#).await;
    assert_eq!(wrong.status, StatusCode::FORBIDDEN, "{}", wrong.text);
    node.browser_of("alice").await;
    let number = shown_number(&secret);
    Browser::expect(alice.ask(Method::POST, confirm, &json!({"code": number}).to_string()).await, 200);

    let wanted = Browser::of(&node).log_in("alice", PASSWORD).await;
    assert!(wanted.status == StatusCode::UNAUTHORIZED && wanted.text.contains("BY-1843"), "{}", wanted.text);
    let both = |number: &str| json!({"name": "alice", "password": PASSWORD, "code": number}).to_string();
    let used = Browser::of(&node).ask(Method::POST, "/api/v1/session", &both(&number)).await;
    assert_eq!(used.status, StatusCode::UNAUTHORIZED, "a number is good once: {}", used.text);
    let kept = node.control.core.document("people").expect("reads").expect("is there");
    assert!(kept["users"]["alice"]["second_factor"]["secret"].is_string());
    let files = std::fs::read_dir(node.dir.path().join("state/state")).expect("a folder");
    let file: Vec<u8> = files.flat_map(|file| std::fs::read(file.expect("an entry").path()).expect("reads")).collect();
    let plain = kept["users"]["alice"]["second_factor"]["secret"].as_str().expect("text").as_bytes().to_vec();
    assert!(!file.windows(plain.len()).any(|window| window == plain), "it is sealed on disk");
    Browser::expect(node.local(Method::PATCH, "/api/v1/users/alice", &json!({"no_second_factor": true})).await, 200);
    node.browser_of("alice").await;
}

#[tokio::test]
async fn stream_ends_with_the_login_that_asked_for_it() {
    let node = Node::new().await;
    node.user("alice", Role::Viewer).await;
    let alice = node.browser_of("alice").await;
    let stranger = Browser::of(&node).open(Method::GET, "/api/v1/stream", "").await;
    assert_eq!(stranger.status(), StatusCode::UNAUTHORIZED);
    let stream = alice.open(Method::GET, "/api/v1/stream", "").await;
    assert_eq!(stream.status(), StatusCode::OK);
    let mut body = stream.into_body();
    let soon = std::time::Duration::from_secs(10);
    let first = tokio::time::timeout(soon, body.frame()).await.expect("it speaks").expect("it goes on");
    assert!(first.is_ok());
    alice.ask(Method::DELETE, "/api/v1/session", "").await;
    let ended = async { while body.frame().await.is_some_and(|frame| frame.is_ok()) {} };
    tokio::time::timeout(soon, ended).await.expect("it ends");
}
