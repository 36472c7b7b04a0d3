//! SCSI commands on the receive side: checked by their header, filled with data, delivered in order.

use super::data_out::{Admitted, Arrived, DataOut, Limits, Solicitation};
use super::event::{Cdb, Command, Event, Gate, Response, Verdict};
use super::fast_path::FastPathResult;
use super::full_feature::{FullFeature, OrderedAction, Placement};
use super::link::Link;
use super::task::{CommandTask, Kind, Placing, Progress, Task};
use crate::pdu::{self, Ahs, R2t, R2tSn, ScsiCommand, SegmentLengths, TargetTransferTag, TaskAttribute};
use crate::session::TaskId;
use crate::{Negotiated, Violation};
use block::{Buf, View};
use smallvec::SmallVec;

/// Status TASK SET FULL (SAM-5 §5.3.1).
const TASK_SET_FULL: u8 = 0x28;

/// Fixed-format sense data: ABORTED COMMAND, 47/05 PROTOCOL SERVICE CRC ERROR.
const PROTOCOL_SERVICE_CRC_ERROR: [u8; 18] = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x47, 0x05, 0, 0, 0, 0];

impl FullFeature {
    /// Checks a SCSI Command PDU. An acceptable command becomes a task; the result tells where its immediate data goes.
    ///
    /// *Errors*: the violated rule.
    pub(crate) fn begin_command(
        &mut self,
        link: &mut Link,
        header: &ScsiCommand,
        additional: &[u8],
        data_bytes: usize,
        short: FastPathResult,
        gate: &mut impl Gate,
    ) -> Result<Placement, Violation> {
        // RFC 7143 §4.2.2.1: a command outside the window, or a duplicate, is silently ignored together with its data.
        if !self.in_window(header.immediate, header.cmd_sn) {
            return Ok(Placement::Skip(None));
        }
        if self.is_discovery() {
            return Err(Violation::OnlyDiscovery);
        }
        // The tag is checked before anything is allocated for the command.
        self.session.admit(header.initiator_task_tag, header.immediate)?;
        // The fast path has offered this command to the driver, which declined it and must not be asked again.
        let mut command =
            CommandTask { declined: short == FastPathResult::Declined, ..CommandTask::parse(header, additional)? };
        self.data_out_limits.check_unsolicited(&self.negotiated, header, data_bytes)?;
        // The driver decides before the task exists, so a refusal needs no cleanup.
        self.judge(link, header, &mut command, data_bytes, gate);
        let (is_refused, takes_data) = (command.progress == Progress::Refused, command.takes_data());
        let id = self.session.insert(Task {
            tag: header.initiator_task_tag,
            lun: header.lun,
            cmd_sn: header.cmd_sn,
            slot: Some(link.slot),
            immediate: header.immediate,
            since: gate.now(),
            affected_by: Vec::new(),
            kind: Kind::Command(command),
        });
        // A refused command takes its turn in CmdSN order, too, but is never delivered.
        // An immediate command is delivered when its data is complete; see `finish_data`.
        let turn = if is_refused || header.immediate { OrderedAction::Pass } else { OrderedAction::Command(id) };
        // Behind the insertion: the turn may come at once, and the action finds the task by its identifier.
        self.run_in_cmdsn_order(link, header.immediate, header.cmd_sn, turn);
        let placed = takes_data && data_bytes > 0;
        Ok(if placed { Placement::Command { task: id, offset: 0 } } else { Placement::Skip(Some(id)) })
    }

