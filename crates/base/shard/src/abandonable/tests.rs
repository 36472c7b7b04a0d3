use super::*;
use crate::Executor;
use block::{Blocks, View};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

/// Device that completes operations while its gate is open, and records them.
#[derive(Default)]
struct Gated {
    is_open: Cell<bool>,
    opened: Signal,
    /// Number of operations that may pass while the gate is closed.
    passes: Cell<u32>,
    done: RefCell<Vec<&'static str>>,
}

impl Gated {
    async fn pass(&self, what: &'static str) {
        self.opened.until(|| self.is_open.get() || self.passes.replace(self.passes.get().saturating_sub(1)) > 0).await;
        self.done.borrow_mut().push(what);
    }

    fn let_one_pass(&self) {
        self.passes.set(1);
        self.opened.raise();
    }

    fn set(&self, is_open: bool) {
        self.is_open.set(is_open);
        self.opened.raise();
    }
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: 4096,
            blocks: Blocks(64),
            physical_block_bytes: 4096,
            optimal_bytes: 4096,
            volatile_cache: true,
            discard_zeroes: false,
            prefers_unlogged: false,
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.pass("read").await;
        Ok(View::zeroed(4096 * usize::try_from(extent.len.0).expect("few")).into())
    }

    async fn write(&self, _: Lba, _: View) -> Result<Written, IoError> {
        self.pass("write").await;
        Ok(Written::attest())
    }

    async fn flush(&self, _: Written) -> Result<Stable, IoError> {
        self.pass("flush").await;
        Ok(Stable::attest())
    }

    async fn discard(&self, _: Extent) -> Result<Written, IoError> {
        self.pass("discard").await;
        Ok(Written::attest())
    }
}

struct Bench {
    disk: Rc<AbandonableDevice<Gated>>,
    clock: RunClock,
    executor: Rc<Executor>,
}

impl Bench {
    fn new() -> Self {
        let executor = Rc::new(Executor::new(Box::new(|| {})));
        let (clock, runner) = (RunClock::default(), executor.clone());
        let spawn: Spawn = Rc::new(move |task| runner.spawn(task));
        let disk = Rc::new(AbandonableDevice::new(Gated::default(), clock.clone(), spawn));
        Self { disk, clock, executor }
    }

    fn pass(&self, ms: u64) {
        (0..ms / 100).for_each(|_| self.clock.advance(CLOCK_STEP));
    }

    fn run(&self) {
        self.executor.run_ready();
    }

    fn done(&self) -> Vec<&'static str> {
        self.disk.device().done.borrow().clone()
    }

    fn write(&self, block: u64) -> LocalBoxFuture<'static, Result<(), IoErrorKind>> {
        let disk = self.disk.clone();
        async move { disk.write(Lba(block), View::zeroed(4096)).await.map(drop).map_err(|error| error.kind) }
            .boxed_local()
    }

    fn hedged(&self, block: u64) -> LocalBoxFuture<'static, Result<(), IoErrorKind>> {
        let disk = self.disk.clone();
        async move { disk.read_hedged(Extent::new(block, 1)).await.map(drop).map_err(|error| error.kind) }.boxed_local()
    }
}

fn ms(silence: Duration) -> u128 {
    silence.as_millis()
}

#[test]
fn silence_tells_reads_changes_and_progress_apart() {
    let bench = Bench::new();
    let mut read = bench.hedged(0);
    assert!((&mut read).now_or_never().is_none());
    bench.pass(300);
    let mut write = bench.write(1);
    assert!((&mut write).now_or_never().is_none());
    bench.pass(200);
    let silence = bench.disk.response_age();
    assert_eq!((ms(silence.read), ms(silence.change), ms(silence.progress)), (500, 200, 500));
    bench.disk.device().set(true);
    assert_eq!(write.now_or_never(), Some(Ok(())));
    bench.pass(100);
    let silence = bench.disk.response_age();
    assert_eq!((ms(silence.read), ms(silence.change), ms(silence.progress)), (600, 0, 100), "something has ended");
    assert_eq!(read.now_or_never(), Some(Ok(())));
    assert_eq!(bench.disk.response_age(), ResponseAge::default());
}

#[test]
fn time_in_which_nobody_advanced_the_clock_does_not_count() {
    let clock = RunClock::default();
    clock.advance(Duration::from_secs(3600));
    assert_eq!(clock.now(), 2 * CLOCK_STEP);
}

