//! Admission of a command by its header, before its data is solicited and memory is allocated for it.

use super::commands::{counted, response};
use crate::iscsi_shard::IscsiShard;
use crate::scsi_unit::{self, DataDirection, FastPathCommand};
use crate::session::Session;
use engine::unit::CommandStart;
use iscsi::pdu::Lun;
use iscsi::target::{CompleteCommand, Gate, Response, Verdict, WaitGuard};
use scsi::{Status, TaskAttribute};
use shard::{Time, World};

/// Admission check of one session.
pub(super) struct UnitGate<'a, W: World> {
    pub(super) session: Option<&'a mut Session<W>>,
    pub(super) shard: &'a IscsiShard<W>,
    /// End time of the previous command, or arrival time of this one.
    pub(super) moment: Time,
}

impl<W: World> Gate for UnitGate<'_, W> {
    fn judge(&mut self, lun: Lun, cdb: &[u8], data_out_bytes: u32, _data_in_bytes: u32) -> Verdict {
        // A command without data-out needs no memory; the unit itself answers it.
        if data_out_bytes == 0 {
            return Verdict::TAKE_ALL;
        }
        let cdb = scsi::Cdb::new(cdb);
        // Without a session the connection is ending.
        let Some(session) = self.session.as_mut() else { return Verdict::TAKE_ALL };
        let Some(reach) = session.find(lun.0) else {
            return refuse(response(session.answer_absent(lun.0, cdb), None));
        };
        // RFC 7143 §11.4.5.1: data that the CDB does not transfer is not solicited and is reported as residual.
        let takes = match reach.unit(self.shard) {
            // Only the length is checked here: the unit may have to report a unit attention, which takes precedence
            // over a refusal.
            Some(unit) => scsi::judge(cdb, &unit.shape()).map_or(0, |need| need.data_out),
            // The unit of another shard validates the command itself; an upper bound of its data is sufficient here.
            None => scsi::data_out_bytes_max(cdb, reach.pending_data.block_bytes().unwrap_or(u32::MAX)),
        };
        // The unit executes the command without data, so that a pending unit attention is reported first.
        if takes == 0 {
            return Verdict::ExecuteWithoutData;
        }
        // Back-pressure: above the memory limit, commands with large data get TASK SET FULL instead of a buffer.
        if data_out_bytes > SMALL_BYTES && block::pool::taken_bytes() > self.shard.limits.buffer_bytes_max {
            return refuse(Response::status(Status::TaskSetFull.code()));
        }
        Verdict::Take { bytes_max: u32::try_from(takes).unwrap_or(u32::MAX) }
    }

    fn begin_wait(&mut self, lun: Lun) -> Option<WaitGuard> {
        self.session.as_mut()?.find(lun.0).map(|reach| Box::new(reach.begin_wait()) as WaitGuard)
    }

    fn now(&self) -> Time {
        self.moment
    }

    fn answer(&mut self, command: &CompleteCommand<'_>) -> Option<Response> {
        // Any `None` below means that the command takes the slow path.
        let session = self.session.as_mut()?;
        let nexus = session.nexus();
        let unit = session.find(command.lun.0)?.unit(self.shard)?;
        let clock = CommandStart { operation_code: command.cdb[0], began: self.moment };
        let CompleteCommand { cdb, data_out, expected_data_in_bytes, .. } = *command;
        let command = scsi::CommandRef { attribute: TaskAttribute::Simple, cdb: scsi::Cdb::new(cdb), data_out };
        // The fast path handles only commands whose data is complete.
        let way = DataDirection::of(u32::try_from(data_out.len()).unwrap_or(u32::MAX), expected_data_in_bytes);
        let brief = FastPathCommand { nexus, command, direction: way, clock };
        let end = scsi_unit::run_fast_path(&unit, brief)?;
        // Start time of the next command of the batch.
        self.moment = end.ended;
        Some(counted(Some(session), clock, end))
    }
}

/// Refuses a command without taking its data: all of it is residual (RFC 7143 §11.4.5.2).
fn refuse(response: Response) -> Verdict {
    Verdict::Refuse(Response { transfer_bytes: Some(0), ..response })
}

/// Data length below which a command is exempt from the memory limit: the command window bounds their number.
const SMALL_BYTES: u32 = 64 << 10;
