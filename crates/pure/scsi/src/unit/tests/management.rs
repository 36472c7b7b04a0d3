//! Task management, nexus loss, and the unit attentions that they establish.

use crate::rig::*;
use crate::*;
use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

/// Sets TAS.
fn set_tas(unit: &LogicalUnit<Bench>, task_aborted_status: bool) {
    unit.mode.set(crate::mode::ModeParameters { task_aborted_status, ..unit.mode.get() });
}

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
    assert_eq!(running.now_or_never().expect("permits").status, Status::Unanswered);
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
    assert_eq!(own.now_or_never().expect("permits").status, Status::Unanswered);
    assert_eq!(abort.now_or_never(), Some(ManagementOutcome::Complete));
    assert_eq!(other.now_or_never().expect("permits").status, Status::Good);
    good(run(&unit, OTHER, &[0; 6], &[]));
}

#[test]
fn clear_task_set_without_tas_tells_others_whose_tasks_were_cleared() {
    let unit = unit();
    set_tas(&unit, false);
    unit.device().permits.set(0);
    let mut other = pin!(unit.execute(OTHER, write(1, 1, 1)));
    let mut own = pin!(unit.execute(HOST, write(1, 2, 1)));
    assert!(other.as_mut().now_or_never().is_none() && own.as_mut().now_or_never().is_none());
    let mut clear = pin!(unit.manage(HOST, TaskManagement::ClearTaskSet));
    assert!(clear.as_mut().now_or_never().is_none());
    unit.device().permits.set(usize::MAX);
    assert_eq!(other.now_or_never().expect("permits").status, Status::Unanswered);
    assert_eq!(own.now_or_never().expect("permits").status, Status::Unanswered);
    assert_eq!(clear.now_or_never(), Some(ManagementOutcome::Complete));
    good(run(&unit, HOST, &[0; 6], &[]));
    assert_eq!(sense(&run(&unit, OTHER, &[0; 6], &[])), (6, 0x2F, 0));
    // No tasks, so no unit attention.
    now(unit.manage(HOST, TaskManagement::ClearTaskSet));
    good(run(&unit, OTHER, &[0; 6], &[]));
}

#[test]
fn commands_that_wait_for_their_data_are_cleared_by_others_and_not_by_their_own() {
    for (function, tas, told) in [
        (TaskManagement::ClearTaskSet, false, Some((6, 0x2F, 0))),
        (TaskManagement::ClearTaskSet, true, None),
        (TaskManagement::LogicalUnitReset, false, Some((6, 0x29, 3))),
        (TaskManagement::LogicalUnitReset, true, Some((6, 0x29, 3))),
    ] {
        let unit = unit();
        set_tas(&unit, tas);
        let [own, other] = [Arc::new(PendingDataCounter::default()), Arc::new(PendingDataCounter::default())];
        unit.set_pending_data(HOST, own.clone());
        unit.set_pending_data(OTHER, other.clone());
        let [mine, theirs] = [own.enter(), other.enter()];
        now(unit.manage(HOST, function));
        let ended = if tas { Status::TaskAborted } else { Status::Unanswered };
        assert_eq!((theirs.cleared(), mine.cleared()), (Some(ended), None), "its own were dropped by their receiver");
        assert_eq!(other.enter().cleared(), None, "what comes later is not concerned");
        let first = run(&unit, OTHER, &[0; 6], &[]);
        assert_eq!(first.sense.is_some().then(|| sense(&first)), told);
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
    assert_eq!(unit.task_snapshots().len(), 1);
    unit.device().permits.set(usize::MAX);
    assert_eq!(running.now_or_never().expect("permits").status, Status::Unanswered);
    assert_eq!(unit.task_snapshots().len(), 0);
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
    assert_eq!(same.now_or_never().expect("permits").status, Status::Unanswered);
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
        assert_eq!(running.now_or_never().expect("permits").status, Status::Unanswered);
        assert!(abort.now_or_never().is_some());
        assert_eq!(ops(&unit), [Op::Read(0, 1)], "it read, and wrote nothing");
    }
}

/// Counts wakes; without a wake an executor would never poll again.
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

/// Events that end tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clears {
    Function(TaskManagement),
    PreemptAndAbort,
    /// Loss of the session.
    NexusLoss,
    /// Removal of the unit from the view of the session.
    Removal,
}

/// Status of a task of another nexus, status of an own task, and the next unit attention of the other nexus (SAM-5,
/// unit attentions).
type Ended = (Option<Status>, Option<Status>, Option<(u8, u8, u8)>);

