//! Fuzz target: a session of two connections receives arbitrary bytes in arbitrary pieces on either one, and its driver
//! answers, aborts and ignores commands.
#![no_main]

#[allow(dead_code, reason = "each of two targets uses its half")]
mod logged_in;

use block::Buf;
use iscsi::pdu::TaskFunctionOutcome;
use iscsi::target::{Event, Response};
use libfuzzer_sys::fuzz_target;
use logged_in::{drain_target, feed_target, offer, session};
use shard::Time;

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let mut target = session(&offer());
    while target.poll_event().is_some() {}
    let mut kept = Vec::new();
    for (turn, piece) in bytes.chunks(usize::from(cut).pow(2) + 1).enumerate() {
        feed_target(&mut target, usize::from(piece[0] >> 7), piece);
        while let Some(event) = target.poll_event() {
            match event {
                Event::Command(command) => {
                    assert!(command.data_out.len() <= command.expected_data_out_bytes as usize);
                    kept.push((command.task, command.expected_data_in_bytes));
                }
                Event::TaskManagement(request) => {
                    target.respond_task_management(request.task, TaskFunctionOutcome::Complete);
                }
                Event::SendTargets { task, .. } => target.respond_targets(task, &[]),
                Event::Login(_) | Event::Authenticated | Event::FullFeature(_) | Event::CommandsLost(_) | Event::Closed(_) => {
                }
            }
        }
        // Some commands are answered immediately, some later, and some never.
        if turn % 3 != 2
            && let Some((task, expected)) = kept.pop()
        {
            if turn % 2 == 0 {
                target.respond(task, Response::good(Buf::zeroed(expected.min(70_000) as usize).into()));
            } else {
                target.abort(task);
            }
        }
        if turn % 5 == 4 {
            drain_target(&mut target, turn / 5 % 2);
        }
    }
    if let Some(due) = target.poll_timeout() {
        target.handle_timeout(Time(due.0));
    }
    target.handle_peer_closed(1);
    target.close();
    assert!(target.is_over() && !target.wants_to_send(0) && !target.wants_to_send(1));
});
