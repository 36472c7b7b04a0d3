//! Openings under way, each on a thread of its own.
//!
//! `open` of a disk that does not answer may never return, nor the first read, which shows whether direct I/O works. So no shard
//! waits for them: it has its answer or an error within [`DEADLINE`]. An opening that takes longer goes on, is counted, and
//! keeps its path from others until it has ended.

use crate::world::Inner;
use shard::mailbox;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// How long a disk may take to be opened.
const DEADLINE: Duration = Duration::from_secs(10);
/// Openings of this process that may be under way at once, those included for which nobody waits any more.
const AT_ONCE: usize = 32;
/// How often is looked whether an earlier opening has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The paths that are being opened.
static UNDER_WAY: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn under_way() -> MutexGuard<'static, BTreeSet<String>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A path is being opened as long as this is there.
struct Claim(String);

impl Claim {
    /// *Errors*: `TimedOut` while the path, or too many others, are being opened.
    fn of(path: &str) -> io::Result<Self> {
        let mut all = under_way();
        if all.contains(path) {
            return Err(silent(path, "an earlier opening of it has not ended"));
        }
        if all.len() >= AT_ONCE {
            return Err(silent(path, &format!("{AT_ONCE} other disks are being opened and do not answer")));
        }
        all.insert(path.to_owned());
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        under_way().remove(&self.0);
    }
}

fn silent(path: &str, why: &str) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("{path} does not answer: {why}"))
}

/// What `open` gives, which runs on a thread of its own.
///
/// *Errors*: those of `open`; `TimedOut` after [`DEADLINE`]; no thread.
pub(super) async fn on_a_thread<T: Send + 'static>(
    world: &Inner,
    path: &str,
    open: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let until = crate::clock::now() + DEADLINE;
    let claim = loop {
        match Claim::of(path) {
            Err(error) if crate::clock::now() >= until => return Err(error),
            Err(_) => world.sleep_until(crate::clock::now() + LOOK_EVERY).await,
            Ok(claim) => break claim,
        }
    };
    let (tell, told) = mailbox::channel();
    std::thread::Builder::new().name("open".to_owned()).spawn(move || {
        let opened = open();
        drop(claim);
        // Where nobody waits any more, the disk is closed again.
        let _ = tell.send(opened);
    })?;
    let (mut received, mut late) = (pin!(told.receive()), pin!(world.sleep_until(until)));
    poll_fn(|cx| match received.as_mut().poll(cx) {
        Poll::Ready(opened) => Poll::Ready(opened.unwrap_or_else(|| Err(io::Error::other("the thread has died")))),
        Poll::Pending => late
            .as_mut()
            .poll(cx)
            .map(|()| Err(silent(path, &format!("it could not be opened within {} s", DEADLINE.as_secs())))),
    })
    .await
}