    /// Checks a Data-Out PDU; the result tells where its data goes.
    ///
    /// *Errors*: the violated rule.
    pub(crate) fn begin_data_out(
        &mut self,
        link: &Link,
        header: &pdu::DataOut,
        data_bytes: usize,
    ) -> Result<Placement, Violation> {
        // An initiator cannot recall data of a task that was aborted or answered early, so it is discarded. Data with
        // an unknown tag is indistinguishable from it.
        let Some(id) = self.session.by_tag(header.initiator_task_tag) else { return Ok(Placement::Skip(None)) };
        let task = self.session.find_mut(id).expect("the tag names it");
        // Connection allegiance: all PDUs of a command use the connection of the command (RFC 7143 §4.2.2).
        if task.slot != Some(link.slot) {
            return Err(Violation::AllegianceWrong);
        }
        let lun = task.lun;
        let command = task.command_mut().ok_or(Violation::DataWithoutWrite)?;
        // With the reserved Target Transfer Tag the data is unsolicited (RFC 7143 §11.7.4).
        let solicited = !header.target_transfer_tag.is_reserved();
        if solicited {
            if header.target_transfer_tag != transfer_tag(id, command.data_out.answering()) {
                // Above level 0 it may answer an R2T that has been replaced by a recovery R2T.
                return if link.recovers { Ok(Placement::Skip(None)) } else { Err(Violation::TransferTagUnknown) };
            }
            if header.lun != lun {
                return Err(Violation::LunOfTransferWrong);
            }
        }
        let arrived = Arrived {
            solicited,
            data_sn: header.data_sn.0,
            offset: header.buffer_offset_bytes,
            len: u32::try_from(data_bytes).map_err(|_| Violation::DataSegmentTooLong)?,
            last: header.is_final,
        };
        let admitted = command.data_out.admit(arrived, link.recovers)?;
        // Progress, so the recovery timer does not ask for this data again yet.
        command.stale = false;
        if admitted == Admitted::Useless {
            return Ok(Placement::Skip(Some(id)));
        }
        // Recorded until the payload is complete, so that a digest error can revoke exactly this range.
        command.placing = Some(Placing { offset: arrived.offset, last: arrived.last });
        if admitted == Admitted::AfterGap && command.progress == Progress::Receiving {
            // A gap in DataSN is an undetected digest error (RFC 7143 §7.9): the task ends with it, as in §7.8, once
            // none of its data is in flight any more.
            command.data_out.stop_solicitation();
            command.progress = Progress::Refused;
            command.refusal = Some(Box::new(Response::check_condition(&PROTOCOL_SERVICE_CRC_ERROR)));
        }
        if command.takes_data() && data_bytes > 0 {
            let end = header.buffer_offset_bytes as usize + data_bytes;
            // `admit` accepts no byte beyond the announced or requested range, and the buffer covers that range.
            assert!(end <= command.held_bytes, "data that was admitted has its place");
            Ok(Placement::Command { task: id, offset: header.buffer_offset_bytes as usize })
        } else {
            Ok(Placement::Skip(Some(id)))
        }
    }

    /// Takes the data buffer of the command while a payload is received into it.
    pub(crate) fn take_buf(&mut self, id: TaskId) -> Option<Buf> {
        self.session.find_mut(id)?.command_mut()?.buf.take()
    }

    /// Copies the payload of a completely buffered PDU into the data buffer.
    pub(crate) fn put_data(&mut self, link: &mut Link, id: TaskId, offset: usize, data: &[u8]) {
        // `None` when a held task management function, due right behind the command, has removed it since `begin`.
        let mut buf = self.take_buf(id);
        if let Some(buf) = &mut buf {
            buf[offset..offset + data.len()].copy_from_slice(data);
        }
        self.finish_data(link, id, buf);
    }

    /// Completes a payload that was discarded, or a PDU without payload.
    pub(crate) fn finish_skipped(&mut self, link: &mut Link, id: Option<TaskId>) {
        if let Some(id) = id {
            self.finish_data(link, id, None);
        }
    }

