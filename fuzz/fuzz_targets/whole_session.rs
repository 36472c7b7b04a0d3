//! Fuzz target: a whole session from the login to its end. An initiator follows the protocol and violates it where the
//! input says so, on two connections; there is a logical unit over memory, a network that loses, damages and cuts, and
//! timers. The output of the target must conform to RFC 7143.
#![no_main]

#[allow(dead_code, reason = "each of the targets uses its part")]
mod logged_in;
mod memory_unit;
mod script;
mod speaker;
mod wire;

use block::View;
use iscsi::Offer;
use iscsi::pdu::{AsyncEvent, Cid, Lun, TaskFunction, TaskFunctionOutcome};
use iscsi::target::{self, CompleteCommand, Event, Gate, Response, Verdict};
use libfuzzer_sys::fuzz_target;
use memory_unit::{Strict, now, unit};
use script::{Input, Step};
use scsi::{LogicalUnit, NexusId, Status, TaskManagement, TaskTag};
use shard::Time;
use std::time::Duration;
use wire::{Wire, pattern};

/// Upper bound of steps; more add nothing for a session of two connections and eight commands.
const STEPS_MAX: usize = 200;

fuzz_target!(|input: Input| {
    let offer = input.shape.offer();
    let mut play = Play::new(&offer, input.shape.unit);
    for step in input.steps.iter().take(STEPS_MAX) {
        play.step(step);
        play.drive();
        if input.shape.attentive {
            play.listen(0, false);
            play.listen(1, false);
        }
        if play.target.is_over() {
            break;
        }
    }
    play.end();
});

/// Judges commands by the unit, as the product does, and answers those that the unit executes immediately.
struct UnitGate<'a> {
    unit: &'a LogicalUnit<Strict>,
    answers: bool,
    /// Data may differ from what was sent.
    is_damaged: bool,
}

impl Gate for UnitGate<'_> {
    fn judge(&mut self, _: Lun, cdb: &[u8], data_out_bytes: u32, _: u32) -> Verdict {
        if data_out_bytes == 0 {
            return Verdict::TAKE_ALL;
        }
        match scsi::judge(scsi::Cdb::new(cdb), &self.unit.shape()).map_or(0, |need| need.data_out) {
            0 => Verdict::ExecuteWithoutData,
            bytes => Verdict::Take { bytes_max: u32::try_from(bytes).unwrap_or(u32::MAX) },
        }
    }

    fn answer(&mut self, asked: &CompleteCommand<'_>) -> Option<Response> {
        if !self.answers {
            return None;
        }
        assert!(self.is_damaged || is_pattern(asked.data_out), "data lies where it was not sent to");
        let (attribute, cdb) = (scsi::TaskAttribute::Simple, scsi::Cdb::new(asked.cdb));
        let command = scsi::CommandRef { attribute, cdb, data_out: asked.data_out };
        self.unit.execute_fast_path(NexusId(0), command).map(response)
    }
}

struct Play {
    offer: Offer,
    target: target::Session,
    unit: LogicalUnit<Strict>,
    /// The gate answers commands that are executed immediately.
    answers: bool,
    wire: Wire,
    now: Time,
    cmd_sn: u32,
    skew: (i8, i8),
    /// Commands that were handed out and wait for execution.
    waiting: Vec<target::Command>,
}

