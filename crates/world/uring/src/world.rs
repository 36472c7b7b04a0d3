//! World of one shard on Linux, and its reactor loop.

use crate::clock;
use crate::disk::{Disk, identity};
use crate::net::{self, TcpListener, TcpStream};
use crate::operation::Wait;
use crate::options::{FilesLike, Io, Options, Privileges};
use crate::reactor::Reactor;
use crate::spin::Spin;
use crate::stop::Stop;
use crate::wake_event::{new_wake_event, notify};
use shard::time::{Sleep, Timers};
use shard::{DiskFacts, DiskOptions, Executor, StreamHandle, StreamOptions, Time, World};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Time for which ready tasks run between two turns. Wakes among tasks need no system call; events of the kernel wait
/// meanwhile.
const TASK_SLICE: Duration = Duration::from_micros(50);

/// Shortest wait that counts as idle; a shorter one found its event already there.
const IDLE_MIN: Duration = Duration::from_micros(3);

/// [`World`] of the shard on this thread.
#[derive(Clone)]
pub struct Uring(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub executor: Executor,
    pub reactor: RefCell<Reactor>,
    timers: Timers,
    idle_count: Cell<u64>,
    stop: Stop,
    spin: RefCell<Spin>,
    /// Latency models of files.
    pub media: Vec<FilesLike>,
    /// Helper for privileged operations; `None` when this process has the privileges.
    pub privileges: Option<Privileges>,
}

impl Uring {
    /// Creates a world on this thread. Its tasks run during [`Uring::drive`].
    pub(crate) fn new(options: &Options, stop: Stop) -> io::Result<Self> {
        let bell = new_wake_event()?;
        let reactor = RefCell::new(Reactor::new(options, bell.clone())?);
        let executor = Executor::new(Box::new(move || notify(&bell)));
        let spin = RefCell::new(Spin::new(options.busy_poll));
        Ok(Self(Rc::new(Inner {
            executor,
            reactor,
            timers: Timers::default(),
            idle_count: Cell::new(0),
            stop,
            spin,
            media: options.media.clone(),
            privileges: options.privileges.clone(),
        })))
    }

    /// Waits until the [`Stop`] of this shard was requested.
    pub fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let stop = self.0.stop.clone();
        poll_fn(move |cx| stop.poll(cx))
    }

    /// Kernel interface of this shard; never [`Io::Auto`].
    #[must_use]
    pub fn interface(&self) -> Io {
        self.0.reactor.borrow().interface()
    }

    /// Runs the reactor until `is_over`: run tasks, fire timers, submit, wait, reap.
    pub(crate) fn drive(&self, is_over: impl Fn() -> bool) -> io::Result<()> {
        let inner = &*self.0;
        while !is_over() {
            let mut now = clock::now();
            let look = now + TASK_SLICE;
            loop {
                // Tasks first, several rounds: most wakes come from other tasks of the shard.
                inner.executor.run_ready();
                now = clock::now();
                if is_over() || !inner.executor.is_ready() || now >= look {
                    break;
                }
            }
            // After the tasks: timers that they have set meanwhile may be due as well.
            inner.timers.fire(now);
            if !inner.executor.is_ready() && !is_over() {
                inner.search()?;
            }
            // Announced before the kernel is asked to wait: a wake from another thread then writes to the wake event.
            if !is_over() && inner.executor.announce_sleep() {
                let mut reactor = inner.reactor.borrow_mut();
                let slept = reactor.wait(inner.until_next_timer());
                // Before any task is woken: the wake event is for other threads, and each wake would write to it
                // needlessly.
                inner.executor.announce_awake();
                reactor.land();
                // Only now: completions that arrived before the error are delivered first.
                slept?;
                inner.count_idle(now);
            } else {
                // Work is ready: submit and reap without sleeping.
                inner.reactor.borrow_mut().turn(Wait::No)?;
            }
        }
        Ok(())
    }
}

impl Inner {
    pub(crate) fn sleep_until(&self, at: Time) -> Sleep {
        self.timers.sleep_until(at)
    }

    fn until_next_timer(&self) -> Wait {
        match self.timers.next().map(|next| next.since(clock::now())) {
            None => Wait::Forever,
            // A due timer: its task is woken in the next round.
            Some(Duration::ZERO) => Wait::No,
            Some(duration) => Wait::AtMost(duration),
        }
    }

    /// Polls for work without sleeping, while that pays off.
    fn search(&self) -> io::Result<()> {
        let mut spin = self.spin.borrow_mut();
        let Some(limit) = spin.budget() else { return Ok(()) };
        // Started operations must be submitted before any can complete.
        self.reactor.borrow_mut().turn(Wait::No)?;
        let began = clock::now();
        while !self.executor.is_ready() {
            if clock::now().since(began) >= limit {
                spin.learn(false);
                return Ok(());
            }
            // With `io_uring` this reads shared memory only, while a turn is a system call.
            if self.reactor.borrow_mut().has_news() {
                self.reactor.borrow_mut().turn(Wait::No)?;
            }
            std::hint::spin_loop();
        }
        spin.learn(true);
        self.count_idle(began);
        Ok(())
    }

    /// Counts an idle period that started at `since`, if it was long enough.
    fn count_idle(&self, since: Time) {
        if clock::now().since(since) >= IDLE_MIN {
            self.idle_count.set(self.idle_count.get() + 1);
        }
    }
}

impl World for Uring {
    type Disk = Disk;
    type Stream = TcpStream;
    type Listener = TcpListener;

    fn now(&self) -> Time {
        clock::now()
    }

    fn unix_time(&self) -> Duration {
        // A clock before 1970 counts as 1970.
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
    }

    fn random(&self, out: &mut [u8]) {
        let mut rest = out;
        while !rest.is_empty() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut *rest, flags) {
                // A signal may shorten a request of more than 256 bytes (getrandom(2)).
                Ok(filled) => rest = &mut rest[filled..],
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => panic!("the kernel returned no random bytes: {errno}"),
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(task);
    }

    fn idle_count(&self) -> u64 {
        self.0.idle_count.get()
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        self.0.sleep_until(at)
    }

    async fn open_disk(&self, path: &str, options: DiskOptions) -> io::Result<Disk> {
        Disk::open(self.0.clone(), path, options).await
    }

    fn describe_disk(&self, path: &str) -> io::Result<DiskFacts> {
        identity::describe(path)
    }

    fn locate_disk(&self, path: &str, on: bool) -> io::Result<()> {
        match &self.0.privileges {
            Some(privileges) => privileges.0.locate(path, on),
            None => identity::locate(path, on),
        }
    }

    fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind(self.0.clone(), address)
    }

    async fn connect(&self, address: SocketAddr, options: StreamOptions) -> io::Result<TcpStream> {
        net::connect(self.0.clone(), address, &options).await
    }

    fn adopt_stream(&self, handle: StreamHandle) -> io::Result<TcpStream> {
        TcpStream::adopt(self.0.clone(), handle)
    }
}