    /// Completes a payload of the command; `buf` is its data buffer, if it was taken before.
    pub(crate) fn finish_data(&mut self, link: &mut Link, id: TaskId, buf: Option<Buf>) {
        let Some(task) = self.session.find_mut(id) else { return };
        let immediate = task.immediate;
        let Some(command) = task.command_mut() else { return };
        // The payload is complete; only now can a digest error no longer revoke it.
        command.placing = None;
        if buf.is_some() {
            command.buf = buf;
        }
        match command.progress {
            // Forgone data is awaited but never solicited.
            Progress::Receiving if !command.is_ready() && command.without_data => {}
            // Data that is still missing is due for R2Ts, as far as MaxOutstandingR2T permits.
            Progress::Receiving if !command.is_ready() => self.solicit(link, id),
            Progress::Receiving if immediate => self.handle_immediate(id),
            Progress::Receiving => self.deliver(),
            // A refusal is sent only after all announced data has arrived: an early status would leave Data-Out PDUs
            // without a task.
            Progress::Refused if !command.data_out.is_owed() => {
                let refusal = command.refusal.take().expect("a refused command has an answer");
                self.start_response(link, id, *refusal);
            }
            Progress::Refused | Progress::Running | Progress::Responding => {}
        }
    }

    /// Delivers a command whose turn has come, or queues it until its data and its predecessors allow delivery.
    pub(crate) fn handle_in_order(&mut self, id: TaskId) {
        let ready = self.session.find(id).and_then(Task::command).is_some_and(CommandTask::is_ready);
        // Common case: nothing before this command waits, so the queue is bypassed.
        if ready && self.waiting.is_empty() && self.orphaned_commands == 0 {
            return self.hand_out(id);
        }
        self.waiting.push_back(id);
        self.deliver();
    }

    /// Delivers an immediate command ahead of all waiting ones, but not while tasks of a lost connection are still
    /// running.
    fn handle_immediate(&mut self, id: TaskId) {
        // At the front of the queue, so that `deliver` hands it out first once the last orphan has ended.
        if self.orphaned_commands == 0 { self.hand_out(id) } else { self.waiting.push_front(id) }
    }

    /// Delivers every waiting command that is complete and whose task attribute permits it.
    pub(crate) fn deliver(&mut self) {
        // Tasks of a lost connection must end first, so that none of their writes lands behind a repeated command.
        if self.orphaned_commands > 0 {
            return;
        }
        // Taken out, because `hand_out` borrows the session while the queue is filtered.
        let mut waiting = std::mem::take(&mut self.waiting);
        // An ORDERED command waits for everything before it, and everything behind it waits for the command.
        let (mut earlier, mut barrier) = (false, false);
        waiting.retain(|&id| {
            // A task management function has removed the command since it was queued.
            let Some(command) = self.session.find(id).and_then(Task::command) else { return false };
            let attribute = command.attribute;
            let allowed = match attribute {
                TaskAttribute::HeadOfQueue => true,
                TaskAttribute::Ordered => !earlier,
                _ => !barrier,
            };
            if allowed && command.is_ready() {
                self.hand_out(id);
                return false;
            }
            // A SIMPLE command that still awaits its data holds up only ORDERED ones behind it.
            earlier = true;
            barrier |= attribute == TaskAttribute::Ordered;
            true
        });
        self.waiting = waiting;
    }

