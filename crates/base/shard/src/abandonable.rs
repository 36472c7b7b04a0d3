//! Device wrapper whose callers can stop waiting.
//!
//! Disks stop responding, and a request that was given to the kernel or to another array cannot be taken back: it still
//! takes effect, perhaps much later. So every operation runs on its own. A caller that is interrupted, or dropped,
//! leaves its operation to a task that keeps the buffers until the device has completed it (it has *landed*). Until
//! then no operation that overlaps it is started.
//!
//! The wrapper has no deadlines. Its owner reads [`AbandonableDevice::response_age`] a few times a second and decides
//! (docs/adr/0024).

use crate::{Signal, Spawn, World};
use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Run, Space, Stable, View, Written};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Interval at which a [`RunClock`] is advanced.
pub const CLOCK_STEP: Duration = Duration::from_millis(100);

/// Limit on operations of one device in flight, including those without a caller. Further operations wait.
const OPERATIONS_MAX: usize = 512;

/// Time for which this process was running, in steps of [`CLOCK_STEP`].
///
/// Disk deadlines use it: while the process, or the whole machine, was stopped, no disk was late.
#[derive(Clone, Debug, Default)]
pub struct RunClock(Rc<Cell<u64>>);

impl RunClock {
    /// Running time so far.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_millis(self.0.get())
    }

    /// Adds `elapsed`, the time since the last call, which was due after [`CLOCK_STEP`]. At most two steps count.
    pub fn advance(&self, elapsed: Duration) {
        // Beyond two steps the process did not run, and no disk was late in that time.
        let counted = elapsed.min(2 * CLOCK_STEP);
        self.0.set(self.0.get() + u64::try_from(counted.as_millis()).expect("two steps are few milliseconds"));
    }

    /// Number of clones of the clock, this one included.
    #[must_use]
    pub fn holders(&self) -> usize {
        Rc::strong_count(&self.0)
    }

    /// Sleeps for [`CLOCK_STEP`] in `world`, then advances the clock by the time that has passed.
    pub async fn step<W: World>(&self, world: &W) {
        let before = world.now();
        world.sleep(CLOCK_STEP).await;
        // Measured: a busy shard wakes the sleeper later than it asked for.
        self.advance(world.now().since(before));
    }

    fn since(&self, earlier: Duration) -> Duration {
        self.now().saturating_sub(earlier)
    }
}

/// Time for which a device has left its callers without an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseAge {
    /// Age of the oldest read; zero when there is none.
    pub read: Duration,
    /// Age of the oldest write, flush or discard; zero when there is none.
    pub change: Duration,
    /// Time since the last completion while operations are in flight, including operations without a caller.
    pub progress: Duration,
}

/// Operations in flight of a device, also after the device was dropped.
#[derive(Clone)]
pub struct InFlightOperations(Weak<Calls>);

impl InFlightOperations {
    /// True when the device is closed and all of its operations have landed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        // The device holds the calls, and so does each operation that was left to a task.
        self.0.strong_count() == 0
    }

    /// Number of operations that have not landed, including those with a caller.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.upgrade().map_or(0, |calls| calls.under_way())
    }
}

/// Device whose callers can abandon operations.
pub struct AbandonableDevice<D> {
    device: Rc<D>,
    calls: Rc<Calls>,
}

type Operation<T> = Pin<Box<dyn Future<Output = Result<T, IoError>>>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Hedged,
    Change,
}

/// Waiting caller of an operation.
struct Caller {
    kind: Kind,
    began: Duration,
    waker: Waker,
    /// Error with which the caller is to stop waiting.
    stop_error: Option<IoErrorKind>,
}

