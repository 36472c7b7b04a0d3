//! CmdSN, the command window, tags, and the order of delivery.

use super::rig::*;
use crate::Violation;
use crate::pdu::TaskAttribute;
use crate::target::{CloseReason, Event, Response};

fn tags_handed_out(rig: &mut Rig) -> Vec<u8> {
    rig.events().iter().map(|event| if let Event::Command(command) = event { command.cdb[0] } else { 0 }).collect()
}

#[test]
fn command_outside_the_window_is_ignored_in_silence() {
    let mut rig = Rig::new();
    for cmd_sn in [0, 5, 1000, 1 << 31, u32::MAX] {
        rig.receive(&command(9, cmd_sn, writes(100), &pattern(100)));
        assert!(rig.events().is_empty() && rig.said().is_empty(), "CmdSN {cmd_sn}");
    }
    rig.command(1, reads(10), &[]);
    assert_eq!(tags_handed_out(&mut rig), [1]);
    rig.receive(&command(2, 1, reads(10), &[]));
    assert!(rig.events().is_empty() && rig.said().is_empty(), "it came already");
}

#[test]
fn commands_ahead_are_held_until_the_hole_closes() {
    let mut rig = Rig::new();
    rig.receive(&command(3, 3, reads(10), &[]));
    rig.receive(&command(2, 2, writes(10), &pattern(10)));
    rig.receive(&command(33, 3, reads(10), &[]));
    assert!(rig.events().is_empty(), "CmdSN 1 is missing");
    rig.receive(&command(1, 1, reads(10), &[]));
    assert_eq!(tags_handed_out(&mut rig), [1, 2, 3]);
}

#[test]
fn window_closes_with_the_last_place_and_opens_with_an_answer() {
    let mut rig = Rig::new();
    for tag in 1..=4 {
        rig.command(tag, NONE, &[]);
    }
    rig.command(5, NONE, &[]);
    rig.cmd_sn -= 1;
    assert_eq!(tags_handed_out(&mut rig), [1, 2, 3, 4], "the fifth is outside the window");
    rig.receive(&nop_out(50, 5, true, b""));
    let header = pdus(&rig.sent())[0].0;
    assert_eq!(header[28..36], [0, 0, 0, 5, 0, 0, 0, 4], "ExpCmdSN is 5 and MaxCmdSN is 4");
    let mut rig = Rig::new();
    rig.command(1, NONE, &[]);
    let task = rig.expect_command().task;
    rig.respond(task, Response::default());
    let header = pdus(&rig.sent())[0].0;
    assert_eq!(header[28..36], [0, 0, 0, 2, 0, 0, 0, 5], "the answer itself opens the place again");
}

#[test]
fn aborted_task_opens_a_closed_window_without_an_answer() {
    let mut rig = Rig::new();
    for tag in 1..=4 {
        rig.command(tag, NONE, &[]);
    }
    let task = rig.expect_command().task;
    rig.target.abort(task);
    assert_eq!(rig.said(), ["ping max 5"]);
    rig.respond(task, Response::default());
    assert!(rig.said().is_empty(), "a forgotten task has no answer");
}

#[test]
fn tag_in_use_is_rejected_and_its_number_counts() {
    let mut rig = Rig::new();
    rig.command(7, reads(10), &[]);
    rig.command(7, reads(10), &[]);
    rig.command(8, reads(10), &[]);
    assert_eq!(rig.said(), ["reject InvalidPduField of 0x01"]);
    assert_eq!(tags_handed_out(&mut rig), [7, 8]);
    rig.command(u32::MAX, reads(10), &[]);
    let events = rig.events();
    assert!(matches!(events[..], [Event::Closed(CloseReason::Violation(Violation::TaskTagReserved))]), "{events:?}");
}

#[test]
fn immediate_commands_are_handed_out_at_once_and_bounded() {
    let mut rig = Rig::new();
    let immediate = Shape { immediate: true, ..NONE };
    rig.receive(&command(3, 3, NONE, &[]));
    for tag in 10..13 {
        rig.receive(&command(tag, 1, immediate, &[]));
    }
    assert_eq!(tags_handed_out(&mut rig), [10, 11]);
    assert_eq!(rig.said(), ["reject TooManyImmediateCommands of 0x01"]);
}

#[test]
fn simple_commands_pass_one_that_waits_for_data_and_ordered_ones_do_not() {
    let ordered = TaskAttribute::Ordered;
    let mut rig = Rig::new();
    rig.command(1, writes(100), &[]);
    let transfer_tag = last_transfer_tag(&rig.sent());
    rig.command(2, NONE, &[]);
    rig.command(3, Shape { attribute: ordered, ..NONE }, &[]);
    rig.command(4, NONE, &[]);
    assert_eq!(tags_handed_out(&mut rig), [2], "3 waits for 1, and 4 for 3");
    let out = Out { tag: 1, transfer_tag, lun: LUN, data_sn: 0, offset: 0, is_final: true };
    rig.receive(&data_out(out, &pattern(100)));
    assert_eq!(tags_handed_out(&mut rig), [1, 3, 4]);
}

#[test]
fn head_of_queue_command_passes_an_ordered_one() {
    let mut rig = Rig::new();
    rig.command(1, Shape { attribute: TaskAttribute::Ordered, ..writes(100) }, &[]);
    rig.command(2, NONE, &[]);
    rig.command(3, Shape { attribute: TaskAttribute::HeadOfQueue, ..NONE }, &[]);
    assert_eq!(tags_handed_out(&mut rig), [3]);
}

#[test]
fn statuses_are_numbered_in_the_order_of_sending() {
    let mut rig = Rig::new();
    for tag in 1..=3 {
        rig.command(tag, NONE, &[]);
    }
    let tasks: Vec<_> = (0..3).map(|_| rig.expect_command().task).collect();
    for at in [2, 0, 1] {
        rig.respond(tasks[at], Response::default());
    }
    let expected = ["response 3 status 0 stat 1", "response 1 status 0 stat 2", "response 2 status 0 stat 3"];
    assert_eq!(rig.said(), expected);
}
