//! The gate: a command is judged by its header, before its data is solicited and memory is taken for it.

use super::commands::response;
use crate::limits::Limits;
use crate::session::Session;
use iscsi::pdu::Lun;
use iscsi::target::{Gate, Response, Verdict};
use scsi::Status;
use shard::World;

/// Judges for one session.
pub(super) struct UnitGate<'a, W: World> {
    pub(super) session: Option<&'a mut Session<W>>,
    pub(super) limits: &'a Limits,
}

impl<W: World> Gate for UnitGate<'_, W> {
    fn judge(&mut self, lun: Lun, cdb: &[u8], data_out_bytes: u32, _data_in_bytes: u32) -> Verdict {
        // What brings no data costs nothing to take; the unit itself answers it.
        if data_out_bytes == 0 {
            return Verdict::Take;
        }
        if !self.session.as_mut().is_some_and(|session| session.find(lun.0).is_some()) {
            return Verdict::Refuse(response(scsi::absent::execute(scsi::Cdb::new(cdb), &[])));
        }
        if data_out_bytes > SMALL_BYTES && block::pool::taken_bytes() > self.limits.buffer_bytes_max {
            return Verdict::Refuse(Response::status(Status::TaskSetFull.code()));
        }
        Verdict::Take
    }
}

/// Data that a command may always bring: a session's window of them is small.
const SMALL_BYTES: u32 = 64 << 10;
