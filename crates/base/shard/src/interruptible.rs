//! A device whose callers can stop waiting for it.
//!
//! Disks stop answering, and no one can take back what was asked of them: a request that was given to the kernel or to another
//! array still happens, perhaps much later. So every operation runs on its own. A caller that is told to stop waiting, or is
//! dropped, leaves its operation to a task of its own, which keeps the buffers until the device has ended it (it has *landed*).
//! Until then nothing that overlaps it is begun.
//!
//! The device knows no deadlines. Its owner looks at [`Interruptible::silence`] a few times a second and decides.

use crate::{Signal, Spawn, World};
use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Run, Space, Stable, View, Written};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How often a [`RunClock`] is advanced.
pub const CLOCK_STEP: Duration = Duration::from_millis(100);

/// Operations of one device that may be under way at once, those without a caller included. Others wait for their turn.
const OPERATIONS_MAX: usize = 512;

/// The time in which this process ran, in steps of [`CLOCK_STEP`].
///
/// Deadlines of disks count on it: while the process, or the whole machine, was stopped, no disk was late.
#[derive(Clone, Debug, Default)]
pub struct RunClock(Rc<Cell<u64>>);

impl RunClock {
    /// The time so far.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_millis(self.0.get())
    }

    /// `elapsed` has passed since the last call, which was to come after [`CLOCK_STEP`]. What is beyond two steps does not count.
    pub fn advance(&self, elapsed: Duration) {
        let counted = elapsed.min(2 * CLOCK_STEP);
        self.0.set(self.0.get() + u64::try_from(counted.as_millis()).expect("two steps are few milliseconds"));
    }

    /// How many hold the clock, this one included.
    #[must_use]
    pub fn holders(&self) -> usize {
        Rc::strong_count(&self.0)
    }

    /// Waits for [`CLOCK_STEP`] in `world`, and counts what has passed by then.
    pub async fn step<W: World>(&self, world: &W) {
        let before = world.now();
        world.sleep(CLOCK_STEP).await;
        self.advance(world.now().since(before));
    }

    fn since(&self, earlier: Duration) -> Duration {
        self.now().saturating_sub(earlier)
    }
}

/// For how long a device has owed its callers an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// The age of the oldest read; zero when there is none.
    pub read: Duration,
    /// The age of the oldest write, flush or discard; zero when there is none.
    pub change: Duration,
    /// Since when nothing has ended, while something was under way; also counts operations without a caller.
    pub progress: Duration,
}

/// What a device still does, also when nobody has the device any more.
#[derive(Clone)]
pub struct Landings(Weak<Calls>);

impl Landings {
    /// True when the device is closed, and everything has landed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// How many operations have not landed, those included that somebody waits for.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.upgrade().map_or(0, |calls| calls.under_way())
    }
}

/// A device whose operations can be left to themselves.
pub struct Interruptible<D> {
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

/// Somebody who waits for an operation.
struct Caller {
    kind: Kind,
    began: Duration,
    waker: Waker,
    /// Why it is not to wait any longer.
    told: Option<IoErrorKind>,
}

/// The operations of one device.
struct Calls {
    clock: RunClock,
    spawn: Spawn,
    /// By the numbers of calls; a place that is free is `None`.
    callers: RefCell<Vec<Option<Caller>>>,
    free: RefCell<Vec<usize>>,
    /// What operations without a caller may still change, with the numbers that tell them apart.
    landing: RefCell<Vec<(u64, Extent)>>,
    landings: Cell<u64>,
    /// When the last operation ended, or the first of those began that are under way.
    progressed: Cell<Duration>,
    hedge: Cell<Option<Duration>>,
    is_interrupted: Cell<bool>,
    /// Raised when an operation without a caller has landed, when there is room again, and at the interruption.
    changed: Signal,
    is_crowded: Cell<bool>,
}

impl<D> Interruptible<D> {
    /// The device; operations without a caller are run by `spawn`, and `clock` tells their age.
    pub fn new(device: D, clock: RunClock, spawn: Spawn) -> Self {
        let calls = Calls {
            clock,
            spawn,
            callers: RefCell::default(),
            free: RefCell::default(),
            landing: RefCell::default(),
            landings: Cell::default(),
            progressed: Cell::default(),
            hedge: Cell::default(),
            is_interrupted: Cell::default(),
            changed: Signal::default(),
            is_crowded: Cell::default(),
        };
        Self { device: Rc::new(device), calls: Rc::new(calls) }
    }