#[test]
fn hedged_read_ends_at_its_deadline_and_none_is_begun_while_the_device_is_silent() {
    let bench = Bench::new();
    let mut read = bench.hedged(0);
    assert!((&mut read).now_or_never().is_none());
    bench.pass(400);
    bench.disk.hedge(Some(Duration::from_millis(500)));
    assert!((&mut read).now_or_never().is_none(), "not yet");
    bench.pass(100);
    bench.disk.hedge(Some(Duration::from_millis(500)));
    assert_eq!(read.now_or_never(), Some(Err(IoErrorKind::TimedOut)));
    assert_eq!(bench.disk.abandoned_count(), 1);
    assert_eq!(bench.hedged(9).now_or_never(), Some(Err(IoErrorKind::TimedOut)), "at once");
    bench.disk.hedge(None);
    assert!(bench.hedged(9).now_or_never().is_none(), "who has no other place waits");
    bench.disk.device().set(true);
    bench.run();
    assert_eq!((bench.disk.abandoned_count(), bench.hedged(9).now_or_never()), (0, Some(Ok(()))));
}

#[test]
fn interruption_ends_every_call_and_what_was_under_way_lands_later() {
    let bench = Bench::new();
    let mut calls = [bench.write(0), bench.write(8), bench.hedged(16)];
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    bench.disk.interrupt();
    for call in calls {
        assert_eq!(call.now_or_never(), Some(Err(IoErrorKind::Gone)));
    }
    assert_eq!(bench.write(24).now_or_never(), Some(Err(IoErrorKind::Gone)), "nothing new reaches the device");
    let mut landed = Box::pin(bench.disk.until_none_abandoned());
    bench.run();
    assert_eq!((bench.disk.abandoned_count(), bench.done().len()), (3, 0));
    assert!((&mut landed).now_or_never().is_none());
    bench.disk.device().set(true);
    bench.run();
    assert_eq!((bench.disk.abandoned_count(), bench.done()), (0, vec!["write", "write", "read"]));
    assert!(landed.now_or_never().is_some());
}

#[test]
fn write_without_a_caller_is_overtaken_by_nothing_that_overlaps_it() {
    let bench = Bench::new();
    let mut dropped = bench.write(5);
    assert!((&mut dropped).now_or_never().is_none());
    drop(dropped);
    assert_eq!(bench.disk.abandoned_count(), 1);
    let (mut same, mut beside) = (bench.write(5), bench.write(6));
    assert!((&mut same).now_or_never().is_none());
    assert!((&mut beside).now_or_never().is_none());
    bench.disk.device().set(true);
    assert!((&mut same).now_or_never().is_none(), "the first write has not landed");
    assert_eq!(beside.now_or_never(), Some(Ok(())));
    bench.run();
    assert_eq!(same.now_or_never(), Some(Ok(())));
    assert_eq!(bench.done(), ["write"; 3]);
}

#[test]
fn flush_without_a_caller_runs_to_its_end_so_that_the_device_sees_its_result() {
    let bench = Bench::new();
    let mut dropped = bench.disk.flush(Written::attest()).boxed_local();
    assert!((&mut dropped).now_or_never().is_none());
    drop(dropped);
    assert_eq!((bench.disk.abandoned_count(), bench.done().len()), (1, 0));
    bench.disk.device().set(true);
    bench.run();
    assert_eq!((bench.disk.abandoned_count(), bench.done()), (0, vec!["flush"]));
}

#[test]
fn operations_under_way_are_bounded_and_the_rest_gets_its_turn() {
    let bench = Bench::new();
    let mut calls: Vec<_> = (0..OPERATIONS_MAX + 3).map(|_| bench.hedged(0)).collect();
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    assert_eq!(bench.disk.calls.callers.borrow().len(), OPERATIONS_MAX);
    bench.disk.device().set(true);
    assert!(calls.into_iter().all(|call| call.now_or_never() == Some(Ok(()))));
    assert_eq!(bench.disk.calls.callers.borrow().len(), OPERATIONS_MAX);
}

#[test]
fn each_operation_that_ends_makes_room_for_one_that_waits() {
    let bench = Bench::new();
    let ended = Rc::new(Cell::new(0));
    for _ in 0..OPERATIONS_MAX + 3 {
        let (call, ended) = (bench.hedged(0), ended.clone());
        bench.executor.spawn(async move {
            assert_eq!(call.await, Ok(()));
            ended.set(ended.get() + 1);
        });
    }
    bench.run();
    // One completes at a time: one of the woken callers finds the free slot, and the others wait again.
    for passed in 1..=OPERATIONS_MAX + 3 {
        bench.disk.device().let_one_pass();
        (0..4).for_each(|_| bench.run());
        assert_eq!(ended.get(), passed);
    }
}
