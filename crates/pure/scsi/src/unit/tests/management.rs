//! Task management, nexus loss, and what others are told of it.

use crate::rig::*;
use crate::*;
use futures_util::FutureExt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

fn write(tag: u32, lba: u32, byte: u8) -> Command {
    Command { tag: TaskTag(tag), ..command(&cdb10(0x2A, 0, lba, 1), &[byte; BLOCK]) }
}

#[test]
fn abort_task_of_a_running_write_waits_for_it_and_it_is_not_answered() {
    let unit = unit();
    unit.device().permits.set(0);
    let mut running = pin!(unit.execute(HOST, write(7, 0, 1)));
    assert!(running.as_mut().now_or_never().is_none());
    let mut abort = pin!(unit.manage(HOST, TaskManagement::AbortTask(TaskTag(7))));
    assert!(abort.as_mut().now_or_never().is_none(), "the write may still land");
    unit.device().permits.set(usize::MAX);
    assert_eq!(running.now_or_never().expect("permits").status, Status::TaskAborted);
    assert_eq!(abort.now_or_never(), Some(ManagementOutcome::Complete));
}

#[test]
fn abort_task_that_ended_or_belongs_to_another_does_not_exist() {
    let unit = unit();
    now(unit.execute(HOST, write(7, 0, 1)));
    assert_eq!(now(unit.manage(HOST, TaskManagement::AbortTask(TaskTag(7)))), ManagementOutcome::TaskDoesNotExist);
    unit.device().permits.set(0);
    let mut running = pin!(unit.execute(OTHER, write(7, 0, 1)));
    assert!(running.as_mut().now_or_never().is_none());
    assert_eq!(now(unit.manage(HOST, TaskManagement::AbortTask(TaskTag(7)))), ManagementOutcome::TaskDoesNotExist);
    unit.device().permits.set(usize::MAX);
    assert_eq!(running.now_or_never().expect("permits").status, Status::Good);
}

#[test]
fn abort_task_set_ends_the_tasks_of_its_nexus_only() {
    let unit = unit();
    unit.device().permits.set(0);
    let mut own = pin!(unit.execute(HOST, write(1, 0, 1)));
    let mut other = pin!(unit.execute(OTHER, write(1, 1, 1)));
    assert!(own.as_mut().now_or_never().is_none() && other.as_mut().now_or_never().is_none());
    let mut abort = pin!(unit.manage(HOST, TaskManagement::AbortTaskSet));
    assert!(abort.as_mut().now_or_never().is_none());
    unit.device().permits.set(usize::MAX);
    assert_eq!(own.now_or_never().expect("permits").status, Status::TaskAborted);
    assert_eq!(abort.now_or_never(), Some(ManagementOutcome::Complete));
    assert_eq!(other.now_or_never().expect("permits").status, Status::Good);
    good(run(&unit, OTHER, &[0; 6], &[]));
}

#[test]
fn clear_task_set_tells_others_whose_tasks_were_cleared() {
    let unit = unit();
    unit.device().permits.set(0);
    let mut other = pin!(unit.execute(OTHER, write(1, 1, 1)));
    let mut own = pin!(unit.execute(HOST, write(1, 2, 1)));
    assert!(other.as_mut().now_or_never().is_none() && own.as_mut().now_or_never().is_none());
    let mut clear = pin!(unit.manage(HOST, TaskManagement::ClearTaskSet));
    assert!(clear.as_mut().now_or_never().is_none());
    unit.device().permits.set(usize::MAX);
    assert_eq!(other.now_or_never().expect("permits").status, Status::TaskAborted);
    assert_eq!(own.now_or_never().expect("permits").status, Status::TaskAborted);
    assert_eq!(clear.now_or_never(), Some(ManagementOutcome::Complete));
    good(run(&unit, HOST, &[0; 6], &[]));
    assert_eq!(sense(&run(&unit, OTHER, &[0; 6], &[])), (6, 0x2F, 0));
    // Nobody's tasks: nobody is told.
    now(unit.manage(HOST, TaskManagement::ClearTaskSet));
    good(run(&unit, OTHER, &[0; 6], &[]));
}

