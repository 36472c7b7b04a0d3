//! Simulated machine that marks entry to and exit from the product's code, so that callgrind counts only the
//! instructions in between.

use shard::time::Sleep;
use shard::{DiskOptions, Listener, PathFacts, Stream, StreamHandle, StreamOptions, Time, World};
use sim::{Sim, SimDisk, SimListener, SimStream};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Number of entries to and exits from the product's code while a [`Counter`] ran.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entries {
    /// Polls of the product's tasks.
    pub turns: u64,
    /// Reads and writes of its sockets, which are system calls on Linux.
    pub socket_calls: u64,
}

/// Switchable counter of entries. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Counter {
    is_running: Rc<Cell<bool>>,
    entries: Rc<Cell<Entries>>,
}

impl Counter {
    /// Starts or stops counting.
    pub(crate) fn run(&self, runs: bool) {
        self.is_running.set(runs);
    }

    /// Returns the counts so far.
    pub(crate) fn entries(&self) -> Entries {
        self.entries.get()
    }
}

/// Runs code of the product. Callgrind starts and stops counting at this symbol, so it must not be inlined; its body
/// differs from [`outside`], so that the compiler does not merge the two functions.
#[inline(never)]
fn inside(entries: &Cell<Entries>, work: &mut dyn FnMut()) {
    let Entries { turns, socket_calls } = entries.get();
    entries.set(Entries { turns: turns + 1, socket_calls });
    work();
}

/// Runs code of the simulated world, during which callgrind does not count.
#[inline(never)]
fn outside(entries: &Cell<Entries>, work: &mut dyn FnMut()) {
    let Entries { turns, socket_calls } = entries.get();
    entries.set(Entries { turns, socket_calls: socket_calls + 1 });
    work();
}

/// World of the product, with counting.
#[derive(Clone)]
pub(crate) struct CountedWorld {
    machine: Sim,
    counter: Counter,
}

/// Listener of the counted world.
pub(crate) struct CountedListener {
    inner: SimListener,
    counter: Counter,
}

/// Connection of the counted world.
pub(crate) struct CountedStream {
    inner: SimStream,
    counter: Counter,
}

impl CountedWorld {
    /// Wraps `machine`; `counter` counts the tasks.
    pub(crate) fn new(machine: &Sim, counter: &Counter) -> Self {
        Self { machine: machine.clone(), counter: counter.clone() }
    }

    fn stream(&self, inner: SimStream) -> CountedStream {
        CountedStream { inner, counter: self.counter.clone() }
    }
}

impl World for CountedWorld {
    type Disk = SimDisk;
    type Stream = CountedStream;
    type Listener = CountedListener;

    fn now(&self) -> Time {
        self.machine.now()
    }

    fn unix_time(&self) -> std::time::Duration {
        self.machine.unix_time()
    }

    fn random(&self, out: &mut [u8]) {
        self.machine.random(out);
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let counter = self.counter.clone();
        self.machine.spawn(async move {
            let mut task = pin!(task);
            poll_fn(|cx| {
                if !counter.is_running.get() {
                    // Outside of the measurement the task is polled directly, so that nothing is counted.
                    return task.as_mut().poll(cx);
                }
                let mut polled = Poll::Pending;
                inside(&counter.entries, &mut || polled = task.as_mut().poll(cx));
                polled
            })
            .await;
        });
    }

    fn idle_count(&self) -> u64 {
        self.machine.idle_count()
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        self.machine.sleep_until(at)
    }

    async fn open_disk(&self, path: &str, options: DiskOptions) -> io::Result<SimDisk> {
        self.machine.open_disk(path, options).await
    }

    fn listen(&self, address: SocketAddr) -> io::Result<CountedListener> {
        Ok(CountedListener { inner: self.machine.listen(address)?, counter: self.counter.clone() })
    }

    async fn connect(&self, address: SocketAddr, options: StreamOptions) -> io::Result<CountedStream> {
        Ok(self.stream(self.machine.connect(address, options).await?))
    }

    fn adopt_stream(&self, handle: StreamHandle) -> io::Result<CountedStream> {
        Ok(self.stream(self.machine.adopt_stream(handle)?))
    }
}

impl Listener for CountedListener {
    type Stream = CountedStream;

    async fn accept(&self, options: &StreamOptions) -> io::Result<CountedStream> {
        Ok(CountedStream { inner: self.inner.accept(options).await?, counter: self.counter.clone() })
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }
}

impl CountedStream {
    fn call<T>(&self, mut call: impl FnMut(&SimStream) -> Poll<T>) -> Poll<T> {
        if !self.counter.is_running.get() {
            return call(&self.inner);
        }
        let mut called = Poll::Pending;
        outside(&self.counter.entries, &mut || called = call(&self.inner));
        called
    }
}

impl Stream for CountedStream {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.call(|stream| stream.poll_read(cx, into))
    }

    fn poll_write(&self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.call(|stream| stream.poll_write(cx, from))
    }

    fn close_write(&self) -> io::Result<()> {
        self.inner.close_write()
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }

    fn peer_address(&self) -> SocketAddr {
        self.inner.peer_address()
    }

    fn path(&self) -> Option<PathFacts> {
        self.inner.path()
    }

    fn into_handle(self) -> StreamHandle {
        self.inner.into_handle()
    }
}
