//! The way of a command through the unit: told, understood, let in, done.

use super::LogicalUnit;
use crate::absent;
use crate::alua::ACCESS_TURN;
use crate::cdb::Cdb;
use crate::command::{Command, NexusId, Outcome, Status, TaskAttribute};
use crate::defects;
use crate::failure::{Failure, read_failure, read_sense, within, write_failure};
use crate::judge;
use crate::lun::Lun;
use crate::operation::{Operation, Verb};
use crate::request::{Job, Request, blocks_of};
use crate::reservation::TURN;
use crate::sanitize::EVERYTHING;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::shape::Shape;
use crate::task_set::{Claim, Ticket};
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, View, Written};
use std::future::{Future, poll_fn};

/// How many bad places a READ looks behind for blocks that it can still send.
const BAD_PLACES_MAX: usize = 8;

/// What was read is what was asked for.
#[inline]
pub(super) fn assert_whole(data: &Rope, extent: Extent, geometry: Geometry) {
    let bytes = extent.len.bytes(geometry.block_bytes);
    assert_eq!(data.len() as u64, bytes, "a device reads exactly the blocks that it is asked for");
}

/// What is left to do for a task that was let in. Small, for it is moved with every command.
enum Work {
    Read(Extent),
    Write(Lba, View, bool),
    Other(Box<Job>),
    /// It had to wait: what was reserved meanwhile counts (SPC-4: looked at before a task is enabled, and never after).
    Waited(Box<(NexusId, Request, Self)>),
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// Executes `command` for `nexus`, ordered among the other tasks as its attribute says.
    ///
    /// The task enters the task set when this is called, so calls are in the order of commands; the
    /// future does the work. READ and WRITE are done at its first poll when the device does them at
    /// once, without an allocation. REPORT LUNS is answered as if this were the target's only unit: a
    /// caller with several answers it itself ([`absent::report_luns`]).
    ///
    /// *Durability*: after GOOD, what was written survives power loss, as the device's `flush` says.
    pub fn execute(&self, nexus: NexusId, command: Command) -> impl Future<Output = Outcome> + use<'_, D> {
        let entered = self.enter(nexus, command);
        async move {
            let answer = match entered {
                Ok((ticket, work)) => match poll_fn(|cx| ticket.poll_begun(cx)).await {
                    Ok(()) => {
                        let answer = match self.look_again(work) {
                            Ok(Work::Read(extent)) => self.read(extent).await,
                            Ok(Work::Write(start, data, fua)) => self.write(start, data, fua).await,
                            Ok(Work::Other(job)) => Box::pin(self.perform(*job, &ticket)).await,
                            Ok(Work::Waited(_)) => unreachable!("it was looked at again once"),
                            Err(failure) => Err(failure),
                        };
                        // An aborted task ends as aborted, whatever it came to.
                        ticket.check_live().map_err(Failure::from).and(answer)
                    }
                    Err(how) => Err(how.into()),
                },
                Err(failure) => Err(failure),
            };
            answer.map_or_else(|failure| self.failed(failure), Outcome::good)
        }
    }

    pub(super) fn failed(&self, failure: Failure) -> Outcome {
        if matches!(failure, Failure::Status(Status::ReservationConflict)) {
            self.counters.count_conflict();
        }
        failure.outcome(self.mode.get().descriptor_sense)
    }

    /// What is to be done of a task that begins, if it had to wait before and may still be done.
    fn look_again(&self, work: Work) -> Result<Work, Failure> {
        let Work::Waited(waited) = work else { return Ok(work) };
        let (nexus, request, work) = *waited;
        self.check_access(nexus, request.operation)?;
        self.check_reservation(nexus, request.operation.access, request.cdb)?;
        self.check_sanitize(request.operation)?;
        Ok(work)
    }

    /// Judges the command and lets it into the task set.
    fn enter(&self, nexus: NexusId, command: Command) -> Result<(Ticket<'_>, Work), Failure> {
        let geometry = self.device.geometry();
        let request = self.admit(nexus, command.cdb, &self.shape_of(geometry))?;
        if is_backwards(&command, &request) {
            return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT).into());
        }
        let claim = claim_of(nexus, &command, &request, geometry)?;
        let Command { tag, data_out, data_out_expected, .. } = command;
        let work = match request.operation.verb {
            Verb::Read => Work::Read(request.extent),
            Verb::Write => {
                let data = blocks_of(data_out, data_out_expected, request.need.data_out, geometry)?;
                Work::Write(request.extent.start, data, is_forced(&request))
            }
            _ => Work::Other(Box::new(Job { nexus, tag, request, data_out, data_out_expected, geometry })),
        };
        let ticket = self.tasks.enter(claim)?;
        let work = if ticket.has_begun() { work } else { Work::Waited(Box::new((nexus, request, work))) };
        Ok((ticket, work))
    }

    /// Tells the nexus what it must hear first, and refuses what cannot be done.
    #[inline]
    pub(super) fn admit(&self, nexus: NexusId, cdb: Cdb, shape: &Shape) -> Result<Request, Failure> {
        let operation = Operation::find(cdb, shape.offered());
        let quiet = operation.is_ok_and(Operation::is_quiet);
        if !self.nexuses.is_all_told()
            && !quiet
            && let Some(attention) = self.nexuses.take(nexus)
        {
            return Err(attention.sense().into());
        }
        let operation = operation?;
        self.check_access(nexus, operation)?;
        self.check_reservation(nexus, operation.access, cdb)?;
        self.check_sanitize(operation)?;
        self.check_medium(operation)?;
        if operation.writes() {
            self.check_writable(nexus)?;
        }
        Ok(judge::request_of(operation, cdb, shape)?)
    }

    /// True when `nexus` may not write, or nobody may.
    pub(crate) fn is_read_only(&self, nexus: NexusId) -> bool {
        self.options.read_only || self.nexuses.is_read_only(nexus)
    }

    fn check_writable(&self, nexus: NexusId) -> Result<(), Sense> {
        let protected = |code| Err(Sense::new(SenseKey::DataProtect, code));
        if self.is_read_only(nexus) {
            protected(AdditionalSense::WRITE_PROTECTED)
        } else if self.mode.get().software_write_protect {
            protected(AdditionalSense::SOFTWARE_WRITE_PROTECTED)
        } else {
            Ok(())
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, Failure> {
        if extent.is_empty() {
            self.counters.count_read(0);
            return Ok(Rope::new());
        }
        let read = self.device.read(extent).await;
        match self.check_read(extent, read) {
            Ok(data) => {
                self.counters.count_read(extent.len.0);
                Ok(data)
            }
            Err(error) if error.kind == IoErrorKind::Medium => Err(Box::pin(self.read_before(extent, error)).await),
            Err(error) => Err(read_failure(error)),
        }
    }

    /// Reads what of `extent` lies before the blocks that `error` names, which are then the first bad ones: an
    /// initiator keeps what comes before the block that INFORMATION names.
    async fn read_before(&self, extent: Extent, mut error: IoError) -> Failure {
        for _ in 0..BAD_PLACES_MAX {
            let before = Extent { len: error.extent.start - extent.start, ..extent };
            if before.is_empty() {
                break;
            }
            let read = self.device.read(before).await;
            match self.check_read(before, read) {
                Ok(data) => return Failure::CheckBehind(Box::new((read_sense(error), data))),
                // Worse than it looked: there is a bad place before it, or no device.
                Err(earlier) => error = earlier,
            }
            if error.kind != IoErrorKind::Medium {
                return read_failure(error);
            }
        }
        // Nothing is sent, so no block may be taken for one that was read.
        read_failure(error.at(extent))
    }

    /// Reads blocks, at least one, for whatever command.
    pub(crate) async fn read_blocks(&self, extent: Extent) -> Result<Rope, Failure> {
        let read = self.device.read(extent).await;
        self.check_read(extent, read).map_err(read_failure)
    }

    /// What the device made of reading `extent`: counted, and placed within it.
    fn check_read(&self, extent: Extent, read: Result<Rope, IoError>) -> Result<Rope, IoError> {
        match read {
            Ok(data) => {
                assert_whole(&data, extent, self.device.geometry());
                Ok(data)
            }
            Err(error) => {
                self.counters.count_read_error();
                Err(within(extent, error))
            }
        }
    }

    /// Writes `data` from `start` on and makes it stable, unless WCE is one and `fua` is not; counts it as a WRITE.
    pub(crate) async fn write(&self, start: Lba, data: View, fua: bool) -> Result<Rope, Failure> {
        let bytes = data.len();
        if bytes > 0 {
            self.about_to_write(start, bytes);
            // Not by way of `write_blocks`, whose future would hold the data once more.
            let written = self.device.write(start, data).await;
            let written = self.check_written(start, bytes, written)?;
            if fua || !self.mode.get().write_cache {
                self.make_stable(written).await?;
            }
        }
        self.counters.count_write(bytes);
        Ok(Rope::new())
    }

    /// WRITE ATOMIC (16) of SBC-4. The task set lets nobody else see its blocks meanwhile, and the device leaves them old or new.
    async fn write_atomic(&self, job: &Job) -> Result<Rope, Failure> {
        let (extent, data) = (job.request.extent, job.whole_data()?);
        let bytes = data.len();
        if !extent.is_empty() {
            self.tokens.cancel(extent);
            let written = self.device.write_atomic(extent.start, data).await;
            let written = self.check_changed(extent, written)?;
            if job.request.cdb.bit(1, 3) || !self.mode.get().write_cache {
                self.make_stable(written).await?;
            }
        }
        self.counters.count_write(bytes);
        Ok(Rope::new())
    }

    pub(crate) async fn write_blocks(&self, start: Lba, data: View) -> Result<Written, Failure> {
        let bytes = data.len();
        self.about_to_write(start, bytes);
        let written = self.device.write(start, data).await;
        self.check_written(start, bytes, written)
    }

    /// What stands for one of the blocks that `bytes` from `start` on fill is not valid any more.
    pub(super) fn about_to_write(&self, start: Lba, bytes: usize) {
        if self.tokens.are_some_valid() {
            let blocks = bytes as u64 / u64::from(self.device.geometry().block_bytes);
            self.tokens.cancel(Extent { start, len: Blocks(blocks) });
        }
    }

    /// What the device made of writing `bytes` from `start` on.
    fn check_written(&self, start: Lba, bytes: usize, written: Result<Written, IoError>) -> Result<Written, Failure> {
        let blocks = bytes as u64 / u64::from(self.device.geometry().block_bytes);
        self.check_changed(Extent { start, len: Blocks(blocks) }, written)
    }

    pub(crate) async fn discard(&self, extent: Extent) -> Result<Written, Failure> {
        self.tokens.cancel(extent);
        let written = self.device.discard(extent).await;
        self.check_changed(extent, written)
    }

    /// What the device made of writing or discarding `extent`: counted, placed within it, and held against the
    /// thresholds.
    pub(crate) fn check_changed(&self, extent: Extent, written: Result<Written, IoError>) -> Result<Written, Failure> {
        self.check_thresholds();
        written.map_err(|error| self.write_error(within(extent, error)))
    }

    /// What was written survives power loss.
    pub(crate) async fn make_stable(&self, written: Written) -> Result<(), Failure> {
        if self.device.geometry().volatile_cache { self.flush(written).await } else { Ok(()) }
    }

    pub(crate) async fn flush(&self, written: Written) -> Result<(), Failure> {
        match self.device.flush(written).await {
            Ok(_stable) => Ok(()),
            Err(error) => Err(self.write_error(error)),
        }
    }

    fn write_error(&self, error: IoError) -> Failure {
        self.counters.count_write_error();
        write_failure(error)
    }

    /// Everything but READ and WRITE.
    async fn perform(&self, job: Job, ticket: &Ticket<'_>) -> Result<Rope, Failure> {
        let (cdb, allocation) = (job.request.cdb, job.request.need.data_in);
        match job.request.operation.verb {
            Verb::Read | Verb::Write => unreachable!("READ and WRITE do not come here"),
            // The extent was checked; what fits into no cache is not fetched, and that is GOOD (SBC-4 PRE-FETCH).
            Verb::PreFetch | Verb::TestUnitReady => Ok(Rope::new()),
            Verb::Inquiry => self.inquire(job.nexus, cdb, allocation),
            Verb::ReportLuns => {
                self.lun_inventory_reported(job.nexus);
                Ok(absent::luns_of(cdb, &[Lun::of(0)])?)
            }
            Verb::RequestSense => Ok(self.request_sense(job.nexus, cdb)),
            Verb::ReadCapacity10 => Ok(self.read_capacity_10(job.geometry)),
            Verb::GetLbaStatus => self.lba_status(&job, ticket).await,
            Verb::ReadCapacity16 => Ok(self.read_capacity_16(job.geometry, allocation)),
            Verb::ModeSense => self.mode_sense(&job),
            Verb::ModeSelect => self.mode_select(&job).await,
            Verb::LogSense => self.log_sense(cdb, allocation),
            Verb::ReportSupportedOperationCodes => self.report_operations(cdb, allocation),
            Verb::ReportTargetPortGroups => self.report_target_port_groups(job.nexus, cdb, allocation),
            Verb::SetTargetPortGroups => self.set_target_port_groups(&job).await,
            Verb::ReportSupportedTaskManagement => self.report_task_management(cdb, allocation),
            Verb::StartStopUnit if self.medium.is_removable() => self.start_stop_removable(job.nexus, cdb).await,
            Verb::StartStopUnit => self.start_stop(cdb).await,
            Verb::SendDiagnostic => self.send_diagnostic(cdb).await,
            Verb::PreventAllow => Ok(self.prevent_allow(job.nexus, cdb)),
            Verb::ReadDefectData => Ok(defects::read_defect_data(cdb, allocation)),
            Verb::SynchronizeCache => self.synchronize_cache().await,
            Verb::Verify => self.verify(&job).await,
            Verb::WriteAndVerify => self.write_and_verify(&job).await,
            Verb::WriteAtomic => self.write_atomic(&job).await,
            Verb::WriteSame => self.write_same(&job, ticket).await,
            Verb::Unmap => self.unmap(&job, ticket).await,
            Verb::ExtendedCopy => self.extended_copy(&job, ticket).await,
            Verb::ReceiveCopyResults => self.receive_copy_results(job.nexus, cdb, allocation),
            Verb::PopulateToken => self.populate_token(&job).await,
            Verb::WriteUsingToken => self.write_using_token(&job, ticket).await,
            Verb::CopyOperationAbort => self.copy_operation_abort(&job).await,
            Verb::CompareAndWrite => self.compare_and_write(&job, ticket).await,
            Verb::OrWrite => self.or_write(&job, ticket).await,
            Verb::PersistentReserveIn => self.persistent_reserve_in(cdb, allocation),
            Verb::PersistentReserveOut => self.persistent_reserve_out(&job).await,
            Verb::Reserve => self.reserve(job.nexus),
            Verb::Release => self.release(job.nexus),
            Verb::Sanitize => self.sanitize(&job, ticket).await,
        }
    }
}

fn claim_of(nexus: NexusId, command: &Command, request: &Request, geometry: Geometry) -> Result<Claim, Failure> {
    if command.attribute == TaskAttribute::Aca {
        return Err(Sense::illegal(AdditionalSense::INVALID_MESSAGE).into());
    }
    let extent = match request.operation.verb {
        // Its blocks stand in its list, which is not read yet.
        Verb::Unmap | Verb::PopulateToken => geometry.all(),
        Verb::PersistentReserveOut | Verb::Reserve | Verb::Release | Verb::ModeSelect => TURN,
        Verb::SetTargetPortGroups => ACCESS_TURN,
        Verb::Sanitize => EVERYTHING,
        // They touch no content.
        Verb::PreFetch | Verb::SynchronizeCache | Verb::GetLbaStatus => Extent::default(),
        _ => request.extent,
    };
    // SBC-4: SANITIZE is processed as if it came at the head of the queue.
    let attribute = if request.operation.is_sanitize() { TaskAttribute::HeadOfQueue } else { command.attribute };
    // SP keeps what is to survive power loss, and that is kept as a whole.
    let saves = request.operation.verb == Verb::ModeSelect && request.cdb.bit(1, 0);
    let alone = saves || request.operation.runs_alone();
    Ok(Claim { nexus, tag: command.tag, attribute, extent, alone, is_part: false })
}

/// The CDB takes data, and the initiator waits for some and sends none: GOOD would tell it that something was written. One
/// that says that it has none at all is believed.
fn is_backwards(command: &Command, request: &Request) -> bool {
    request.need.data_out > 0 && command.data_out_expected == 0 && command.data_in_expected > 0
}

/// FUA of a WRITE. It is in the second byte of every one but WRITE (6), whose second byte is of its address.
pub(super) fn is_forced(request: &Request) -> bool {
    request.cdb.operation_code() >= 0x20 && request.cdb.bit(1, 3)
}
