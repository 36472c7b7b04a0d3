//! Task management: affected tasks, and the responses still sent for them.

use super::rig::*;
use crate::Negotiated;
use crate::pdu::{TaskFunction, TaskFunctionOutcome as Outcome};
use crate::target::{CloseReason, Event, Response};

#[test]
fn abort_task_reaches_the_command_that_the_driver_has() {
    let mut rig = Rig::new();
    rig.command(1, reads(100), &[]);
    rig.command(2, reads(100), &[]);
    let (first, second) = (rig.expect_command().task, rig.expect_command().task);
    rig.receive(&manage(10, 3, TaskFunction::AbortTask, 1, 1));
    let request = rig.expect_task_management();
    assert_eq!(request.referenced, Some(first));
    rig.target.respond_task_management(request.task, Outcome::Complete);
    rig.respond(first, Response::default());
    rig.respond(second, Response::default());
    assert_eq!(rig.said(), ["task management 10 Complete stat 1", "response 2 status 0 stat 2 underflow 100"]);
    rig.assert_idle();
}

#[test]
fn answer_of_a_task_before_its_abort_is_sent_and_none_after() {
    let mut rig = Rig::new();
    for tag in 1..=2 {
        rig.command(tag, NONE, &[]);
    }
    let (first, second) = (rig.expect_command().task, rig.expect_command().task);
    rig.receive(&manage(10, 3, TaskFunction::AbortTaskSet, 0, 0));
    let request = rig.expect_task_management();
    rig.respond(second, Response::default());
    rig.target.respond_task_management(request.task, Outcome::Complete);
    rig.respond(first, Response::default());
    assert_eq!(rig.said(), ["response 2 status 0 stat 1", "task management 10 Complete stat 2"]);
    rig.assert_idle();
}

#[test]
fn function_that_fails_leaves_its_tasks() {
    let mut rig = Rig::new();
    rig.command(1, NONE, &[]);
    let task = rig.expect_command().task;
    rig.receive(&manage(10, 2, TaskFunction::LogicalUnitReset, 0, 0));
    let request = rig.expect_task_management();
    rig.target.respond_task_management(request.task, Outcome::LunDoesNotExist);
    rig.respond(task, Response::default());
    assert_eq!(rig.said(), ["task management 10 LunDoesNotExist stat 1", "response 1 status 0 stat 2"]);
}

#[test]
fn task_of_two_functions_ends_with_the_first_that_completes() {
    for outcomes in [[Outcome::Complete, Outcome::TaskDoesNotExist], [Outcome::TaskDoesNotExist, Outcome::Complete]] {
        for abort_completes_first in [true, false] {
            let mut rig = Rig::new();
            rig.command(1, NONE, &[]);
            let task = rig.expect_command().task;
            rig.receive(&manage(10, 2, TaskFunction::LogicalUnitReset, 0, 0));
            rig.receive(&manage(11, 2, TaskFunction::AbortTask, 1, 1));
            let mut functions = [rig.expect_task_management().task, rig.expect_task_management().task];
            if abort_completes_first {
                functions.reverse();
            }
            for (function, outcome) in functions.into_iter().zip(outcomes) {
                rig.target.respond_task_management(function, outcome);
            }
            rig.respond(task, Response::default());
            assert_eq!(rig.said().len(), 2, "one of the functions has ended the task: nothing is sent for it");
            rig.assert_idle();
        }
    }
}

#[test]
fn function_whose_connection_is_lost_ends_the_tasks_of_the_others() {
    let mut rig = Rig::with(config(), Negotiated { connections_max: 2, ..negotiated() });
    let second = rig.join(2).expect("there is a place");
    rig.on(0).command(1, NONE, &[]);
    let task = rig.expect_command().task;
    rig.on(second).receive(&manage(10, 2, TaskFunction::LogicalUnitReset, 0, 0));
    let request = rig.expect_task_management();
    rig.target.handle_peer_closed(second);
    rig.target.respond_task_management(request.task, Outcome::Complete);
    rig.respond(task, Response::default());
    assert!(rig.on(0).said().is_empty(), "the unit has ended the task");
    rig.assert_idle();
}

#[test]
fn abort_of_a_command_that_has_not_come_makes_it_never_run() {
    let mut rig = Rig::new();
    rig.cmd_sn = 2;
    rig.command(2, NONE, &[]);
    rig.receive(&manage(10, 3, TaskFunction::AbortTask, 1, 1));
    assert_eq!(rig.said(), ["task management 10 Complete stat 1"]);
    assert_eq!(rig.events().len(), 1, "the hole is closed, and command 2 has its turn");
    rig.receive(&command(1, 1, NONE, &[]));
    assert!(rig.events().is_empty(), "it counts as received");
}

#[test]
fn abort_of_what_is_not_there_says_so() {
    let mut rig = Rig::new();
    rig.command(1, NONE, &[]);
    for (tag, referenced, ref_cmd_sn) in [(10, 99, 1), (11, 99, 0), (12, 99, 2), (13, 99, 1000), (14, u32::MAX, 1)] {
        rig.receive(&manage(tag, 2, TaskFunction::AbortTask, referenced, ref_cmd_sn));
        assert!(rig.said()[0].contains("TaskDoesNotExist"), "tag {tag}");
    }
    assert_eq!(rig.events().len(), 1, "the command itself is untouched");
}

