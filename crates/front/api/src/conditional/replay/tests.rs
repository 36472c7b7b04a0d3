use super::*;
use futures_util::FutureExt;
use std::sync::atomic::{AtomicU32, Ordering};

fn key(caller: &str, key: &str) -> Key {
    Key { caller: caller.to_owned(), key: key.to_owned() }
}

/// Change that counts how often it is made.
async fn ask(
    replays: &Arc<IdempotencyStore>,
    key: Key,
    print: u8,
    status: u16,
    made: &Arc<AtomicU32>,
) -> Result<Response, Refusal> {
    let made = made.clone();
    let status = StatusCode::from_u16(status).expect("a status");
    let change = async move {
        tokio::task::yield_now().await;
        let n = made.fetch_add(1, Ordering::SeqCst);
        Ok((status, format!("change {n}")).into_response())
    };
    replays.once(key, [print; 32], change).await
}

async fn text(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), 1 << 20).await.expect("a body").to_vec()).expect("text")
}

#[tokio::test]
async fn change_with_a_key_is_made_once_and_answered_the_same() {
    let (replays, made) = (Arc::<IdempotencyStore>::default(), Arc::new(AtomicU32::new(0)));
    let (first, second) =
        tokio::join!(ask(&replays, key("a", "k"), 1, 201, &made), ask(&replays, key("a", "k"), 1, 201, &made));
    let (first, second) = (first.expect("an answer"), second.expect("an answer"));
    assert_eq!((first.status(), first.headers().get(REPLAYED)), (StatusCode::CREATED, None));
    assert_eq!(second.headers().get(REPLAYED).map(|value| value.as_bytes()), Some(b"true".as_slice()));
    assert_eq!((text(first).await, text(second).await), ("change 0".to_owned(), "change 0".to_owned()));
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn key_is_its_callers_and_its_requests_own() {
    let (replays, made) = (Arc::<IdempotencyStore>::default(), Arc::new(AtomicU32::new(0)));
    ask(&replays, key("a", "k"), 1, 409, &made).await.expect("a refusal is an answer, and kept");
    let refusal = ask(&replays, key("a", "k"), 2, 201, &made).await.expect_err("another request");
    assert_eq!(refusal.code, code::KEY_REUSED);
    let other = ask(&replays, key("b", "k"), 2, 201, &made).await.expect("another caller's key");
    assert_eq!(text(other).await, "change 1");
    assert_eq!(ask(&replays, key("a", "k"), 1, 201, &made).await.expect("kept").status(), StatusCode::CONFLICT);
}

#[tokio::test]
async fn bugs_and_outages_are_not_kept() {
    let (replays, made) = (Arc::<IdempotencyStore>::default(), Arc::new(AtomicU32::new(0)));
    for n in 0..3 {
        let answer = ask(&replays, key("a", "k"), 1, 503, &made).await.expect("an answer");
        assert_eq!(text(answer).await, format!("change {n}"));
    }
}

#[tokio::test]
async fn change_goes_on_when_its_asker_hangs_up() {
    let (replays, made) = (Arc::<IdempotencyStore>::default(), Arc::new(AtomicU32::new(0)));
    let gone = ask(&replays, key("a", "k"), 1, 201, &made).now_or_never();
    assert!(gone.is_none(), "the asker did not wait");
    let answer = ask(&replays, key("a", "k"), 1, 201, &made).await.expect("an answer");
    assert_eq!((text(answer).await.as_str(), made.load(Ordering::SeqCst)), ("change 0", 1));
}

#[test]
fn what_is_kept_is_bounded_and_grows_old() {
    let replays = IdempotencyStore::default();
    let now = Instant::now();
    for n in 0..3 * KEPT_MAX {
        replays.entry(&key("a", &n.to_string()), [0; 32], now);
    }
    let kept = || replays.kept.lock().expect("not poisoned").entries.len();
    assert!(kept() <= KEPT_MAX, "{}", kept());
    replays.entry(&key("a", "late"), [0; 32], now + KEPT_FOR);
    assert_eq!(kept(), 1);
}
