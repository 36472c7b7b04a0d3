//! Opening of disks on threads of their own.
//!
//! `open` of a hanging disk may never return, nor the first read, which probes direct I/O. So no shard waits for them:
//! the caller gets a result or an error within [`DEADLINE`]. An opening that takes longer continues, counts towards the
//! limit, and blocks its path until it has finished (docs/adr/0024).

use crate::world::Inner;
use shard::mailbox;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// Timeout for opening a disk.
const DEADLINE: Duration = Duration::from_secs(10);
/// Limit on openings in progress in this process, including those whose callers have given up.
const AT_ONCE: usize = 32;
/// Interval at which a waiting caller checks whether an earlier opening has finished.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Paths that are being opened.
static UNDER_WAY: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn under_way() -> MutexGuard<'static, BTreeSet<String>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Entry of a path in [`UNDER_WAY`]; removed on drop.
struct Claim(String);

impl Claim {
    /// Claims `path`.
    ///
    /// *Errors*: `TimedOut` while the path, or too many others, are being opened.
    fn of(path: &str) -> io::Result<Self> {
        let mut all = under_way();
        if all.contains(path) {
            return Err(silent(path, "an earlier open of it has not returned"));
        }
        // Each opening of a hanging disk holds a thread, perhaps forever.
        if all.len() >= AT_ONCE {
            return Err(silent(path, &format!("{AT_ONCE} other disks are being opened and do not respond")));
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
    io::Error::new(ErrorKind::TimedOut, format!("{path} does not respond: {why}"))
}

/// Runs `open` on a thread of its own and returns its result.
///
/// *Errors*: those of `open`; `TimedOut` after [`DEADLINE`]; no thread could be started.
pub(super) async fn on_a_thread<T: Send + 'static>(
    world: &Inner,
    path: &str,
    open: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    // One deadline for the claim and the opening together.
    let until = crate::clock::now() + DEADLINE;
    let claim = loop {
        match Claim::of(path) {
            Err(error) if crate::clock::now() >= until => return Err(error),
            // Every error of a claim is temporary: the earlier opening may finish within the deadline.
            Err(_) => world.sleep_until(crate::clock::now() + LOOK_EVERY).await,
            Ok(claim) => break claim,
        }
    };
    let (tell, told) = mailbox::channel();
    std::thread::Builder::new().name("open".to_owned()).spawn(move || {
        let opened = open();
        // Released before the result is sent, so that the receiver can open the path again immediately.
        drop(claim);
        // When the caller has given up, the result is dropped, which closes the disk.
        let _ = tell.send(opened);
    })?;
    let (mut received, mut late) = (pin!(told.receive()), pin!(world.sleep_until(until)));
    poll_fn(|cx| match received.as_mut().poll(cx) {
        Poll::Ready(opened) => {
            Poll::Ready(opened.unwrap_or_else(|| Err(io::Error::other("the thread ended without a result"))))
        }
        Poll::Pending => late
            .as_mut()
            .poll(cx)
            .map(|()| Err(silent(path, &format!("it could not be opened within {} s", DEADLINE.as_secs())))),
    })
    .await
}