#[test]
fn reset_drops_what_nobody_has_seen_and_asks_for_the_rest() {
    for function in [
        TaskFunction::AbortTaskSet,
        TaskFunction::ClearTaskSet,
        TaskFunction::LogicalUnitReset,
        TaskFunction::TargetWarmReset,
    ] {
        let mut rig = Rig::new();
        rig.command(1, writes(100), &[]);
        rig.command(2, NONE, &[]);
        rig.receive(&command(4, 4, NONE, &[]));
        let running = rig.expect_command().task;
        rig.receive(&manage(10, 5, function, 0, 0));
        rig.sent();
        let request = rig.expect_task_management();
        assert_eq!((request.function, request.referenced), (function, None));
        rig.target.respond_task_management(request.task, Outcome::Complete);
        rig.respond(running, Response::default());
        assert_eq!(rig.said(), ["task management 10 Complete stat 1"]);
        rig.assert_idle();
        rig.receive(&command(3, 3, NONE, &[]));
        assert_eq!(rig.events().len(), 1, "3 runs; the number of 4 counts, but it is gone");
        rig.receive(&command(5, 5, NONE, &[]));
        assert_eq!(rig.events().len(), 1);
    }
}

#[test]
fn cold_reset_is_answered_and_then_the_session_ends() {
    let agreed = Negotiated { connections_max: 2, error_recovery_level: 2, time2retain_s: 20, ..negotiated() };
    let mut rig = Rig::with(config(), agreed);
    let second = rig.join(2).expect("there is a place");
    rig.command(1, NONE, &[]);
    let running = rig.expect_command().task;
    rig.on(0).receive(&manage(10, 2, TaskFunction::TargetColdReset, 0, 0));
    let request = rig.expect_task_management();
    rig.target.respond_task_management(request.task, Outcome::Complete);
    rig.respond(running, Response::default());
    let said = rig.said();
    let dropped = "async SessionDropped { time2wait_s: 0, time2retain_s: 0 }";
    assert_eq!(said, ["task management 10 Complete stat 1", dropped]);
    assert!(rig.target.is_closed(second) && rig.target.is_over(), "no task waits for another connection");
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::ColdReset)]));
}

#[test]
fn cold_reset_that_is_not_complete_ends_nothing() {
    let mut rig = Rig::new();
    rig.receive(&manage(10, 1, TaskFunction::TargetColdReset, 0, 0));
    let request = rig.expect_task_management();
    rig.target.respond_task_management(request.task, Outcome::Rejected);
    assert_eq!(rig.said(), ["task management 10 Rejected stat 1"]);
    rig.command(1, NONE, &[]);
    rig.expect_command();
}

#[test]
fn reset_of_another_lun_leaves_the_tasks_of_this_one() {
    let mut rig = Rig::new();
    rig.command(1, writes(100), &[]);
    let mut request = manage(10, 2, TaskFunction::LogicalUnitReset, 0, 0);
    request[8..16].copy_from_slice(&[0; 8]);
    rig.receive(&request);
    assert!(matches!(rig.events()[..], [Event::TaskManagement(_)]));
    let transfer_tag = last_transfer_tag(&rig.sent());
    let out = Out { tag: 1, transfer_tag, lun: LUN, data_sn: 0, offset: 0, is_final: true };
    rig.receive(&data_out(out, &pattern(100)));
    rig.expect_command();
}

#[test]
fn command_with_a_later_number_is_not_affected() {
    let mut rig = Rig::new();
    rig.command(1, NONE, &[]);
    rig.receive(&command(3, 3, NONE, &[]));
    rig.expect_command();
    rig.receive(&manage(10, 2, TaskFunction::LogicalUnitReset, 0, 0));
    let request = rig.expect_task_management();
    rig.target.respond_task_management(request.task, Outcome::Complete);
    rig.receive(&command(2, 2, NONE, &[]));
    let tags: Vec<_> = (0..2).map(|_| rig.expect_command().cdb[0]).collect();
    assert_eq!(tags, [2, 3]);
}

#[test]
fn functions_that_are_not_offered_are_answered_so() {
    let mut rig = Rig::new();
    rig.receive(&manage(10, 1, TaskFunction::TaskReassign, 1, 1));
    let others = [TaskFunction::ClearAca, TaskFunction::QueryTask, TaskFunction::NexusReset, TaskFunction::Other(77)];
    for (tag, function) in (11..).zip(others) {
        rig.receive(&manage(tag, 1, function, 1, 1));
    }
    let expected = [
        "task management 10 ReassignmentNotSupported stat 1",
        "task management 11 FunctionNotSupported stat 2",
        "task management 12 FunctionNotSupported stat 3",
        "task management 13 FunctionNotSupported stat 4",
        "task management 14 FunctionNotSupported stat 5",
    ];
    assert_eq!(rig.said(), expected);
    rig.assert_idle();
}
