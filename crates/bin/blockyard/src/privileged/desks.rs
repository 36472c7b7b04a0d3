//! Verbs on threads of their own: a disk that does not answer holds the thread that opens it, and no other request.
//!
//! There are at most [`AT_ONCE`] such threads, one for each path; other requests wait for them. A request has its answer within [`PATIENCE`]; what it asked for
//! goes on, keeps its path from others until it has ended, and what it opened is closed then.

use privilege::{Outcome, Verb};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

/// Threads at once.
const AT_ONCE: usize = 64;
/// How long a request waits: less than the daemon waits for a disk to be opened.
const PATIENCE: Duration = Duration::from_secs(8);

type Done<T> = Result<T, Errno>;

/// The paths that something is done with now. Requests without a path stand for themselves.
#[derive(Clone)]
pub(super) struct Desks {
    at_work: Arc<Mutex<BTreeSet<(PathBuf, u32)>>>,
    /// A thread has ended.
    ended: Arc<Notify>,
    patience: Duration,
}

impl Default for Desks {
    fn default() -> Self {
        Self { at_work: Arc::default(), ended: Arc::default(), patience: PATIENCE }
    }
}

/// A place among those that are at work.
struct Desk {
    desks: Desks,
    of: (PathBuf, u32),
}

impl Desks {
    /// What `work`, which may block, gives for the request with this number.
    ///
    /// *Errors*: `ALREADY` while an earlier request for the same path has not ended, `AGAIN` while too many have not, `TIMEDOUT`.
    pub(super) async fn carry<T: Send + 'static>(
        &self,
        verb: &Verb,
        number: u32,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Done<T> {
        let until = Instant::now() + self.patience;
        let desk = loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            match self.take(verb, number) {
                Ok(desk) => break desk,
                Err(errno) => timeout_at(until, ended).await.map_err(|_| errno)?,
            }
        };
        let (tell, told) = oneshot::channel();
        let thread = std::thread::Builder::new().name("disk".to_owned()).spawn(move || {
            let done = work();
            drop(desk);
            // Nobody waits any more where it took too long: a descriptor is closed here.
            let _ = tell.send(done);
        });
        thread.map_err(|_| Errno::AGAIN)?;
        match timeout_at(until, told).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err(Errno::IO),
            Err(_) => Err(Errno::TIMEDOUT),
        }
    }

    fn take(&self, verb: &Verb, number: u32) -> Done<Desk> {
        let of = match verb {
            Verb::Open { path, .. } => (path.clone(), 0),
            _ => (PathBuf::new(), number),
        };
        let mut all = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= AT_ONCE {
            return Err(Errno::AGAIN);
        }
        if !all.insert(of.clone()) {
            return Err(Errno::ALREADY);
        }
        Ok(Desk { desks: self.clone(), of })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.desks.at_work.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.of);
        self.desks.ended.notify_waiters();
    }
}

/// The answer for a verb that was not carried out.
pub(super) fn outcome_of(errno: Errno) -> (Outcome, Option<OwnedFd>) {
    (Outcome::Failed { errno: errno.raw_os_error() }, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use privilege::Mode;
    use std::sync::mpsc::channel;

    fn open(path: &str) -> Verb {
        Verb::Open { path: path.into(), mode: Mode { write: true, direct: true } }
    }

    /// One thread did everything, and a disk whose opening hung held all others.
    #[tokio::test]
    async fn opening_that_hangs_holds_its_own_path_and_no_other() {
        let desks = Desks { patience: Duration::from_millis(50), ..Desks::default() };
        let (end, ended) = channel::<()>();
        let (done, is_done) = channel();
        let hangs = move || {
            let _ = ended.recv();
            let _ = done.send(());
        };
        assert_eq!(desks.carry(&open("/dev/hangs"), 1, hangs).await, Err(Errno::TIMEDOUT));
        assert_eq!(desks.carry(&open("/dev/hangs"), 2, || 2).await, Err(Errno::ALREADY));
        assert_eq!(desks.take(&open("/dev/well"), 3).map(drop), Ok(()));
        let many: Vec<Desk> = (1..AT_ONCE as u32)
            .map(|number| desks.take(&open(&format!("/dev/d{number}")), number).expect("there is a desk"))
            .collect();
        assert_eq!(desks.carry(&open("/dev/well"), 4, || 4).await, Err(Errno::AGAIN));
        drop(many);
        drop(end);
        is_done.recv().expect("it ends");
        while !desks.at_work.lock().expect("nobody panics").is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(desks.take(&open("/dev/hangs"), 5).map(drop), Ok(()), "it has ended");
    }
}