    /// The device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// For how long the device has owed an answer.
    #[must_use]
    pub fn silence(&self) -> Silence {
        let calls = &self.calls;
        let mut silence = Silence { progress: calls.without_progress(), ..Silence::default() };
        for caller in calls.callers.borrow().iter().flatten() {
            let age = match caller.kind {
                Kind::Read | Kind::Hedged => &mut silence.read,
                Kind::Change => &mut silence.change,
            };
            *age = (*age).max(calls.clock.since(caller.began));
        }
        silence
    }

    /// From now on a [hedged read](BlockDevice::read_hedged) waits no longer than `deadline`, or as long as it takes; and no hedged
    /// read is begun while the device has been silent for so long.
    pub fn hedge(&self, deadline: Option<Duration>) {
        self.calls.hedge.set(deadline);
        if let Some(deadline) = deadline {
            let clock = &self.calls.clock;
            let is_late = |caller: &Caller| caller.kind == Kind::Hedged && clock.since(caller.began) >= deadline;
            self.calls.tell_those(IoErrorKind::TimedOut, is_late);
        }
    }

    /// Nobody waits for the device any more: every call ends with `Gone`, now and from now on. What is under way goes on.
    pub fn interrupt(&self) {
        self.calls.is_interrupted.set(true);
        self.calls.tell_those(IoErrorKind::Gone, |_| true);
        self.calls.changed.raise();
    }

    /// True after [`Interruptible::interrupt`].
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.calls.is_interrupted.get()
    }

    /// How many operations are under way that nobody waits for.
    #[must_use]
    pub fn landing(&self) -> usize {
        self.calls.landing.borrow().len()
    }

    /// The same, to be asked later.
    #[must_use]
    pub fn landings(&self) -> Landings {
        Landings(Rc::downgrade(&self.calls))
    }

    /// Ready when every operation that nobody waits for has landed.
    pub async fn landed(&self) {
        self.calls.changed.until(|| self.calls.landing.borrow().is_empty()).await;
    }
}

impl<D: BlockDevice + 'static> Interruptible<D> {
    /// Carries out `operation` on the device, which may change or read `extent`.
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
        let admits = || {
            let admits = calls.admits(extent);
            if !admits {
                // Also of one that is woken and finds the room taken again.
                calls.is_crowded.set(true);
            }
            admits
        };
        calls.changed.until(admits).await;
        if calls.is_interrupted.get() {
            return Err(IoError::new(IoErrorKind::Gone, extent));
        }
        let operation = Some(Box::pin(operation(self.device.clone())) as Operation<T>);
        Call { calls: calls.clone(), operation, number: None, kind, extent }.await
    }
}

impl Calls {
    /// True when an operation on `extent` may begin, or is to be refused.
    fn admits(&self, extent: Extent) -> bool {
        let landing = self.landing.borrow();
        let overlaps = || landing.iter().any(|(_, other)| other.overlaps(extent));
        self.is_interrupted.get() || self.under_way() < OPERATIONS_MAX && (landing.is_empty() || !overlaps())
    }

    fn under_way(&self) -> usize {
        self.callers.borrow().len() - self.free.borrow().len() + self.landing.borrow().len()
    }

    fn without_progress(&self) -> Duration {
        if self.under_way() == 0 { Duration::ZERO } else { self.clock.since(self.progressed.get()) }
    }

