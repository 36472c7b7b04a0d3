//! Worker threads for disk I/O where io_uring is not available.

use crate::operation::{Done, Landed, Operation, Token};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Limit on the wait for operations in flight when a shard ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Idle time after which a worker thread ends.
const IDLE: Duration = Duration::from_secs(10);

/// Thread pool, grown on demand. Each file has a limited number of threads: a disk that hangs blocks its own threads
/// and no others.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    left: Condvar,
    wake: Arc<OwnedFd>,
    threads_per_file_max: usize,
    perform: fn(Operation) -> Landed,
}

#[derive(Default)]
struct Queue {
    files: BTreeMap<FileKey, FileQueue>,
    /// One entry per operation that may start now, naming its file.
    ready: VecDeque<FileKey>,
    done: Vec<Done>,
    threads: usize,
    /// Threads without an operation, including those just started.
    idle: usize,
    closing: bool,
}

/// Address of the open file's `Arc`; unique while an operation holds it.
type FileKey = usize;

/// Queue of one open file.
#[derive(Default)]
struct FileQueue {
    jobs: VecDeque<(Token, Operation)>,
    /// Number of entries in `ready`: at most one per queued job.
    ready: usize,
    /// Number of threads that work on the file.
    running: usize,
}

impl Workers {
    /// Returns a pool with at most `threads_per_file_max` threads for each open file. They write to `wake` when results
    /// are ready.
    pub fn new(threads_per_file_max: usize, wake: Arc<OwnedFd>) -> Self {
        Self::performing(threads_per_file_max, wake, Operation::perform)
    }

    fn performing(threads_per_file_max: usize, wake: Arc<OwnedFd>, perform: fn(Operation) -> Landed) -> Self {
        let (queue, work, left) = Default::default();
        let threads_per_file_max = threads_per_file_max.max(1);
        Self { shared: Arc::new(Shared { queue, work, left, wake, threads_per_file_max, perform }) }
    }

    /// Queues an operation, and starts a thread when none is idle.
    pub fn start(&self, token: Token, operation: Operation) {
        let mut queue = self.shared.lock();
        let key = operation.file().map_or(0, |file| Arc::as_ptr(file).addr());
        queue.files.entry(key).or_default().jobs.push_back((token, operation));
        // No effect at the limit: then the end of an earlier operation of the file starts this one.
        queue.make_ready(key, self.shared.threads_per_file_max);
        // A thread is started only if no idle one is left for the work.
        if queue.ready.len() > queue.idle {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("disk".to_owned());
            match thread.spawn(move || shared.work()) {
                Ok(_) => (queue.threads, queue.idle) = (queue.threads + 1, queue.idle + 1),
                // Fewer threads only make it slower; without any, the operation has to fail, or its caller would wait
                // forever.
                Err(error) if queue.threads > 0 => {
                    tracing::debug!("an additional disk thread could not be started: {error}")
                }
                Err(error) => {
                    tracing::error!("no thread could be started for disk I/O: {error}");
                    let (key, (token, operation)) = queue.take().expect("it was queued above");
                    queue.landed(key, Done { token, landed: Landed { operation, result: Err(Errno::IO) } });
                    self.shared.wake_shard();
                }
            }
        }
        // Notified without the lock, which the woken thread needs first.
        drop(queue);
        self.shared.work.notify_one();
    }

    /// Moves all results to `done`.
    pub fn reap(&self, done: &mut Vec<Done>) {
        done.append(&mut self.shared.lock().done);
    }
}

impl Queue {
    /// Marks one more operation of the file as ready, if one is queued and the file has not reached its limit of
    /// threads.
    fn make_ready(&mut self, key: FileKey, threads_per_file_max: usize) {
        let Some(file) = self.files.get_mut(&key) else { return };
        // Bounded per file: a disk that does not respond must not occupy more threads.
        if file.jobs.len() > file.ready && file.ready + file.running < threads_per_file_max {
            file.ready += 1;
            self.ready.push_back(key);
        }
    }

    /// Takes the next ready operation and its file, and counts it as running.
    fn take(&mut self) -> Option<(FileKey, (Token, Operation))> {
        let key = self.ready.pop_front()?;
        let file = self.files.get_mut(&key)?;
        file.ready -= 1;
        file.running += 1;
        Some((key, file.jobs.pop_front()?))
    }

