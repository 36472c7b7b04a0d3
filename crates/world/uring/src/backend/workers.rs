//! A few threads that do disk I/O where io_uring is not there.

use crate::operation::{Done, Operation, Token};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the workers of a shard that ends may take for what they have begun.
const FAREWELL: Duration = Duration::from_secs(2);

/// Threads, started when there is work and none is idle, up to a bound; idle ones sleep.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads_max: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    left: Condvar,
    wake: Arc<OwnedFd>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Token, Operation)>,
    done: Vec<Done>,
    threads: usize,
    idle: usize,
    closing: bool,
}

impl Workers {
    /// At most `threads_max` threads, which write to `wake` when there is something to take.
    pub fn new(threads_max: usize, wake: Arc<OwnedFd>) -> Self {
        let shared = Shared { queue: Mutex::default(), work: Condvar::new(), left: Condvar::new(), wake };
        Self { shared: Arc::new(shared), threads_max: threads_max.max(1) }
    }

    /// Queues an operation.
    pub fn start(&self, token: Token, operation: Operation) {
        let mut queue = self.shared.lock();
        queue.jobs.push_back((token, operation));
        if queue.jobs.len() > queue.idle && queue.threads < self.threads_max {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("disk".to_owned());
            match thread.spawn(move || shared.work()) {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads > 0 => tracing::debug!("one thread less for disks: {error}"),
                Err(error) => {
                    tracing::error!("there is no thread for disk I/O: {error}");
                    let (token, operation) = queue.jobs.pop_back().expect("it was queued above");
                    let landed = crate::operation::Landed { operation, result: Err(Errno::IO) };
                    queue.done.push(Done { token, landed });
                    self.shared.ring_the_bell();
                }
            }
        }
        drop(queue);
        self.shared.work.notify_one();
    }

    /// Adds what has landed to `done`.
    pub fn reap(&self, done: &mut Vec<Done>) {
        done.append(&mut self.shared.lock().done);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closing = true;
        self.shared.work.notify_all();
        let left = self.shared.left.wait_timeout_while(queue, FAREWELL, |queue| queue.threads > 0);
        queue = left.unwrap_or_else(PoisonError::into_inner).0;
        if queue.threads > 0 {
            // They own what they work on, so it is safe to leave them to it.
            tracing::warn!(threads = queue.threads, "a disk did not answer until the end");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring_the_bell(&self) {
        crate::bell::ring_bell(&self.wake);
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            let Some((token, operation)) = queue.jobs.pop_front() else {
                if queue.closing {
                    break;
                }
                queue.idle += 1;
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            let landed = operation.perform();
            queue = self.lock();
            let first = queue.done.is_empty();
            queue.done.push(Done { token, landed });
            if first {
                self.ring_the_bell();
            }
        }
        queue.threads -= 1;
        self.left.notify_all();
    }
}