/// Operations of one device that are in flight.
struct Calls {
    clock: RunClock,
    spawn: Spawn,
    /// Callers by call number; a free slot is `None`.
    callers: RefCell<Vec<Option<Caller>>>,
    free: RefCell<Vec<usize>>,
    /// Extents that operations without a caller may still change, with unique numbers.
    abandoned: RefCell<Vec<(u64, Extent)>>,
    next_abandoned: Cell<u64>,
    /// Time of the last completion, or of the start of the first operation in flight.
    progressed: Cell<Duration>,
    hedge: Cell<Option<Duration>>,
    is_interrupted: Cell<bool>,
    /// Raised when an operation without a caller has landed, when a slot becomes free, and on interruption.
    changed: Signal,
    is_crowded: Cell<bool>,
}

impl<D> AbandonableDevice<D> {
    /// Wraps `device`. Operations without a caller run as tasks of `spawn`; `clock` measures their age.
    pub fn new(device: D, clock: RunClock, spawn: Spawn) -> Self {
        let calls = Calls {
            clock,
            spawn,
            callers: RefCell::default(),
            free: RefCell::default(),
            abandoned: RefCell::default(),
            next_abandoned: Cell::default(),
            progressed: Cell::default(),
            hedge: Cell::default(),
            is_interrupted: Cell::default(),
            changed: Signal::default(),
            is_crowded: Cell::default(),
        };
        Self { device: Rc::new(device), calls: Rc::new(calls) }
    }

    /// The wrapped device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Returns for how long the device has not answered.
    #[must_use]
    pub fn response_age(&self) -> ResponseAge {
        let calls = &self.calls;
        let mut silence = ResponseAge { progress: calls.without_progress(), ..ResponseAge::default() };
        for caller in calls.callers.borrow().iter().flatten() {
            let age = match caller.kind {
                Kind::Read | Kind::Hedged => &mut silence.read,
                Kind::Change => &mut silence.change,
            };
            // The oldest one counts: young operations must not hide one that hangs.
            *age = (*age).max(calls.clock.since(caller.began));
        }
        silence
    }

    /// Sets the deadline of [hedged reads](BlockDevice::read_hedged); `None` removes it. Ends those that have exceeded
    /// it with `TimedOut`, and refuses new ones while the device has been silent for so long.
    pub fn hedge(&self, deadline: Option<Duration>) {
        self.calls.hedge.set(deadline);
        if let Some(deadline) = deadline {
            let clock = &self.calls.clock;
            let is_late = |caller: &Caller| caller.kind == Kind::Hedged && clock.since(caller.began) >= deadline;
            self.calls.stop_callers(IoErrorKind::TimedOut, is_late);
        }
    }

    /// Ends every call with `Gone`, now and from now on. Operations in flight continue without a caller.
    pub fn interrupt(&self) {
        // Set first: callers that wait for admission check it when they are woken.
        self.calls.is_interrupted.set(true);
        self.calls.stop_callers(IoErrorKind::Gone, |_| true);
        self.calls.changed.raise();
    }

    /// True after [`AbandonableDevice::interrupt`].
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.calls.is_interrupted.get()
    }

    /// Number of operations in flight without a caller.
    #[must_use]
    pub fn abandoned_count(&self) -> usize {
        self.calls.abandoned.borrow().len()
    }

    /// Returns a handle on the operations in flight that outlives the device.
    #[must_use]
    pub fn in_flight(&self) -> InFlightOperations {
        InFlightOperations(Rc::downgrade(&self.calls))
    }

    /// Waits until every operation without a caller has landed.
    pub async fn until_none_abandoned(&self) {
        self.calls.changed.until(|| self.calls.abandoned.borrow().is_empty()).await;
    }
}

impl<D: BlockDevice + 'static> AbandonableDevice<D> {
    /// Runs `operation`, which may change or read `extent`, on the device.
    async fn call<T: 'static, F>(
        &self,
        kind: Kind,
        extent: Extent,
        operation: impl FnOnce(Rc<D>) -> F,
    ) -> Result<T, IoError>
    where
        F: Future<Output = Result<T, IoError>> + 'static,
    {
        let calls = &self.calls;
        // Waits for overlapping operations to land: otherwise an abandoned write could overtake this one.
        let admits = || {
            let admits = calls.admits(extent);
            if !admits {
                // Set again also when a woken caller finds the slot taken by another.
                calls.is_crowded.set(true);
            }
            admits
        };
        calls.changed.until(admits).await;
        if calls.is_interrupted.get() {
            return Err(IoError::new(IoErrorKind::Gone, extent));
        }
        // No await until `Call` is polled first: the admission cannot be outdated by another caller.
        let operation = Some(Box::pin(operation(self.device.clone())) as Operation<T>);
        Call { calls: calls.clone(), operation, number: None, kind, extent }.await
    }
}

