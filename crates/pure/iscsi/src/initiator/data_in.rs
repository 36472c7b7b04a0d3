//! Responses to commands on the receive side: data into its destination, then the status.

use super::connection::Link;
use super::event::{Completion, Event};
use super::full_feature::{FullFeaturePhase, Placement, sense_in};
use super::task::{CommandTask, Task};
use crate::Violation;
use crate::pdu::{DataIn, Residual, ScsiResponse, ServiceResponse};
use crate::session::TaskId;
use block::Buf;

impl FullFeaturePhase {
    /// Checks a Data-In; the result tells where its data goes.
    ///
    /// *Errors*: the violated rule.
    pub(crate) fn begin_data_in(&mut self, header: &DataIn, data_bytes: usize) -> Result<Placement, Violation> {
        self.handle_window(header.exp_cmd_sn, header.max_cmd_sn);
        // Phase collapse: the last Data-In carries the status, so no SCSI Response follows.
        if let Some(status) = header.status {
            self.handle_status(status.stat_sn)?;
        }
        let id = self.by_tag(header.initiator_task_tag)?;
        let Some(Task::Command(task)) = self.tasks.find_mut(id) else { return Err(Violation::TaskTagUnknown) };
        // Error recovery level 0: a gap cannot be repaired.
        if header.data_sn.0 != task.data_sn {
            return Err(Violation::DataSnWrong);
        }
        // DataPDUInOrder and DataSequenceInOrder are Yes, so data arrives without gaps.
        if header.buffer_offset_bytes != task.received_bytes {
            return Err(Violation::BufferOffsetWrong);
        }
        let len = u32::try_from(data_bytes).map_err(|_| Violation::DataSegmentTooLong)?;
        // A target must not overrun the buffer of the command.
        let end = header.buffer_offset_bytes.checked_add(len).filter(|&end| end <= task.expected_in_bytes);
        task.received_bytes = end.ok_or(Violation::DataTooLong)?;
        task.data_sn += 1;
        // Kept until the payload is complete.
        task.status = header.status;
        // `DataIn::Discard` has no buffer: its data is counted and discarded.
        if task.buf.is_some() && data_bytes > 0 {
            return Ok(Placement::Command { task: id, offset: header.buffer_offset_bytes as usize });
        }
        Ok(Placement::Skip(id))
    }

    /// Takes the data buffer of the command while a payload is received into it.
    pub(crate) fn take_buf(&mut self, id: TaskId) -> Option<Buf> {
        let Some(Task::Command(task)) = self.tasks.find_mut(id) else { return None };
        task.buf.take()
    }

    /// Copies the payload of a completely buffered PDU into the data buffer.
    pub(crate) fn put_data(&mut self, link: &mut Link, id: TaskId, offset: usize, data: &[u8]) {
        if let Some(Task::Command(CommandTask { buf: Some(buf), .. })) = self.tasks.find_mut(id) {
            buf[offset..offset + data.len()].copy_from_slice(data);
        }
        self.finish_data(link, id, None);
    }

    /// Completes a payload of the command; `buf` is its data buffer, if it was taken before. The command ends with a
    /// payload that carries the status.
    pub(crate) fn finish_data(&mut self, link: &mut Link, id: TaskId, buf: Option<Buf>) {
        let Some(Task::Command(task)) = self.tasks.find_mut(id) else { return };
        if buf.is_some() {
            task.buf = buf;
        }
        if let Some(status) = task.status {
            let completion = Completion {
                task: id,
                response: ServiceResponse::Completed,
                status: status.status,
                // Sense data needs a SCSI Response: a Data-In carries only the status code.
                sense: super::Sense::new(),
                data_in: None,
                data_in_bytes: 0,
                residual: status.residual,
                read_residual: Residual::None,
            };
            self.complete(link, completion);
            // Only PDUs other than Data-In pass through `handle_whole`, which sends waiting requests at its end.
            self.pump(link);
        }
    }

    pub(crate) fn handle_scsi_response(
        &mut self,
        link: &mut Link,
        response: &ScsiResponse,
        data: &[u8],
    ) -> Result<(), Violation> {
        self.handle_window(response.exp_cmd_sn, response.max_cmd_sn);
        self.handle_status(response.stat_sn)?;
        let task = self.by_tag(response.initiator_task_tag)?;
        let Some(Task::Command(_)) = self.tasks.find(task) else { return Err(Violation::TaskTagUnknown) };
        let completion = Completion {
            task,
            response: response.response,
            status: response.status,
            sense: sense_in(data),
            data_in: None,
            data_in_bytes: 0,
            residual: response.residual,
            read_residual: response.read_residual,
        };
        self.complete(link, completion);
        Ok(())
    }

    fn complete(&mut self, link: &mut Link, completion: Completion) {
        let Some(Task::Command(task)) = self.tasks.remove(completion.task) else { return };
        let data_in = task.buf.map(|mut buf| {
            assert!(task.received_bytes as usize <= buf.len(), "no more comes than there is space for");
            // Truncated to the received data: the rest of the buffer may hold stale memory.
            buf.truncate(task.received_bytes as usize);
            buf
        });
        link.events.push_back(Event::Completed(Completion {
            data_in,
            data_in_bytes: task.received_bytes,
            ..completion
        }));
    }
}
