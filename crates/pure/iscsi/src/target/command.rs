//! SCSI commands on their way in: judged by the header, filled with data, handed out in order.

use super::at_once::Short;
use super::data_out::{Admitted, Arrived, DataOut, Limits, Solicitation};
use super::event::{Cdb, Command, Event, Gate, Response, Verdict};
use super::full_feature::{FullFeature, Placement, Turn};
use super::link::Link;
use super::task::{CommandTask, Kind, Placing, Progress, Task};
use crate::pdu::{self, Ahs, R2t, R2tSn, ScsiCommand, SegmentLengths, TargetTransferTag, TaskAttribute};
use crate::session::TaskId;
use crate::{Negotiated, Violation};
use block::{Buf, View};
use smallvec::SmallVec;

/// SAM-5 §5.3.1.
const TASK_SET_FULL: u8 = 0x28;

/// Fixed-format sense: ABORTED COMMAND, 47/05.
const PROTOCOL_SERVICE_CRC_ERROR: [u8; 18] = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x47, 0x05, 0, 0, 0, 0];

impl FullFeature {
    /// Judges a SCSI Command; when it may go on, the task lives and says where its immediate data goes.
    pub(crate) fn begin_command(
        &mut self,
        link: &mut Link,
        header: &ScsiCommand,
        additional: &[u8],
        data_bytes: usize,
        short: Short,
        gate: &mut impl Gate,
    ) -> Result<Placement, Violation> {
        if !self.in_window(header.immediate, header.cmd_sn) {
            return Ok(Placement::Skip(None));
        }
        if self.is_discovery() {
            return Err(Violation::OnlyDiscovery);
        }
        self.session.admit(header.initiator_task_tag, header.immediate)?;
        let mut command = CommandTask { declined: short == Short::Declined, ..CommandTask::parse(header, additional)? };
        self.data_out_limits.check_unsolicited(&self.negotiated, header, data_bytes)?;
        self.judge(link, header, &mut command, data_bytes, gate);
        let (is_refused, takes_data) = (command.progress == Progress::Refused, command.takes_data());
        let id = self.session.insert(Task {
            tag: header.initiator_task_tag,
            lun: header.lun,
            cmd_sn: header.cmd_sn,
            slot: Some(link.slot),
            immediate: header.immediate,
            since: gate.now(),
            doomed_by: None,
            kind: Kind::Command(command),
        });
        // A refused command has its turn too, but is never handed out.
        let turn = if is_refused || header.immediate { Turn::Pass } else { Turn::Command(id) };
        self.take_turn(link, header.immediate, header.cmd_sn, turn);
        let placed = takes_data && data_bytes > 0;
        Ok(if placed { Placement::Command { task: id, offset: 0 } } else { Placement::Skip(Some(id)) })
    }