impl Play {
    fn new(offer: &Offer, kind: u8) -> Self {
        let mut target = logged_in::session(offer);
        while target.poll_event().is_some() {}
        let (first, _) = target.window().expect("it is logged in");
        let wire = Wire::new(offer);
        let (now, skew, waiting) = (Time(0), (0, 0), Vec::new());
        let answers = kind & 4 == 0;
        Self { offer: offer.clone(), target, unit: unit(kind), answers, wire, now, cmd_sn: first.0, skew, waiting }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Say { slot, ref what } => self.say(slot, what),
            Step::Carry(at) => {
                if !self.waiting.is_empty() {
                    let command = self.waiting.remove(usize::from(at) % self.waiting.len());
                    self.carry_out(command);
                }
            }
            Step::Forget(at) => {
                if !self.waiting.is_empty() {
                    let command = self.waiting.remove(usize::from(at) % self.waiting.len());
                    self.target.abort(command.task);
                }
            }
            Step::Listen { slot, loses } => self.listen(slot.into(), loses),
            Step::Damage { at, with } => self.wire.damage_next(at, with),
            Step::Lose => self.wire.lose_next(),
            Step::Skew { cmd_sn, exp_stat_sn } => self.skew = (cmd_sn, exp_stat_sn),
            Step::Cut { slot } => {
                self.target.handle_peer_closed(slot.into());
                self.wire.cut(slot.into());
            }
            Step::Join { cid } => {
                if let Some(slot) = logged_in::join(&mut self.target, &self.offer, Cid(cid.into()), self.now) {
                    self.wire.join(slot);
                }
            }
            Step::Wait { ms } => self.wait(Time(self.now.0 + u64::from(ms) * 1_000_000)),
            Step::Async { event } => match event % 3 {
                0 => self.target.send_async(Lun(0), AsyncEvent::Scsi, &[0x70; 18]),
                1 => self.target.send_async(Lun(0), AsyncEvent::TasksTerminated, &[]),
                _ => self.target.send_async(Lun(0), AsyncEvent::NegotiationRequested { within_s: 3 }, &[]),
            },
            Step::AskToLeave { seconds } => self.target.request_logout(Duration::from_secs(seconds.into()), self.now),
        }
    }

    fn wait(&mut self, until: Time) {
        while let Some(due) = self.target.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.target.handle_timeout(self.now);
            let next = self.target.poll_timeout();
            // A timer that fires again at the same time would loop forever.
            assert!(next.is_none_or(|next| next > due), "a timer that was handled is due again at once");
        }
        self.now = until;
    }

    /// Handles the events of the target; commands wait until a step executes them.
    fn drive(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                Event::Command(command) => {
                    assert!(command.data_out.len() <= command.expected_data_out_bytes as usize);
                    if !self.wire.is_damaged() {
                        assert!(is_pattern(&command.data_out), "data lies where it was not sent to");
                    }
                    self.waiting.push(command);
                }
                Event::TaskManagement(request) => self.manage(&request),
                Event::SendTargets { task, .. } => self.target.respond_targets(task, &[]),
                Event::CommandsLost(_) | Event::Closed(_) => {}
                Event::Login(_) | Event::Authenticated | Event::FullFeature(_) => panic!("nobody logs in any more"),
            }
        }
    }

    fn manage(&mut self, request: &target::TaskManagement) {
        let function = match request.function {
            TaskFunction::AbortTask => {
                // The unit executes commands immediately, so a waiting command has not begun.
                let there = request.referenced.is_some();
                let outcome = if there { TaskFunctionOutcome::Complete } else { TaskFunctionOutcome::TaskDoesNotExist };
                return self.target.respond_task_management(request.task, outcome);
            }
            TaskFunction::AbortTaskSet => TaskManagement::AbortTaskSet,
            TaskFunction::ClearTaskSet => TaskManagement::ClearTaskSet,
            TaskFunction::LogicalUnitReset => TaskManagement::LogicalUnitReset,
            TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => TaskManagement::TargetReset,
            _ => return self.target.respond_task_management(request.task, TaskFunctionOutcome::FunctionNotSupported),
        };
        now(self.unit.manage(NexusId(0), function));
        self.target.respond_task_management(request.task, TaskFunctionOutcome::Complete);
    }

    fn carry_out(&mut self, command: target::Command) {
        let outcome = now(self.unit.execute(
            NexusId(0),
            scsi::Command {
                tag: TaskTag(0),
                attribute: scsi::TaskAttribute::Simple,
                cdb: scsi::Cdb::new(&command.cdb),
                data_out_expected: command.expected_data_out_bytes.into(),
                data_in_expected: command.expected_data_in_bytes.into(),
                data_out: if self.needs_data(&command) { command.data_out } else { View::default() },
            },
        ));
        self.target.respond(command.task, response(outcome));
    }

    fn needs_data(&self, command: &target::Command) -> bool {
        scsi::judge(scsi::Cdb::new(&command.cdb), &self.unit.shape()).is_ok()
    }

    fn listen(&mut self, slot: usize, loses: bool) {
        // Output on a closed connection waits for another one.
        if self.target.is_closed(slot) {
            return;
        }
        let said = logged_in::drain_target(&mut self.target, slot);
        self.wire.hear(slot, &said, loses);
    }

    /// Ends the session: executes and delivers what waits, and closes.
    fn end(mut self) {
        for command in std::mem::take(&mut self.waiting) {
            self.carry_out(command);
        }
        for slot in [0, 1] {
            self.listen(slot, false);
        }
        self.target.close();
        assert!(self.target.is_over(), "a session that is closed is over");
        assert!([0, 1].iter().all(|slot| !self.target.wants_to_send(*slot)));
    }
}

fn response(outcome: scsi::Outcome) -> Response {
    match outcome.sense.filter(|_| outcome.status == Status::CheckCondition) {
        Some(sense) => Response::check_condition(&sense.emit()),
        None => Response { data_in: outcome.data_in, ..Response::status(outcome.status.code()) },
    }
}

fn is_pattern(data: &[u8]) -> bool {
    data.iter().enumerate().all(|(at, byte)| *byte == pattern(at))
}