#[test]
fn commands_that_wait_for_their_data_are_cleared_by_others_and_not_by_their_own() {
    for (function, told) in
        [(TaskManagement::ClearTaskSet, (6, 0x2F, 0)), (TaskManagement::LogicalUnitReset, (6, 0x29, 3))]
    {
        let unit = unit();
        let [own, other] = [Arc::new(Incoming::default()), Arc::new(Incoming::default())];
        unit.set_incoming(HOST, own.clone());
        unit.set_incoming(OTHER, other.clone());
        let [mine, theirs] = [own.enter(), other.enter()];
        now(unit.manage(HOST, function));
        assert!(theirs.is_cleared() && !mine.is_cleared(), "its own were dropped by whoever received them");
        assert!(!other.enter().is_cleared(), "what comes later is not concerned");
        assert_eq!(sense(&run(&unit, OTHER, &[0; 6], &[])), told);
        drop(theirs);
        now(unit.manage(HOST, TaskManagement::ClearTaskSet));
        good(run(&unit, OTHER, &[0; 6], &[]));
    }
}

#[test]
fn reset_starts_the_unit_restores_mode_parameters_and_tells_every_nexus() {
    for function in [TaskManagement::LogicalUnitReset, TaskManagement::TargetReset] {
        let unit = unit();
        tell(&unit, &[0x1B, 0, 0, 0, 0, 0], &[]);
        unit.mode.set(crate::mode::ModeParameters {
            descriptor_sense: true,
            software_write_protect: true,
            ..Default::default()
        });
        assert_eq!(now(unit.manage(HOST, function)), ManagementOutcome::Complete);
        for nexus in [HOST, OTHER] {
            let told = run(&unit, nexus, &[0; 6], &[]);
            assert_eq!(sense(&told), (6, 0x29, 3));
            assert!(!told.sense.expect("sense").descriptor_format);
            good(run(&unit, nexus, &[0; 6], &[]));
        }
        tell(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    }
}

#[test]
fn reset_ends_waiting_tasks_at_once_and_they_write_nothing() {
    let unit = unit();
    unit.device().permits.set(0);
    let mut first = pin!(unit.execute(HOST, write(1, 0, 1)));
    let mut ordered = pin!(unit.execute(HOST, Command { attribute: TaskAttribute::Ordered, ..write(2, 1, 2) }));
    assert!(first.as_mut().now_or_never().is_none() && ordered.as_mut().now_or_never().is_none());
    let mut reset = pin!(unit.manage(OTHER, TaskManagement::LogicalUnitReset));
    assert!(reset.as_mut().now_or_never().is_none());
    assert_eq!(ordered.now_or_never().expect("it never began").status, Status::TaskAborted);
    assert!(reset.as_mut().now_or_never().is_none(), "the first one may still land");
    unit.device().permits.set(usize::MAX);
    assert_eq!(first.now_or_never().expect("permits").status, Status::TaskAborted);
    assert!(reset.now_or_never().is_some());
    assert_eq!(ops(&unit), [Op::Write(0, 1), Op::Flush]);
}

#[test]
fn nexus_loss_aborts_its_tasks_and_is_quiet_once_they_ended() {
    let unit = unit();
    unit.device().permits.set(0);
    let mut running = pin!(unit.execute(HOST, write(1, 0, 1)));
    assert!(running.as_mut().now_or_never().is_none());
    unit.detach(HOST);
    let mut quiesced = pin!(unit.quiesced(HOST));
    assert!(quiesced.as_mut().now_or_never().is_none());
    unit.device().permits.set(usize::MAX);
    assert_eq!(running.now_or_never().expect("permits").status, Status::TaskAborted);
    assert!(quiesced.now_or_never().is_some());
}

#[test]
fn task_that_is_dropped_by_its_caller_leaves_the_task_set() {
    let unit = unit();
    unit.device().permits.set(0);
    let mut running = Box::pin(unit.execute(HOST, write(1, 0, 1)));
    assert!(running.as_mut().now_or_never().is_none());
    let mut abort = pin!(unit.manage(HOST, TaskManagement::AbortTask(TaskTag(1))));
    assert!(abort.as_mut().now_or_never().is_none());
    drop(running);
    assert_eq!(abort.now_or_never(), Some(ManagementOutcome::Complete));
}

#[test]
fn long_command_notices_an_abort_between_its_pieces() {
    let unit = LogicalUnit::new(Bench::new(512, 8192), identity(), Options::default());
    unit.device().permits.set(1);
    let mut same = pin!(unit.execute(HOST, command(&cdb16(0x93, 0, 0, 8192), &[1; BLOCK])));
    assert!(same.as_mut().now_or_never().is_none());
    let mut abort = pin!(unit.manage(HOST, TaskManagement::AbortTask(TaskTag(0))));
    assert!(abort.as_mut().now_or_never().is_none());
    unit.device().permits.set(usize::MAX);
    assert_eq!(same.now_or_never().expect("permits").status, Status::TaskAborted);
    assert!(abort.now_or_never().is_some());
    assert_eq!(ops(&unit), [Op::Write(0, 2048), Op::Write(2048, 2048)]);
}

#[test]
fn command_that_reads_before_it_writes_notices_an_abort_in_between() {
    let mut compare = cdb16(0x89, 0, 0, 0);
    compare[13] = 1;
    for (cdb, data) in [(&compare[..], vec![0; 2 * BLOCK]), (&cdb16(0x8B, 0, 0, 1), vec![1; BLOCK])] {
        let unit = unit();
        unit.device().permits.set(0);
        let mut running = pin!(unit.execute(HOST, command(cdb, &data)));
        assert!(running.as_mut().now_or_never().is_none());
        let mut abort = pin!(unit.manage(HOST, TaskManagement::AbortTask(TaskTag(0))));
        assert!(abort.as_mut().now_or_never().is_none());
        unit.device().permits.set(usize::MAX);
        assert_eq!(running.now_or_never().expect("permits").status, Status::TaskAborted);
        assert!(abort.now_or_never().is_some());
        assert_eq!(ops(&unit), [Op::Read(0, 1)], "it read, and wrote nothing");
    }
}

/// Counts how often somebody is woken; without a wake an executor would never poll again.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_waits_is_woken_when_there_is_something_to_do() {
    let unit = unit();
    let polled = |future: &mut Pin<&mut dyn Future<Output = Status>>, wakes: &Arc<Wakes>| {
        future.as_mut().poll(&mut Context::from_waker(&Waker::from(wakes.clone()))).is_ready()
    };
    let [begins, aborted, waiting] = std::array::from_fn(|_| Arc::new(Wakes::default()));
    let ordered = |tag, lba| Command { attribute: TaskAttribute::Ordered, ..write(tag, lba, 2) };
    unit.device().permits.set(0);
    let mut first = Box::pin(unit.execute(HOST, write(1, 0, 1)));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = pin!(async { unit.execute(HOST, ordered(2, 1)).await.status });
    let mut third = pin!(async { unit.execute(HOST, ordered(3, 2)).await.status });
    assert!(!polled(&mut (second.as_mut() as _), &begins) && !polled(&mut (third.as_mut() as _), &aborted));
    let mut abort = pin!(async {
        unit.manage(HOST, TaskManagement::AbortTask(TaskTag(3))).await;
        Status::Good
    });
    assert!(!polled(&mut (abort.as_mut() as _), &waiting));
    let count = |wakes: &Arc<Wakes>| wakes.0.load(Ordering::Relaxed);
    assert_eq!((count(&begins), count(&aborted), count(&waiting)), (0, 1, 0), "the aborted task is woken to end");
    assert!(polled(&mut (third.as_mut() as _), &aborted));
    assert_eq!(count(&waiting), 1, "the abort is woken when its task has ended");
    assert!(polled(&mut (abort.as_mut() as _), &waiting));
    unit.device().permits.set(usize::MAX);
    good(first.as_mut().now_or_never().expect("permits"));
    drop(first);
    assert_eq!(count(&begins), 1, "the ordered task is woken when it may begin");
    assert!(polled(&mut (second.as_mut() as _), &begins));
}