    /// Asks the gate about the command, then allocates its data buffer or stores its refusal.
    fn judge(
        &mut self,
        link: &Link,
        header: &ScsiCommand,
        command: &mut CommandTask,
        data_bytes: usize,
        gate: &mut impl Gate,
    ) {
        let limits = self.data_out_limits;
        // FirstBurstLength bytes may arrive unsolicited, however small the configured limit is.
        let most = link.config.data_out_bytes_max.max(limits.first_burst_bytes_max);
        let total = command.expected_out_bytes.min(most);
        // The payload passed the check against FirstBurstLength, so it fits.
        let immediate_bytes = u32::try_from(data_bytes).unwrap_or(u32::MAX);
        command.placing = (data_bytes > 0).then_some(Placing { offset: 0, last: header.is_final });
        command.data_out = DataOut::start(total, immediate_bytes, !header.is_final, &limits);
        let verdict = gate.judge(header.lun, &command.cdb, command.expected_out_bytes, command.expected_in_bytes);
        let (room, refusal) = match verdict {
            // A refusal takes no data, so no memory is allocated either.
            Verdict::Refuse(response) => (0, Some(response)),
            Verdict::Take { bytes_max } => {
                let room = command.data_out.limit(bytes_max);
                // One command alone may always have its data; otherwise a limit below its size would refuse it forever.
                let passes = self.held_bytes + room as usize > link.config.data_out_held_bytes_max;
                // The response counts all data as residual: none of it is stored.
                let full = || Response { transfer_bytes: Some(0), ..Response::status(TASK_SET_FULL) };
                (room, (self.held_bytes > 0 && passes).then(full))
            }
            Verdict::ExecuteWithoutData => {
                // The unit answers this command itself: it may have a unit attention to report that precedes the
                // refusal.
                command.data_out.stop_solicitation();
                command.without_data = true;
                return;
            }
        };
        match refusal {
            Some(response) => {
                command.data_out.stop_solicitation();
                command.progress = Progress::Refused;
                command.refusal = Some(Box::new(response));
            }
            None if room > 0 => {
                // Recycled memory is not cleared: every byte that is delivered is overwritten before.
                command.buf = Some(Buf::recycled(room as usize));
                command.held_bytes = room as usize;
                self.held_bytes += room as usize;
                let is_bounded = self.held_bytes <= link.config.data_out_held_bytes_max;
                assert!(is_bounded || self.held_bytes == room as usize, "data of commands is within its memory");
                // Only a command that has to wait for data can be cleared in between.
                if room > immediate_bytes {
                    command.wait_guard = gate.begin_wait(header.lun);
                }
            }
            None => {}
        }
    }

    fn hand_out(&mut self, id: TaskId) {
        let Some(task) = self.session.find_mut(id) else { return };
        let (lun, immediate) = (task.lun, task.immediate);
        let Some(command) = task.command_mut() else { return };
        assert!(command.is_ready(), "a command is handed out once, with all of its data");
        command.progress = Progress::Running;
        self.events.push_back(Event::Command(Command {
            task: id,
            lun,
            // Taken, not copied: the command is delivered exactly once.
            cdb: std::mem::take(&mut command.cdb),
            attribute: command.attribute,
            immediate,
            data_out: command.take_data(),
            expected_data_out_bytes: command.expected_out_bytes,
            expected_data_in_bytes: command.expected_in_bytes,
            wait_guard: command.wait_guard.take(),
            declined: command.declined,
        }));
    }

    /// Sends the R2Ts that are due.
    pub(crate) fn solicit(&mut self, link: &mut Link, id: TaskId) {
        let limits = self.data_out_limits;
        let Some(command) = self.session.find_mut(id).and_then(Task::command_mut) else { return };
        // Collected first, because sending an R2T borrows the session again.
        let mut due = SmallVec::<[Solicitation; 2]>::new();
        due.extend(std::iter::from_fn(|| command.data_out.poll_solicitation(&limits)));
        for solicitation in due {
            self.push_r2t(link, id, solicitation);
        }
    }

    /// Sends an R2T, for the first time or as a recovery R2T.
    pub(crate) fn push_r2t(&self, link: &mut Link, id: TaskId, solicitation: Solicitation) {
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let Some(task) = self.session.find(id) else { return };
        let r2t = R2t {
            lun: task.lun,
            initiator_task_tag: task.tag,
            // The tag encodes the R2T, so that an answer to an old R2T is recognized.
            target_transfer_tag: transfer_tag(id, solicitation.r2t_sn),
            // An R2T carries the next StatSN without consuming it (RFC 7143 §11.8).
            stat_sn: link.stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            r2t_sn: R2tSn(solicitation.r2t_sn),
            buffer_offset_bytes: solicitation.offset,
            desired_data_transfer_bytes: solicitation.len,
        };
        let mut header = [0; 48];
        r2t.emit(SegmentLengths::NONE, &mut header);
        link.transmit.push(&header, &[]);
    }
}