impl Calls {
    /// True when an operation on `extent` may start, or is to be refused because of an interruption.
    fn admits(&self, extent: Extent) -> bool {
        let landing = self.abandoned.borrow();
        let overlaps = || landing.iter().any(|(_, other)| other.overlaps(extent));
        // Also admitted after an interruption, to receive the error.
        // Abandoned operations are rare, so the list is scanned only when there are some.
        self.is_interrupted.get() || self.under_way() < OPERATIONS_MAX && (landing.is_empty() || !overlaps())
    }

    fn under_way(&self) -> usize {
        // Operations without a caller count: the device still works on them.
        self.callers.borrow().len() - self.free.borrow().len() + self.abandoned.borrow().len()
    }

    fn without_progress(&self) -> Duration {
        // Without operations in flight there is nothing to respond to.
        if self.under_way() == 0 { Duration::ZERO } else { self.clock.since(self.progressed.get()) }
    }

    /// Registers a waiting caller and returns its number.
    fn enter(&self, kind: Kind, waker: &Waker) -> usize {
        let began = self.clock.now();
        // An idle device was not silent: its time without progress starts with this operation.
        if self.under_way() == 0 {
            self.progressed.set(began);
        }
        let caller = Some(Caller { kind, began, waker: waker.clone(), stop_error: None });
        let mut callers = self.callers.borrow_mut();
        match self.free.borrow_mut().pop() {
            // Numbers are reused, so the table is as long as the largest number of callers so far.
            Some(number) => {
                callers[number] = caller;
                number
            }
            None => {
                callers.push(caller);
                callers.len() - 1
            }
        }
    }

    fn leave(&self, number: usize) {
        let caller = self.callers.borrow_mut()[number].take();
        assert!(caller.is_some(), "a caller leaves once");
        self.free.borrow_mut().push(number);
    }

    /// Records the completion of an operation.
    fn note_end(&self) {
        self.progressed.set(self.clock.now());
        // Raised only when a caller found all slots taken, which is rare: a raise wakes every waiter.
        if self.is_crowded.replace(false) {
            self.changed.raise();
        }
    }

    /// Renews the waker of a waiting caller; returns the error with which it is to stop, if any.
    fn wait_on(&self, number: usize, waker: &Waker) -> Option<IoErrorKind> {
        let mut callers = self.callers.borrow_mut();
        let caller = callers[number].as_mut().expect("the number is the caller's");
        if !caller.waker.will_wake(waker) {
            caller.waker = waker.clone();
        }
        // Returned although the operation is in flight: it then continues as an abandoned one.
        caller.stop_error
    }

    fn stop_callers(&self, why: IoErrorKind, which: impl Fn(&Caller) -> bool) {
        let mut wakers = Vec::new();
        for caller in self.callers.borrow_mut().iter_mut().flatten() {
            // The first reason stays.
            if caller.stop_error.is_none() && which(caller) {
                caller.stop_error = Some(why);
                wakers.push(caller.waker.clone());
            }
        }
        // Outside of the borrow: a waker may poll a caller.
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Continues `operation` without a caller, as a task.
    fn detach<T: 'static>(self: &Rc<Self>, operation: Operation<T>, extent: Extent) {
        let number = self.next_abandoned.get();
        self.next_abandoned.set(number + 1);
        self.abandoned.borrow_mut().push((number, extent));
        // A guard: the extent is released even if the task is dropped.
        let landing = AbandonedOperation { calls: self.clone(), number };
        (self.spawn)(Box::pin(async move {
            // The result has no receiver. The future keeps the buffers until the device has completed the operation.
            // A device remembers a flush that failed by itself, local or remote, and fails from then on.
            drop(operation.await);
            drop(landing);
        }));
    }
}

