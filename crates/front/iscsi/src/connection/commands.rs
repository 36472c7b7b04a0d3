//! Commands of a session: dispatch to the home shard of the unit, and the response to the state machine.

use super::{Connection, Progress};
use crate::iscsi_shard::{Message, RemoteCommand};
use crate::scsi_unit::{self, CommandResult, Completed, DataDirection, PendingCommand, ScsiUnit};
use crate::session::Session;
use crate::unit_route::UnitRoute;
use engine::unit::CommandStart;
use iscsi::pdu::TaskAttribute;
use iscsi::target::{Command, Response};
use scsi::{Outcome, PendingDataGuard, Status};
use shard::World;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll};

/// REPORT LUNS, answered by the session for all LUNs.
const REPORT_LUNS: u8 = 0xA0;

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<ScsiUnit<W>>, PendingCommand) -> F,
    F: Future<Output = Completed>,
{
    /// Executes a command. One that completes synchronously is answered immediately.
    pub(super) fn start(&mut self, command: Command) {
        // Without a session the connection is ending.
        let Some(session) = self.session.as_mut() else { return };
        let task = command.task;
        let waiting = command.wait_guard.as_ref().and_then(|enrolment| enrolment.downcast_ref::<PendingDataGuard>());
        let cleared = waiting.and_then(PendingDataGuard::cleared);
        // One clock reading serves a whole batch of commands.
        let began = *self.moment.get_or_insert_with(|| self.shard.world.now());
        let clock = CommandStart { operation_code: command.cdb.first().copied().unwrap_or_default(), began };
        if let Some(status) = cleared {
            // Another initiator has cleared the task set in the meantime, or the unit was removed: the command was
            // aborted (SAM-5, TAS).
            // No data has reached the unit, so all of it is residual.
            let end = CommandResult { outcome: Outcome::status(status), written: 0, needed: Some(0), ended: began };
            return self.respond(Completed { task, clock, result: end });
        }
        let way = DataDirection::of(command.expected_data_out_bytes, command.expected_data_in_bytes);
        let written = command.data_out.len() as u64;
        let lun = command.lun.0;
        // A command that waited for data may have been sent for a former unit under this LUN, which is not the present
        // one.
        let is_its = |reach: &&mut UnitRoute<W>| waiting.is_none_or(|waiting| waiting.is_in(&reach.pending_data));
        let found = session.find(lun).filter(is_its).map(|reach| (reach.entry, reach.unit(&self.shard)));
        let nexus = session.nexus();
        let reports_luns = command.cdb.first() == Some(&REPORT_LUNS);
        let (Some((entry, unit)), false) = (found, reports_luns) else {
            let cdb = scsi::Cdb::new(&command.cdb);
            let outcome = match reports_luns {
                true => session.report_luns(cdb),
                // The command was sent for the former unit under this LUN and was aborted with it.
                false if session.find(lun).is_some() => Outcome::status(Status::TaskAborted),
                false => session.answer_absent(lun, cdb),
            };
            self.respond(Completed {
                task,
                clock,
                result: CommandResult { outcome, written, needed: way.of_nothing(), ended: began },
            });
            return;
        };
        // The gate has tried the fast path for this command already.
        let declined = command.declined;
        let command = scsi_command(command);
        // A unit belongs to one shard, so commands from sessions elsewhere are sent there as messages.
        if entry.home != self.shard.index {
            let ran = PendingCommand { task, nexus, command, direction: way, clock };
            let errand = RemoteCommand { entry, command: ran, back: self.back.clone() };
            // Counted, so that the connection stays until the result has arrived.
            self.remote_commands += 1;
            self.shard.post(entry.home, Message::Execute(errand));
            return;
        }
        let ran = PendingCommand { task, nexus, command, direction: way, clock };
        // The unit may be closed between the lookup of the LUN and this point.
        let Some(unit) = unit else { return self.respond(scsi_unit::answer_closed_unit(ran)) };
        // Most commands complete without waiting. The fast path avoids the allocation of a future for them.
        let end = if declined { None } else { scsi_unit::run_fast_path(&unit, ran.as_fast_path()) };
        if let Some(end) = end {
            self.respond(Completed { task, clock, result: end });
        } else if let Poll::Ready(done) = self.running.start((self.run)(unit, ran)) {
            self.respond(done);
        }
    }

    /// Answers the commands that have completed.
    pub(super) fn finish_commands(&mut self, cx: &mut Context<'_>) -> Progress {
        let mut progress = false;
        while let Poll::Ready(done) = self.running.poll_next(cx) {
            self.respond(done);
            progress = true;
        }
        while let Poll::Ready(Some(done)) = self.returns.poll_receive(cx) {
            // Every result was counted when its command was sent.
            self.remote_commands -= 1;
            // The start of the next command must not lie before the transfer of this result between the shards.
            self.respond(Completed { result: CommandResult { ended: self.shard.world.now(), ..done.result }, ..done });
            progress = true;
        }
        while let Poll::Ready(Some(managed)) = self.managed.poll_receive(cx) {
            self.managing -= 1;
            self.machine.respond_task_management(managed.task, managed.outcome);
            progress = true;
        }
        progress
    }

    /// Passes the response of a command to the state machine.
    fn respond(&mut self, done: Completed) {
        let Completed { task, clock, result: end } = done;
        // The end of this command is the start time of the next one of the batch.
        self.moment = Some(end.ended);
        // Aborted by a task management function: no response is sent (SAM-5).
        if end.outcome.status == Status::Unanswered {
            self.machine.abort(task);
            return;
        }
        self.machine.respond(task, counted(self.session.as_ref(), clock, end));
    }
}

/// Builds the response of a completed command, and updates the statistics of its session.
#[inline]
pub(super) fn counted<W: World>(session: Option<&Session<W>>, clock: CommandStart, end: CommandResult) -> Response {
    if let Some(session) = session {
        session.counters.count(end.outcome.data_in.len() as u64, end.written);
        // Measured from the arrival of all data to the completion, without the transmission.
        session.counters.latencies.record(clock.operation_code, end.ended.since_us(clock.began));
    }
    response(end.outcome, end.needed)
}

/// Builds the response from an outcome; `transfer_bytes` is the basis of the residual count.
#[inline]
pub(super) fn response(outcome: Outcome, transfer_bytes: Option<u64>) -> Response {
    let Outcome { status, sense, data_in } = outcome;
    let sense = sense.map_or_else(Vec::new, |sense| sense_bytes(&sense));
    Response { status: status.code(), sense, data_in, transfer_bytes }
}

// Rare, so kept out of the inlined response path.
#[cold]
fn sense_bytes(sense: &scsi::Sense) -> iscsi::target::Sense {
    sense.emit().as_slice().into()
}

fn scsi_command(command: Command) -> scsi::Command {
    scsi::Command {
        tag: scsi::TaskTag(command.task.bits()),
        attribute: match command.attribute {
            // iSCSI may leave the task attribute unspecified; SAM-5 has no such value, and SIMPLE is the closest one.
            TaskAttribute::Untagged | TaskAttribute::Simple => scsi::TaskAttribute::Simple,
            TaskAttribute::Ordered => scsi::TaskAttribute::Ordered,
            TaskAttribute::HeadOfQueue => scsi::TaskAttribute::HeadOfQueue,
            TaskAttribute::Aca => scsi::TaskAttribute::Aca,
        },
        cdb: scsi::Cdb::new(&command.cdb),
        data_out: command.data_out,
        data_out_expected: u64::from(command.expected_data_out_bytes),
        data_in_expected: u64::from(command.expected_data_in_bytes),
    }
}