    /// Stores the result of an operation that was taken.
    fn landed(&mut self, key: FileKey, done: Done) {
        self.done.push(done);
        let Some(file) = self.files.get_mut(&key) else { return };
        file.running -= 1;
        // Removed when idle: the address may be reused by another file afterwards.
        if file.running == 0 && file.jobs.is_empty() {
            self.files.remove(&key);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        // Idle threads end now, busy ones after their operation; queued operations are still performed.
        queue.closing = true;
        self.shared.work.notify_all();
        let left = self.shared.left.wait_timeout_while(queue, SHUTDOWN_TIMEOUT, |queue| queue.threads > 0);
        queue = left.unwrap_or_else(PoisonError::into_inner).0;
        if queue.threads > 0 {
            // The threads own their operations, so leaving them behind is safe.
            tracing::warn!(threads = queue.threads, "disk operations did not complete before shutdown");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_shard(&self) {
        crate::wake_event::notify(&self.wake);
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            let Some((key, (token, operation))) = queue.take() else {
                if queue.closing {
                    break;
                }
                let waited = self.work.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
                queue = waited.0;
                // Work that arrived together with the timeout is still done.
                if waited.1.timed_out() && queue.ready.is_empty() {
                    break;
                }
                continue;
            };
            // Under the lock: `start` must not count on a thread that is about to block in its operation.
            queue.idle -= 1;
            drop(queue);
            // Without the lock: this blocks for as long as the disk does not respond.
            let landed = (self.perform)(operation);
            queue = self.lock();
            queue.idle += 1;
            // Only the first result wakes the shard, which then takes all of them.
            let first = queue.done.is_empty();
            queue.landed(key, Done { token, landed });
            // This operation no longer counts, so the next one of the same file may start.
            queue.make_ready(key, self.threads_per_file_max);
            if first {
                self.wake_shard();
            }
        }
        (queue.threads, queue.idle) = (queue.threads - 1, queue.idle - 1);
        self.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Buf;
    use rustix::event::{EventfdFlags, eventfd};
    use std::fs::File;
    use std::sync::RwLock;
    use std::time::Instant;

    const HANGS: u64 = 1 << 40;

    /// Held for writing while the disk hangs.
    static HANGING: RwLock<()> = RwLock::new(());

    fn perform(operation: Operation) -> Landed {
        if matches!(operation, Operation::Read { offset: HANGS, .. }) {
            drop(HANGING.read().expect("nobody panics with it"));
        }
        operation.perform()
    }

    fn read(file: &Arc<OwnedFd>, offset: u64) -> Operation {
        Operation::Read { file: file.clone(), offset, buf: Buf::zeroed(512), filled: 0 }
    }

    fn wait_for(workers: &Workers, count: usize) -> Vec<Token> {
        let (mut done, until) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        while done.len() < count {
            assert!(Instant::now() < until, "{} of {count}", done.len());
            workers.reap(&mut done);
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut tokens: Vec<Token> = done.into_iter().map(|done| done.token).collect();
        tokens.sort_unstable();
        tokens
    }

    /// A hanging disk once occupied all threads of its shard, and healthy disks were reported as not responding.
    #[test]
    fn disk_that_hangs_holds_its_own_threads_and_no_other() {
        let held = HANGING.write().expect("nobody panics with it");
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor"));
        let workers = Workers::performing(4, wake, perform);
        let open = || Arc::new(OwnedFd::from(File::open("/dev/zero").expect("it is there")));
        let (hanging, healthy) = (open(), open());
        (0..40).for_each(|token| workers.start(token, read(&hanging, HANGS)));
        (40..140).for_each(|token| workers.start(token, read(&healthy, 0)));
        assert_eq!(wait_for(&workers, 100), (40..140).collect::<Vec<_>>());
        let threads = workers.shared.lock().threads;
        drop(held);
        assert!((5..=8).contains(&threads), "four of each disk at most, and {threads} are there");
        assert_eq!(wait_for(&workers, 40), (0..40).collect::<Vec<_>>());
        assert!(workers.shared.lock().files.is_empty(), "what has nothing to do is forgotten");
    }
}
