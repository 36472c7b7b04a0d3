//! The gate: a command is judged by its header, before its data is solicited and memory is taken for it.

use super::commands::{counted, response};
use crate::iscsi_shard::IscsiShard;
use crate::scsi_unit::{self, Brief, Way};
use crate::session::Session;
use engine::unit::Clock;
use iscsi::pdu::Lun;
use iscsi::target::{CommandAtOnce, Enrolment, Gate, Response, Verdict};
use scsi::{Status, TaskAttribute};
use shard::{Time, World};

/// Judges for one session.
pub(super) struct UnitGate<'a, W: World> {
    pub(super) session: Option<&'a mut Session<W>>,
    pub(super) shard: &'a IscsiShard<W>,
    /// When the command before ended, or all of this one was there.
    pub(super) moment: Time,
}

impl<W: World> Gate for UnitGate<'_, W> {
    fn judge(&mut self, lun: Lun, cdb: &[u8], data_out_bytes: u32, _data_in_bytes: u32) -> Verdict {
        // What brings no data costs nothing to take; the unit itself answers it.
        if data_out_bytes == 0 {
            return Verdict::TAKE_ALL;
        }
        let cdb = scsi::Cdb::new(cdb);
        let Some(session) = self.session.as_mut() else { return Verdict::TAKE_ALL };
        let Some(reach) = session.find(lun.0) else {
            return refuse(response(session.answer_absent(lun.0, cdb), None));
        };
        // RFC 7143 §11.4.5.1: what the CDB does not take is not asked for, and is the residual.
        let takes = match reach.unit(self.shard) {
            // The unit may have something to say that ranks before a refusal.
            Some(unit) => scsi::judge(cdb, &unit.shape()).map_or(0, |need| need.data_out),
            // What is at home on another shard is judged there.
            None => scsi::data_out_bytes_max(cdb, reach.incoming.block_bytes().unwrap_or(u32::MAX)),
        };
        if takes == 0 {
            return Verdict::Forgo;
        }
        if data_out_bytes > SMALL_BYTES && block::pool::taken_bytes() > self.shard.limits.buffer_bytes_max {
            return refuse(Response::status(Status::TaskSetFull.code()));
        }
        Verdict::Take { bytes_max: u32::try_from(takes).unwrap_or(u32::MAX) }
    }

    fn enrol(&mut self, lun: Lun) -> Option<Enrolment> {
        self.session.as_mut()?.find(lun.0).map(|reach| Box::new(reach.enrol()) as Enrolment)
    }

    fn now(&self) -> Time {
        self.moment
    }

    fn answer(&mut self, command: &CommandAtOnce<'_>) -> Option<Response> {
        let session = self.session.as_mut()?;
        let nexus = session.nexus();
        let unit = session.find(command.lun.0)?.unit(self.shard)?;
        let clock = Clock { operation_code: command.cdb[0], began: self.moment };
        let CommandAtOnce { cdb, data_out, expected_data_in_bytes, .. } = *command;
        let command = scsi::CommandRef { attribute: TaskAttribute::Simple, cdb: scsi::Cdb::new(cdb), data_out };
        let way = Way::of(u32::try_from(data_out.len()).unwrap_or(u32::MAX), expected_data_in_bytes);
        let brief = Brief { nexus, command, way, clock };
        let end = scsi_unit::run_at_once(&unit, brief)?;
        self.moment = end.ended;
        Some(counted(Some(session), clock, end))
    }
}

/// Nothing of its data is taken: all of it is the residual (RFC 7143 §11.4.5.2).
fn refuse(response: Response) -> Verdict {
    Verdict::Refuse(Response { transfer_bytes: Some(0), ..response })
}

/// Data that a command may always bring: a session's window of them is small.
const SMALL_BYTES: u32 = 64 << 10;
