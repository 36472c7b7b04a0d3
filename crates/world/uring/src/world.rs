//! One shard's view of Linux.

use crate::bell::{new_bell, ring_bell};
use crate::clock;
use crate::disk::{Disk, identity};
use crate::net::{self, TcpListener, TcpStream};
use crate::operation::Wait;
use crate::options::{FilesLike, Io, Options, Privileges};
use crate::reactor::Reactor;
use crate::spin::Spin;
use crate::stop::Stop;
use shard::time::{Sleep, Timers};
use shard::{DiskFacts, DiskOptions, Executor, StreamHandle, StreamOptions, Time, World};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// How long ready tasks run between two looks at the kernel: what they do for each other needs no system call, and what has come meanwhile waits.
const LOOK_AWAY: Duration = Duration::from_micros(50);

/// A wait that takes less found its news there already.
const REST: Duration = Duration::from_micros(3);

/// The [`World`] of the shard that this thread is.
#[derive(Clone)]
pub struct Uring(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub executor: Executor,
    pub reactor: RefCell<Reactor>,
    timers: Timers,
    rests: Cell<u64>,
    stop: Stop,
    spin: RefCell<Spin>,
    /// What files behave like.
    pub media: Vec<FilesLike>,
    /// Who does what this process may not.
    pub privileges: Option<Privileges>,
}

impl Uring {
    /// A world on this thread. Its tasks run while [`Uring::drive`] does.
    pub(crate) fn new(options: &Options, stop: Stop) -> io::Result<Self> {
        let bell = new_bell()?;
        let reactor = RefCell::new(Reactor::new(options, bell.clone())?);
        let executor = Executor::new(Box::new(move || ring_bell(&bell)));
        let spin = RefCell::new(Spin::new(options.busy_poll));
        Ok(Self(Rc::new(Inner {
            executor,
            reactor,
            timers: Timers::default(),
            rests: Cell::new(0),
            stop,
            spin,
            media: options.media.clone(),
            privileges: options.privileges.clone(),
        })))
    }

    /// Is ready once this shard's [`Stop`] was pulled.
    pub fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let stop = self.0.stop.clone();
        poll_fn(move |cx| stop.poll(cx))
    }

    /// Which interface of the kernel carries the I/O of this shard: never [`Io::Auto`].
    #[must_use]
    pub fn interface(&self) -> Io {
        self.0.reactor.borrow().interface()
    }

    /// Turns the reactor until `is_over`: run tasks, fire timers, submit, wait, reap.
    pub(crate) fn drive(&self, is_over: impl Fn() -> bool) -> io::Result<()> {
        let inner = &*self.0;
        while !is_over() {
            let mut now = clock::now();
            let look = now + LOOK_AWAY;
            loop {
                inner.executor.run_ready();
                now = clock::now();
                if is_over() || !inner.executor.is_ready() || now >= look {
                    break;
                }
            }
            inner.timers.fire(now);
            if !inner.executor.is_ready() && !is_over() {
                inner.search()?;
            }
            if !is_over() && inner.executor.announce_sleep() {
                let mut reactor = inner.reactor.borrow_mut();
                let slept = reactor.wait(inner.until_next_timer());
                // Before anybody is woken: the bell is for wakes from other threads, and each rings once more than needed.
                inner.executor.announce_awake();
                reactor.land();
                slept?;
                inner.rested(now);
            } else {
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
            Some(Duration::ZERO) => Wait::No,
            Some(duration) => Wait::AtMost(duration),
        }
    }

    /// Looks for work without sleeping, while that pays.
    fn search(&self) -> io::Result<()> {
        let mut spin = self.spin.borrow_mut();
        let Some(limit) = spin.chance() else { return Ok(()) };
        // What was started must be with the kernel before anything can come back.
        self.reactor.borrow_mut().turn(Wait::No)?;
        let began = clock::now();
        while !self.executor.is_ready() {
            if clock::now().since(began) >= limit {
                spin.learn(false);
                return Ok(());
            }
            if self.reactor.borrow_mut().has_news() {
                self.reactor.borrow_mut().turn(Wait::No)?;
            }
            std::hint::spin_loop();
        }
        spin.learn(true);
        self.rested(began);
        Ok(())
    }

    /// Nothing was to be done since then.
    fn rested(&self, since: Time) {
        if clock::now().since(since) >= REST {
            self.rests.set(self.rests.get() + 1);
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
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
    }

    fn random(&self, out: &mut [u8]) {
        let mut rest = out;
        while !rest.is_empty() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut *rest, flags) {
                Ok(filled) => rest = &mut rest[filled..],
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => panic!("the kernel gives no random bytes: {errno}"),
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(task);
    }

    fn rests(&self) -> u64 {
        self.0.rests.get()
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
