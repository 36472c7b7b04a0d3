//! Worker threads of the helper: a disk that does not answer blocks the thread that opens it, and no other request.
//!
//! At most [`AT_ONCE`] threads run, one per path; further requests wait. A request is answered within [`PATIENCE`]. Its
//! thread continues after a timeout, keeps its path locked until it has ended, and closes what it opened.

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

/// Maximum number of threads.
const AT_ONCE: usize = 64;
/// Timeout of a request: below the daemon's own timeout for opening a disk.
const PATIENCE: Duration = Duration::from_secs(8);

type Done<T> = Result<T, Errno>;

/// Registry of the threads that are running, by path. A request without a path is registered by its number.
#[derive(Clone)]
pub(super) struct Workers {
    at_work: Arc<Mutex<BTreeSet<(PathBuf, u32)>>>,
    /// Notified when a thread has ended.
    ended: Arc<Notify>,
    patience: Duration,
}

impl Default for Workers {
    fn default() -> Self {
        Self { at_work: Arc::default(), ended: Arc::default(), patience: PATIENCE }
    }
}

/// Registration of one running thread; dropped when the thread ends.
struct PathLock {
    desks: Workers,
    of: (PathBuf, u32),
}

impl Workers {
    /// Runs `work`, which may block, on a thread for the request with this number, and returns its result.
    ///
    /// *Errors*: `ALREADY` while an earlier request for the same path has not ended, `AGAIN` while too many have not,
    /// `TIMEDOUT`.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        verb: &Verb,
        number: u32,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Done<T> {
        let until = Instant::now() + self.patience;
        let desk = loop {
            // Registered before the attempt, so that a thread that ends in between is not missed.
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            match self.take(verb, number) {
                Ok(desk) => break desk,
                // After the timeout the caller gets the reason for which it waited.
                Err(errno) => timeout_at(until, ended).await.map_err(|_| errno)?,
            }
        };
        let (tell, told) = oneshot::channel();
        // Not `spawn_blocking`: dropping the runtime would wait for a thread that a disk holds.
        let thread = std::thread::Builder::new().name("disk".to_owned()).spawn(move || {
            let done = work();
            // The path is free before the answer is sent: the daemon may ask again at once.
            drop(desk);
            // After a timeout there is no receiver, and the descriptor in the result is closed here.
            let _ = tell.send(done);
        });
        // On failure the closure is dropped, and the registration with it.
        thread.map_err(|_| Errno::AGAIN)?;
        match timeout_at(until, told).await {
            Ok(Ok(done)) => Ok(done),
            // The thread panicked; its registration was dropped with it.
            Ok(Err(_)) => Err(Errno::IO),
            Err(_) => Err(Errno::TIMEDOUT),
        }
    }

    fn take(&self, verb: &Verb, number: u32) -> Done<PathLock> {
        let of = match verb {
            // Only opening is exclusive per path: a second open of a disk that hangs would hang as well.
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
        Ok(PathLock { desks: self.clone(), of })
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        self.desks.at_work.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.of);
        self.desks.ended.notify_waiters();
    }
}

/// Returns the answer to a request that could not be carried out.
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

    /// Regression: with a single thread, a disk whose opening hung blocked all others.
    #[tokio::test]
    async fn opening_that_hangs_holds_its_own_path_and_no_other() {
        let desks = Workers { patience: Duration::from_millis(50), ..Workers::default() };
        let (end, ended) = channel::<()>();
        let (done, is_done) = channel();
        let hangs = move || {
            let _ = ended.recv();
            let _ = done.send(());
        };
        assert_eq!(desks.run_blocking(&open("/dev/hangs"), 1, hangs).await, Err(Errno::TIMEDOUT));
        assert_eq!(desks.run_blocking(&open("/dev/hangs"), 2, || 2).await, Err(Errno::ALREADY));
        assert_eq!(desks.take(&open("/dev/well"), 3).map(drop), Ok(()));
        let many: Vec<PathLock> = (1..AT_ONCE as u32)
            .map(|number| desks.take(&open(&format!("/dev/d{number}")), number).expect("there is a desk"))
            .collect();
        assert_eq!(desks.run_blocking(&open("/dev/well"), 4, || 4).await, Err(Errno::AGAIN));
        drop(many);
        drop(end);
        is_done.recv().expect("it ends");
        while !desks.at_work.lock().expect("nobody panics").is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(desks.take(&open("/dev/hangs"), 5).map(drop), Ok(()), "it has exited");
    }
}