    /// Judges a Data-Out; says where its data goes.
    pub(crate) fn begin_data_out(
        &mut self,
        link: &Link,
        header: &pdu::DataOut,
        data_bytes: usize,
    ) -> Result<Placement, Violation> {
        // The data of a task that was aborted or answered early cannot be called back by anybody: it is
        // thrown away. What names no task at all looks the same.
        let Some(id) = self.session.by_tag(header.initiator_task_tag) else { return Ok(Placement::Skip(None)) };
        let task = self.session.find_mut(id).expect("the tag names it");
        if task.slot != Some(link.slot) {
            return Err(Violation::AllegianceWrong);
        }
        let lun = task.lun;
        let command = task.command_mut().ok_or(Violation::DataWithoutWrite)?;
        let solicited = !header.target_transfer_tag.is_reserved();
        if solicited {
            if header.target_transfer_tag != transfer_tag(id, command.data_out.answering()) {
                // Above level 0 it may answer what was asked for again meanwhile.
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
        command.stale = false;
        if admitted == Admitted::Useless {
            return Ok(Placement::Skip(Some(id)));
        }
        command.placing = Some(Placing { offset: arrived.offset, last: arrived.last });
        if admitted == Admitted::BehindHole && command.progress == Progress::Receiving {
            // A hole in the numbers is a digest error that nobody saw (RFC 7143 §7.9): the task ends with it, as
            // §7.8 has it, once nothing of its data is on its way any more.
            command.data_out.forgo();
            command.progress = Progress::Refused;
            command.refusal = Some(Box::new(Response::check_condition(&PROTOCOL_SERVICE_CRC_ERROR)));
        }
        if command.takes_data() && data_bytes > 0 {
            let end = header.buffer_offset_bytes as usize + data_bytes;
            assert!(end <= command.held_bytes, "data that was admitted has its place");
            Ok(Placement::Command { task: id, offset: header.buffer_offset_bytes as usize })
        } else {
            Ok(Placement::Skip(Some(id)))
        }
    }

    /// The memory for the data of the command, while a payload is being put there.
    pub(crate) fn take_buf(&mut self, id: TaskId) -> Option<Buf> {
        self.session.find_mut(id)?.command_mut()?.buf.take()
    }

    /// The payload of a PDU that came whole is put in its place.
    pub(crate) fn put_data(&mut self, link: &mut Link, id: TaskId, offset: usize, data: &[u8]) {
        let mut buf = self.take_buf(id);
        if let Some(buf) = &mut buf {
            buf[offset..offset + data.len()].copy_from_slice(data);
        }
        self.finish_data(link, id, buf);
    }

    /// A payload of the command has come and was thrown away, or there was none.
    pub(crate) fn finish_skipped(&mut self, link: &mut Link, id: Option<TaskId>) {
        if let Some(id) = id {
            self.finish_data(link, id, None);
        }
    }

    /// A payload of the command has come, into `buf` where it was taken before.
    pub(crate) fn finish_data(&mut self, link: &mut Link, id: TaskId, buf: Option<Buf>) {
        let Some(task) = self.session.find_mut(id) else { return };
        let immediate = task.immediate;
        let Some(command) = task.command_mut() else { return };
        command.placing = None;
        if buf.is_some() {
            command.buf = buf;
        }
        match command.progress {
            Progress::Receiving if !command.is_ready() && command.forgone => {}
            Progress::Receiving if !command.is_ready() => self.solicit(link, id),
            Progress::Receiving if immediate => self.handle_immediate(id),
            Progress::Receiving => self.deliver(),
            Progress::Refused if !command.data_out.is_owed() => {
                let refusal = command.refusal.take().expect("a refused command has an answer");
                self.start_response(link, id, *refusal);
            }
            Progress::Refused | Progress::Running | Progress::Responding => {}
        }
    }

    /// The turn of a command has come: it is handed out, or waits for its data and for those before it.
    pub(crate) fn handle_turn(&mut self, id: TaskId) {
        let ready = self.session.find(id).and_then(Task::command).is_some_and(CommandTask::is_ready);
        if ready && self.waiting.is_empty() && self.orphans == 0 {
            return self.hand_out(id);
        }
        self.waiting.push_back(id);
        self.deliver();
    }

    /// An immediate command passes all that wait, but for what a lost connection has left.
    fn handle_immediate(&mut self, id: TaskId) {
        if self.orphans == 0 { self.hand_out(id) } else { self.waiting.push_front(id) }
    }

    /// Hands out every waiting command that has its data and whose order allows it.
    pub(crate) fn deliver(&mut self) {
        if self.orphans > 0 {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let (mut earlier, mut barrier) = (false, false);
        waiting.retain(|&id| {
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
            earlier = true;
            barrier |= attribute == TaskAttribute::Ordered;
            true
        });
        self.waiting = waiting;
    }

    /// Asks the gate, then takes memory for the data or keeps the answer.
    fn judge(
        &mut self,
        link: &Link,
        header: &ScsiCommand,
        command: &mut CommandTask,
        data_bytes: usize,
        gate: &mut impl Gate,
    ) {
        let limits = self.data_out_limits;
        let most = link.config.data_out_bytes_max.max(limits.first_burst_bytes_max);
        let total = command.expected_out_bytes.min(most);
        // The payload passed FirstBurstLength's check, so it fits.
        let immediate_bytes = u32::try_from(data_bytes).unwrap_or(u32::MAX);
        command.placing = (data_bytes > 0).then_some(Placing { offset: 0, last: header.is_final });
        command.data_out = DataOut::start(total, immediate_bytes, !header.is_final, &limits);
        let verdict = gate.judge(header.lun, &command.cdb, command.expected_out_bytes, command.expected_in_bytes);
        let (room, refusal) = match verdict {
            Verdict::Refuse(response) => (0, Some(response)),
            Verdict::Take { bytes_max } => {
                let room = command.data_out.limit(bytes_max);
                let passes = self.held_bytes + room as usize > link.config.data_out_held_bytes_max;
                let full = || Response { transfer_bytes: Some(0), ..Response::status(TASK_SET_FULL) };
                (room, (self.held_bytes > 0 && passes).then(full))
            }
            Verdict::Forgo => {
                command.data_out.forgo();
                command.forgone = true;
                return;
            }
        };
        match refusal {
            Some(response) => {
                command.data_out.forgo();
                command.progress = Progress::Refused;
                command.refusal = Some(Box::new(response));
            }
            None if room > 0 => {
                // Every byte that is handed out is overwritten before.
                command.buf = Some(Buf::recycled(room as usize));
                command.held_bytes = room as usize;
                self.held_bytes += room as usize;
                let is_bounded = self.held_bytes <= link.config.data_out_held_bytes_max;
                assert!(is_bounded || self.held_bytes == room as usize, "data of commands is within its memory");
                if room > immediate_bytes {
                    command.enrolment = gate.enrol(header.lun);
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
            cdb: std::mem::take(&mut command.cdb),
            attribute: command.attribute,
            immediate,
            data_out: command.take_data(),
            expected_data_out_bytes: command.expected_out_bytes,
            expected_data_in_bytes: command.expected_in_bytes,
            enrolment: command.enrolment.take(),
            declined: command.declined,
        }));
    }

    /// Sends the R2Ts that are due.
    pub(crate) fn solicit(&mut self, link: &mut Link, id: TaskId) {
        let limits = self.data_out_limits;
        let Some(command) = self.session.find_mut(id).and_then(Task::command_mut) else { return };
        let mut due = SmallVec::<[Solicitation; 2]>::new();
        due.extend(std::iter::from_fn(|| command.data_out.poll_solicitation(&limits)));
        for solicitation in due {
            self.push_r2t(link, id, solicitation);
        }
    }

    /// Asks for data, for the first time or again.
    pub(crate) fn push_r2t(&self, link: &mut Link, id: TaskId, solicitation: Solicitation) {
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let Some(task) = self.session.find(id) else { return };
        let r2t = R2t {
            lun: task.lun,
            initiator_task_tag: task.tag,
            target_transfer_tag: transfer_tag(id, solicitation.r2t_sn),
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
    /// Admits the data that comes with the command, and what it announces.
    fn check_unsolicited(
        &self,
        negotiated: &Negotiated,
        header: &ScsiCommand,
        data_bytes: usize,
    ) -> Result<(), Violation> {
        let announced = !header.is_final;
        if announced && negotiated.initial_r2t {
            return Err(Violation::UnexpectedUnsolicitedData);
        }
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
            cdb.extend_from_slice(ahs.extended_cdb.unwrap_or_default());
            read_bytes = ahs.expected_read_bytes;
        }
        let expected = header.expected_data_transfer_bytes;
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
            forgone: false,
            declined: false,
            placing: None,
            stale: false,
            buf: None,
            progress: Progress::Receiving,
            enrolment: None,
            refusal: None,
        })
    }

    /// True when all its data lies in its memory, or when all that is not wanted has come.
    fn is_ready(&self) -> bool {
        let came = if self.forgone { !self.data_out.is_owed() } else { self.data_out.is_complete() };
        self.progress == Progress::Receiving && came && self.placing.is_none()
    }

    /// All that it takes of its data, which has come.
    fn take_data(&mut self) -> View {
        let Some(mut buf) = self.buf.take() else { return View::default() };
        let wanted = self.data_out.total_bytes() as usize;
        assert!(buf.len() >= wanted, "a command is handed out with as much data as it is to have");
        // The surplus is nobody's, and may end in what lay there before.
        if buf.len() > wanted {
            buf.truncate(wanted);
        }
        buf.freeze()
    }

    /// True when the data that comes has a place.
    fn takes_data(&self) -> bool {
        self.progress == Progress::Receiving && !self.forgone
    }
}

/// The tag of an R2T: the place of the task, and a number that differs from those of tasks before in the same place.
pub(crate) fn transfer_tag(id: TaskId, r2t_sn: u32) -> TargetTransferTag {
    let low = id.generation.wrapping_mul(0x9e5) ^ r2t_sn;
    // Places are fewer than 2^16 - 1, so the reserved tag never comes out.
    TargetTransferTag(id.index << 16 | low & 0xffff)
}
