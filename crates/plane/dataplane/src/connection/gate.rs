//! The gate: a command is judged by its header, before its data is solicited and memory is taken for it.

use super::commands::response;
use crate::seat::Seat;
use crate::session::Session;
use iscsi::pdu::Lun;
use iscsi::target::{Enrolment, Gate, Response, Verdict};
use scsi::Status;
use shard::World;

/// Judges for one session.
pub(super) struct UnitGate<'a, W: World> {
    pub(super) session: Option<&'a mut Session<W>>,
    pub(super) seat: &'a Seat<W>,
}

impl<W: World> Gate for UnitGate<'_, W> {
    fn judge(&mut self, lun: Lun, cdb: &[u8], data_out_bytes: u32, _data_in_bytes: u32) -> Verdict {
        // What brings no data costs nothing to take; the unit itself answers it.
        if data_out_bytes == 0 {
            return Verdict::Take;
        }
        let cdb = scsi::Cdb::new(cdb);
        let Some(session) = self.session.as_mut() else { return Verdict::Take };
        let Some(reach) = session.find(lun.0) else {
            return refuse(response(scsi::absent::execute(cdb, &[])));
        };
        // What is at home on another shard is judged there.
        if reach.unit(self.seat).is_some_and(|unit| scsi::judge(cdb, &unit.shape()).is_err()) {
            // The unit may have something to say that ranks before the refusal.
            return Verdict::Forgo;
        }
        if data_out_bytes > SMALL_BYTES && block::pool::taken_bytes() > self.seat.limits.buffer_bytes_max {
            return refuse(Response::status(Status::TaskSetFull.code()));
        }
        Verdict::Take
    }

    fn enrol(&mut self, lun: Lun) -> Option<Enrolment> {
        self.session.as_mut()?.find(lun.0).map(|reach| Box::new(reach.enrol()) as Enrolment)
    }
}

/// Nothing of its data is taken: all of it is the residual (RFC 7143 §11.4.5.2).
fn refuse(response: Response) -> Verdict {
    Verdict::Refuse(Response { transfer_bytes: Some(0), ..response })
}

/// Data that a command may always bring: a session's window of them is small.
const SMALL_BYTES: u32 = 64 << 10;