/// All combinations of event, owner of the command and TAS.
///
/// *Source*: SAM-5, aborting commands, and COMMANDS CLEARED BY ANOTHER INITIATOR; SPC-4, TAS.
const TABLE: [(Clears, bool, Ended); 18] = {
    use Clears::{Function, NexusLoss, PreemptAndAbort, Removal};
    use TaskManagement::{AbortTask, AbortTaskSet, ClearTaskSet, LogicalUnitReset, TargetReset};
    const TOLD: Option<Status> = Some(Status::TaskAborted);
    const SILENT: Option<Status> = Some(Status::Unanswered);
    const RESET: Option<(u8, u8, u8)> = Some((6, 0x29, 3));
    const CLEARED: Option<(u8, u8, u8)> = Some((6, 0x2F, 0));
    const PREEMPTED: Option<(u8, u8, u8)> = Some((6, 0x2A, 5));
    [
        (Function(AbortTask(TaskTag(1))), true, (None, SILENT, None)),
        (Function(AbortTask(TaskTag(1))), false, (None, SILENT, None)),
        (Function(AbortTaskSet), true, (None, SILENT, None)),
        (Function(AbortTaskSet), false, (None, SILENT, None)),
        (Function(ClearTaskSet), true, (TOLD, SILENT, None)),
        (Function(ClearTaskSet), false, (SILENT, SILENT, CLEARED)),
        (Function(LogicalUnitReset), true, (TOLD, SILENT, RESET)),
        (Function(LogicalUnitReset), false, (SILENT, SILENT, RESET)),
        (Function(TargetReset), true, (TOLD, SILENT, RESET)),
        (Function(TargetReset), false, (SILENT, SILENT, RESET)),
        (PreemptAndAbort, true, (TOLD, None, PREEMPTED)),
        (PreemptAndAbort, false, (SILENT, None, CLEARED)),
        // Owned by the other nexus: its session is gone, so there is no receiver for a response.
        (NexusLoss, true, (SILENT, None, None)),
        (NexusLoss, false, (SILENT, None, None)),
        // Owned by the other nexus: its session continues and awaits a response.
        (Removal, true, (TOLD, None, None)),
        (Removal, false, (TOLD, None, None)),
        (Function(AbortTask(TaskTag(3))), true, (None, None, None)),
        (Function(AbortTask(TaskTag(3))), false, (None, None, None)),
    ]
};

#[test]
fn every_command_that_others_end_is_answered_as_tas_says() {
    for (clears, tas, (theirs, mine, attention)) in TABLE {
        let unit = unit();
        set_tas(&unit, tas);
        if clears == Clears::PreemptAndAbort {
            for (nexus, key) in [(HOST, 1), (OTHER, 2)] {
                let mut list = [0; 24];
                list[15] = key;
                good(run(&unit, nexus, &[0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list));
            }
        }
        unit.device().permits.set(0);
        // A running task, one blocked by it, and one of the asking nexus.
        let mut running = pin!(unit.execute(OTHER, write(1, 1, 1)));
        let mut waiting = pin!(unit.execute(OTHER, Command { attribute: TaskAttribute::Ordered, ..write(2, 2, 1) }));
        let mut own = pin!(unit.execute(HOST, write(1, 3, 1)));
        for task in [running.as_mut() as Pin<&mut dyn Future<Output = Outcome>>, waiting.as_mut(), own.as_mut()] {
            assert!(task.now_or_never().is_none());
        }
        let clearing = async {
            match clears {
                Clears::Function(function) => drop(unit.manage(HOST, function).await),
                Clears::PreemptAndAbort => {
                    let mut list = [0; 24];
                    (list[7], list[15]) = (1, 2);
                    let preempt = command(&[0x5F, 5, 3, 0, 0, 0, 0, 0, 24, 0], &list);
                    let preempt = Command { tag: TaskTag(9), attribute: TaskAttribute::HeadOfQueue, ..preempt };
                    good(unit.execute(HOST, preempt).await);
                }
                Clears::NexusLoss => unit.detach(OTHER),
                Clears::Removal => unit.withdraw(OTHER),
            }
        };
        let mut clearing = pin!(clearing.fuse());
        let _ = clearing.as_mut().now_or_never();
        unit.device().permits.set(usize::MAX);
        let status = |task: Pin<&mut dyn Future<Output = Outcome>>| {
            Some(task.now_or_never().expect("it ends").status).filter(|&status| status != Status::Good)
        };
        let others = (status(running.as_mut()), status(waiting.as_mut()));
        // PREEMPT AND ABORT ends before the tasks that wait behind it; everything else ends after the tasks that it
        // aborted.
        let ended = clearing.is_terminated() || clearing.as_mut().now_or_never().is_some();
        assert_eq!((others, status(own.as_mut())), ((theirs, theirs), mine), "{clears:?}, TAS {tas}");
        assert!(ended || clearing.now_or_never().is_some());
        if !matches!(clears, Clears::NexusLoss | Clears::Removal) {
            let next = run(&unit, OTHER, &[0; 6], &[]);
            assert_eq!(next.sense.is_some().then(|| sense(&next)), attention, "{clears:?}, TAS {tas}");
        }
    }
}