/// Operation without a caller; dropping it records that it has landed.
struct AbandonedOperation {
    calls: Rc<Calls>,
    number: u64,
}

impl Drop for AbandonedOperation {
    fn drop(&mut self) {
        // Before the signal: callers that it wakes check this list.
        self.calls.abandoned.borrow_mut().retain(|(number, _)| *number != self.number);
        self.calls.note_end();
        self.calls.changed.raise();
    }
}

/// Operation with its caller.
struct Call<T: 'static> {
    calls: Rc<Calls>,
    /// `None` once it has completed or has been abandoned.
    operation: Option<Operation<T>>,
    /// Number of the caller, once it waits.
    number: Option<usize>,
    kind: Kind,
    extent: Extent,
}

impl<T> Future for Call<T> {
    type Output = Result<T, IoError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let operation = this.operation.as_mut().expect("a future is not polled after it was ready");
        if let Poll::Ready(result) = operation.as_mut().poll(cx) {
            // Polled first: an operation that is ready immediately never takes a slot.
            this.operation = None;
            if let Some(number) = this.number.take() {
                // Freed before `note_end`, which may wake a caller that waits for a slot.
                this.calls.leave(number);
                this.calls.note_end();
            }
            return Poll::Ready(result);
        }
        // Registered only once it is pending: from here on the device works on it, and it must not be dropped.
        let number = *this.number.get_or_insert_with(|| this.calls.enter(this.kind, cx.waker()));
        match this.calls.wait_on(number, cx.waker()) {
            Some(why) => {
                this.abandon();
                Poll::Ready(Err(IoError::new(why, this.extent)))
            }
            None => Poll::Pending,
        }
    }
}

impl<T> Call<T> {
    /// Abandons the operation: if it was started, it continues without this caller.
    fn abandon(&mut self) {
        // Without a number it was never polled: nothing reached the device, and it can be dropped.
        if let (Some(operation), Some(number)) = (self.operation.take(), self.number.take()) {
            // In this order: otherwise the device would look idle in between.
            self.calls.detach(operation, self.extent);
            self.calls.leave(number);
        }
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl<D: fmt::Debug> fmt::Debug for AbandonableDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interruptible").field("device", &self.device).field("landing", &self.abandoned_count()).finish()
    }
}

impl<D: BlockDevice + 'static> BlockDevice for AbandonableDevice<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.call(Kind::Read, extent, |device| async move { device.read(extent).await }).await
    }

    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        // A read of a silent device would have to land, too. The caller can get the content elsewhere, so none is sent.
        if self.calls.hedge.get().is_some_and(|deadline| self.calls.without_progress() >= deadline) {
            return Err(IoError::new(IoErrorKind::TimedOut, extent));
        }
        // A plain read below: the deadline belongs to this layer.
        self.call(Kind::Hedged, extent, |device| async move { device.read(extent).await }).await
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        // The extent is needed before the operation starts, to compare it with abandoned ones.
        let extent = self.geometry().extent_of(start, data.len())?;
        self.call(Kind::Change, extent, |device| async move { device.write(start, data).await }).await
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        self.call(Kind::Change, extent, |device| async move { device.write_unlogged(start, data).await }).await
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        // An empty extent overlaps nothing: a flush waits for no abandoned write, as none of them was acknowledged.
        self.call(Kind::Change, Extent::default(), |device| async move { device.flush(after).await }).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.call(Kind::Change, extent, |device| async move { device.discard(extent).await }).await
    }

    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        self.call(Kind::Change, extent, |device| async move { device.reserve(extent).await }).await
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        self.call(Kind::Read, extent, |device| async move { device.run(extent).await }).await
    }

    fn space(&self) -> Option<Space> {
        self.device.space()
    }
}

#[cfg(test)]
mod tests;
