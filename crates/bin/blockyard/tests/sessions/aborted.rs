//! Commands aborted by another host or by the operator: each is answered as TAS of the control mode page demands.

use crate::array::{Array, OPEN};
use crate::host::{Host, Login};
use crate::{SLOW, play};
use futures_util::future::join;
use iscsi::pdu::{TaskFunction, TaskFunctionOutcome};
use shard::World;
use sim::{DiskFaults, Sim};
use std::pin::pin;
use std::time::Duration;

const WRITE: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const TASK_ABORTED: (u8, Option<(u8, u8, u8)>) = (0x40, None);
/// Timeout for the end of a command: a few seconds more than the disk takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Initiator of the abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Function(TaskFunction),
    PreemptAndAbort,
    Operator,
}

/// Sends MODE SELECT of the control page with this byte for TAS.
async fn select_tas(host: &mut Host, tas: u8) {
    let list = [0, 0, 0, 0, 0x0A, 10, 2, 0x10, 0, tas, 0, 0, 0xFF, 0xFF, 0, 0];
    assert_eq!(host.status_of(&[0x15, 0x10, 0, 0, 16, 0], &list).await, (0, None));
}

async fn persistent_reserve_out(host: &mut Host, action: u8, keys: (u64, u64)) {
    let list = [&keys.0.to_be_bytes()[..], &keys.1.to_be_bytes(), &[0; 8]].concat();
    assert_eq!(host.status_of(&[0x5F, action, 3, 0, 0, 0, 0, 0, 24, 0], &list).await, (0, None));
}

/// Aborts a host's write on a slow disk by `by`, and returns its status; none if it is never answered.
async fn write_that_is_ended(sim: &Sim, array: &Array, by: By, tas: u8) -> Option<(u8, Option<(u8, u8, u8)>)> {
    let mut writer = Host::login(sim, &Login::of("web", 1)).await;
    let mut other = Host::login(sim, &Login::of(OPEN, 2)).await;
    for host in [&mut writer, &mut other] {
        host.take_attention().await;
    }
    select_tas(&mut other, tas).await;
    // 2A/01, if TAS has changed.
    let _ = writer.test_unit_ready().await;
    if by == By::PreemptAndAbort {
        persistent_reserve_out(&mut writer, 0, (0, 1)).await;
        persistent_reserve_out(&mut other, 0, (0, 2)).await;
    }
    array.disk.set_faults(DiskFaults { latency: SLOW..=SLOW, ..DiskFaults::default() });
    let begun = array.disk.counts().writes;
    let ending = async {
        while array.disk.counts().writes == begun {
            sim.sleep(Duration::from_millis(1)).await;
        }
        match by {
            By::Function(function) => assert_eq!(other.manage(function).await, TaskFunctionOutcome::Complete),
            By::PreemptAndAbort => persistent_reserve_out(&mut other, 5, (2, 1)).await,
            By::Operator => array.edit_access(|access| access.presentations.clear()).await,
        }
    };
    let mut gives_up = pin!(sim.sleep(PATIENCE));
    let writing = async {
        let written = pin!(writer.status_of(&WRITE, &[1; 512]));
        match futures_util::future::select(written, &mut gives_up).await {
            futures_util::future::Either::Left((status, _)) => Some(status),
            futures_util::future::Either::Right(_) => None,
        }
    };
    let (status, ()) = join(writing, ending).await;
    array.disk.set_faults(DiskFaults::default());
    status
}

#[test]
fn write_that_another_host_or_the_operator_ends_is_answered() {
    use TaskFunction::{ClearTaskSet, LogicalUnitReset, TargetWarmReset};
    let others = [ClearTaskSet, LogicalUnitReset, TargetWarmReset].map(By::Function);
    for by in others.into_iter().chain([By::PreemptAndAbort, By::Operator]) {
        play(11, async move |sim, array| {
            assert_eq!(write_that_is_ended(sim, array, by, 0x40).await, Some(TASK_ABORTED), "{by:?}");
        });
    }
}

#[test]
fn write_that_another_host_ends_is_not_answered_where_a_host_has_set_tas_to_zero() {
    play(12, async |sim, array| {
        let by = By::Function(TaskFunction::ClearTaskSet);
        assert_eq!(write_that_is_ended(sim, array, by, 0).await, None);
        // The unit is gone, so no mode page applies.
    });
    // The unit is gone, so no mode page applies.
    play(13, async |sim, array| {
        assert_eq!(write_that_is_ended(sim, array, By::Operator, 0).await, Some(TASK_ABORTED));
    });
}