    /// The number of a caller that begins to wait.
    fn enter(&self, kind: Kind, waker: &Waker) -> usize {
        let began = self.clock.now();
        if self.under_way() == 0 {
            self.progressed.set(began);
        }
        let caller = Some(Caller { kind, began, waker: waker.clone(), told: None });
        let mut callers = self.callers.borrow_mut();
        match self.free.borrow_mut().pop() {
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

    /// An operation has ended.
    fn note_end(&self) {
        self.progressed.set(self.clock.now());
        if self.is_crowded.replace(false) {
            self.changed.raise();
        }
    }

    /// The caller waits still: why it is not to, if so.
    fn wait_on(&self, number: usize, waker: &Waker) -> Option<IoErrorKind> {
        let mut callers = self.callers.borrow_mut();
        let caller = callers[number].as_mut().expect("the number is the caller's");
        if !caller.waker.will_wake(waker) {
            caller.waker = waker.clone();
        }
        caller.told
    }

    fn tell_those(&self, why: IoErrorKind, which: impl Fn(&Caller) -> bool) {
        let mut wakers = Vec::new();
        for caller in self.callers.borrow_mut().iter_mut().flatten() {
            if caller.told.is_none() && which(caller) {
                caller.told = Some(why);
                wakers.push(caller.waker.clone());
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// `operation` goes on without a caller.
    fn land<T: 'static>(self: &Rc<Self>, operation: Operation<T>, extent: Extent) {
        let number = self.landings.get();
        self.landings.set(number + 1);
        self.landing.borrow_mut().push((number, extent));
        let landing = Landing { calls: self.clone(), number };
        (self.spawn)(Box::pin(async move {
            drop(operation.await);
            drop(landing);
        }));
    }
}

/// An operation without a caller; gone when this is dropped.
struct Landing {
    calls: Rc<Calls>,
    number: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.calls.landing.borrow_mut().retain(|(number, _)| *number != self.number);
        self.calls.note_end();
        self.calls.changed.raise();
    }
}

/// An operation and its caller.
struct Call<T: 'static> {
    calls: Rc<Calls>,
    /// Taken when it has ended, or has no caller any more.
    operation: Option<Operation<T>>,
    /// The caller's number, once it waits.
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
            this.operation = None;
            if let Some(number) = this.number.take() {
                this.calls.leave(number);
                this.calls.note_end();
            }
            return Poll::Ready(result);
        }
        let number = *this.number.get_or_insert_with(|| this.calls.enter(this.kind, cx.waker()));
        match this.calls.wait_on(number, cx.waker()) {
            Some(why) => {
                this.let_go();
                Poll::Ready(Err(IoError::new(why, this.extent)))
            }
            None => Poll::Pending,
        }
    }
}

impl<T> Call<T> {
    /// The operation, if it was begun, goes on without this caller.
    fn let_go(&mut self) {
        if let (Some(operation), Some(number)) = (self.operation.take(), self.number.take()) {
            // In this order: the device is not idle in between.
            self.calls.land(operation, self.extent);
            self.calls.leave(number);
        }
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl<D: fmt::Debug> fmt::Debug for Interruptible<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interruptible").field("device", &self.device).field("landing", &self.landing()).finish()
    }
}

impl<D: BlockDevice + 'static> BlockDevice for Interruptible<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.call(Kind::Read, extent, |device| async move { device.read(extent).await }).await
    }

    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        // What is asked of a silent device has to land, too: it is not asked for what others have.
        if self.calls.hedge.get().is_some_and(|deadline| self.calls.without_progress() >= deadline) {
            return Err(IoError::new(IoErrorKind::TimedOut, extent));
        }
        self.call(Kind::Hedged, extent, |device| async move { device.read(extent).await }).await
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        self.call(Kind::Change, extent, |device| async move { device.write(start, data).await }).await
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        self.call(Kind::Change, extent, |device| async move { device.write_fresh(start, data).await }).await
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
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