impl Limits {
    /// Checks the immediate data of a command and its announcement of unsolicited data.
    fn check_unsolicited(
        &self,
        negotiated: &Negotiated,
        header: &ScsiCommand,
        data_bytes: usize,
    ) -> Result<(), Violation> {
        // The F bit is clear if unsolicited Data-Out follows the command (RFC 7143 §11.3.1).
        let announced = !header.is_final;
        if announced && negotiated.initial_r2t {
            return Err(Violation::UnexpectedUnsolicitedData);
        }
        // The limits below concern immediate data; Data-Out that follows is checked as it arrives.
        if data_bytes == 0 {
            return Ok(());
        }
        if !header.write {
            return Err(Violation::DataWithoutWrite);
        }
        if !negotiated.immediate_data {
            return Err(Violation::UnexpectedImmediateData);
        }
        if data_bytes > self.first_burst_bytes_max as usize {
            return Err(Violation::FirstBurstTooLong);
        }
        if data_bytes > header.expected_data_transfer_bytes as usize {
            return Err(Violation::DataTooLong);
        }
        Ok(())
    }
}

impl CommandTask {
    fn parse(header: &ScsiCommand, additional: &[u8]) -> Result<Self, Violation> {
        let mut cdb = Cdb::from(header.cdb);
        let mut read_bytes = None;
        if !additional.is_empty() {
            let ahs = Ahs::parse(additional)?;
            // The extended CDB continues the 16 bytes of the basic header (RFC 7143 §11.2.2.3).
            cdb.extend_from_slice(ahs.extended_cdb.unwrap_or_default());
            read_bytes = ahs.expected_read_bytes;
        }
        let expected = header.expected_data_transfer_bytes;
        // The basic header has one length; for a bidirectional command it is that of the write (RFC 7143 §11.3.4).
        let expected_in_bytes = match (header.read, header.write) {
            (true, true) => read_bytes.ok_or(Violation::BidirectionalWithoutReadLength)?,
            (true, false) => expected,
            (false, _) => 0,
        };
        Ok(Self {
            operation_code: header.cdb[0],
            cdb,
            attribute: header.attribute,
            read: header.read,
            write: header.write,
            expected_out_bytes: if header.write { expected } else { 0 },
            expected_in_bytes,
            held_bytes: 0,
            data_out: DataOut::default(),
            without_data: false,
            declined: false,
            placing: None,
            stale: false,
            buf: None,
            progress: Progress::Receiving,
            wait_guard: None,
            refusal: None,
        })
    }

    /// True when all data is in the buffer, or all forgone data has arrived.
    fn is_ready(&self) -> bool {
        let came = if self.without_data { !self.data_out.is_owed() } else { self.data_out.is_complete() };
        self.progress == Progress::Receiving && came && self.placing.is_none()
    }

    /// Returns the data of the command, truncated to the accepted length.
    fn take_data(&mut self) -> View {
        let Some(mut buf) = self.buf.take() else { return View::default() };
        let wanted = self.data_out.total_bytes() as usize;
        assert!(buf.len() >= wanted, "a command is handed out with as much data as it is to have");
        // The excess is not used and may contain stale memory.
        if buf.len() > wanted {
            buf.truncate(wanted);
        }
        buf.freeze()
    }

    /// True when arriving data has a destination.
    fn takes_data(&self) -> bool {
        self.progress == Progress::Receiving && !self.without_data
    }
}

/// Returns the Target Transfer Tag of an R2T: the place of the task, and a number that differs from those of earlier
/// tasks in the same place.
pub(crate) fn transfer_tag(id: TaskId, r2t_sn: u32) -> TargetTransferTag {
    // An odd factor maps different generations to different values modulo 2^16, so late data of an old task misses.
    let low = id.generation.wrapping_mul(0x9e5) ^ r2t_sn;
    // Places are fewer than 2^16 - 1, so the reserved tag cannot result.
    TargetTransferTag(id.index << 16 | low & 0xffff)
}
