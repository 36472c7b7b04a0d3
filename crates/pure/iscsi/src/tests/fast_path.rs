//! Fast path: commands that the gate answers synchronously look to the initiator as if they had been delivered, and
//! overtake none.

use super::rig::*;
use crate::Negotiated;
use crate::pdu::{Lun, TaskAttribute, TaskFunction};
use crate::target::{CompleteCommand, Event, Gate, Response, Verdict};
use block::{Buf, Rope};
use proptest::prelude::*;

/// Response to a command by its first CDB byte: data of that length, sometimes sense data.
fn response_to(cdb: u8, data_out: &[u8]) -> Response {
    let sum = data_out.iter().fold(cdb, |sum, &byte| sum.wrapping_add(byte));
    match cdb % 5 {
        0 => Response::check_condition(&[0x70, 0, sum]),
        1 => Response::status(0x18),
        2 => Response { transfer_bytes: Some(u64::from(sum) * 9), ..Response::default() },
        _ => Response::good(Rope::from(Buf::copy_of(&pattern(usize::from(cdb) * 16)))),
    }
}

/// Gate that answers every command on the fast path, except every `declines`th.
struct Answers {
    asked: u32,
    declines: u32,
}

impl Gate for Answers {
    fn judge(&mut self, _: Lun, _: &[u8], _: u32, _: u32) -> Verdict {
        Verdict::TAKE_ALL
    }

    fn answer(&mut self, command: &CompleteCommand<'_>) -> Option<Response> {
        self.asked += 1;
        assert_eq!(command.lun, LUN);
        if self.asked.is_multiple_of(self.declines) {
            return None;
        }
        Some(response_to(command.cdb[0], command.data_out))
    }
}

fn unbounded() -> Negotiated {
    Negotiated { initial_r2t: false, ..negotiated() }
}

/// Strategy for one request of an initiator.
fn said() -> impl Strategy<Value = (u8, u32, i32, Shape, usize)> {
    let shape = (any::<bool>(), any::<bool>(), 0u32..3000, 0u8..8, 0u8..8, 0u8..8);
    let shape = shape.prop_map(|(read, write, bytes, is_final, immediate, attribute)| Shape {
        read,
        write,
        bytes,
        is_final: is_final > 0 || !write,
        immediate: immediate == 0,
        attribute: match attribute {
            0 => TaskAttribute::Ordered,
            1 => TaskAttribute::HeadOfQueue,
            2 => TaskAttribute::Untagged,
            _ => TaskAttribute::Simple,
        },
    });
    let skew = prop_oneof![12 => Just(0), 1 => Just(1), 1 => Just(-1)];
    (0u8..12, 1u32..40, skew, shape, 0usize..2049)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn answer_at_once_is_what_the_long_way_says(steps in prop::collection::vec(said(), 1..40), declines in 2u32..6) {
        let mut rigs = [Rig::with(config(), unbounded()), Rig::with(config(), unbounded())];
        let mut gate = Answers { asked: 0, declines };
        let mut cmd_sn = 1;
        for (kind, tag, skew, shape, given) in steps {
            let number = (cmd_sn as i32 + skew) as u32;
            let given = if shape.write { given.min(shape.bytes as usize).min(2048) } else { 0 };
            // Most writes bring the data that they announce.
            let given = if given % 3 > 0 && shape.write { (shape.bytes as usize).min(2048) } else { given };
            let bytes = match kind {
                0 => nop_out(tag, number, false, b"echo"),
                1 => manage(tag + 100, number, TaskFunction::AbortTask, tag, number.wrapping_sub(1)),
                _ => command(tag, number, shape, &pattern(given)),
            };
            rigs[0].receive_through(&bytes, &mut gate);
            rigs[1].receive(&bytes);
            let [short, long] = &mut rigs;
            for rig in [&mut *short, &mut *long] {
                for event in rig.events() {
                    if let Event::Command(command) = event {
                        rig.respond(command.task, response_to(command.cdb[0], &command.data_out));
                    }
                }
            }
            prop_assert_eq!(short.said(), long.said());
            prop_assert_eq!(short.target.window(), long.target.window());
            prop_assert_eq!(short.target.holds(), long.target.holds());
            if let Some((expected, _)) = short.target.window() {
                cmd_sn = expected.0;
            }
        }
    }
}

#[test]
fn command_is_answered_with_one_pdu_and_leaves_nothing() {
    let mut rig = Rig::new();
    let mut gate = Answers { asked: 0, declines: u32::MAX };
    rig.receive_through(&command(8, 1, reads(1000), &[]), &mut gate);
    rig.receive_through(&command(7, 2, writes(100), &pattern(100)), &mut gate);
    assert_eq!(
        rig.said(),
        ["data-in 8 sn 0 at 0 len 128 F status 0 stat 1 underflow 872", "response 7 status 0 stat 2 overflow 917"]
    );
    assert!(rig.events().is_empty());
    rig.assert_idle();
}

/// True when the gate is asked for an answer to a read that follows `before`, in a session of this kind.
fn is_asked(negotiated: Negotiated, before: &[Vec<u8>], last: &[u8]) -> bool {
    let mut rig = Rig::with(config(), negotiated);
    before.iter().for_each(|bytes| rig.receive(bytes));
    let mut gate = Answers { asked: 0, declines: u32::MAX };
    rig.receive_through(last, &mut gate);
    gate.asked > 0
}

#[test]
fn command_that_would_pass_another_is_not_answered_at_once() {
    let asked =
        |before: &[Vec<u8>], shape| is_asked(unbounded(), before, &command(9, 1 + before.len() as u32, shape, &[]));
    assert!(asked(&[], reads(100)));
    assert!(!asked(&[command(1, 1, reads(100), &[])], reads(100)), "the driver has not heard of the first");
    assert!(!asked(&[command(1, 1, writes(4000), &[])], reads(100)), "the first waits for its data");
    assert!(!is_asked(unbounded(), &[], &command(9, 2, reads(100), &[])), "the first has not come");
    let held = [command(2, 2, reads(100), &[])];
    assert!(!is_asked(unbounded(), &held, &command(9, 1, reads(100), &[])), "another waits for this one");
    for attribute in [TaskAttribute::Ordered, TaskAttribute::HeadOfQueue, TaskAttribute::Aca] {
        assert!(!asked(&[], Shape { attribute, ..reads(100) }));
    }
    assert!(!asked(&[], Shape { immediate: true, ..reads(100) }));
}

#[test]
fn command_that_is_not_whole_or_not_answered_in_one_pdu_is_not_answered_at_once() {
    let asked = |negotiated, shape, data: &[u8]| is_asked(negotiated, &[], &command(9, 1, shape, data));
    assert!(asked(unbounded(), reads(1024), &[]));
    assert!(!asked(unbounded(), reads(1025), &[]), "a segment has 1,024 bytes");
    assert!(asked(unbounded(), writes(100), &pattern(100)));
    assert!(!asked(unbounded(), writes(100), &pattern(99)));
    assert!(!asked(unbounded(), Shape { is_final: false, ..writes(100) }, &pattern(100)), "more is announced");
    assert!(!asked(unbounded(), NONE, &[]));
    let recovers = Negotiated { error_recovery_level: 1, ..unbounded() };
    assert!(!asked(recovers, reads(100), &[]), "it may be asked for again");
}
