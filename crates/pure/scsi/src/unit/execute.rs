//! Command processing of the unit: unit attention, validation, admission to the task set, execution.

use super::LogicalUnit;
use crate::cdb::Cdb;
use crate::command::{Command, NexusId, Outcome, Status, TaskAttribute};
use crate::copy::CopyContext;
use crate::defects;
use crate::failure::Failure;
use crate::judge;
use crate::lun::Lun;
use crate::medium::diagnostic::send_diagnostic;
use crate::medium::lba_status::lba_status;
use crate::medium::unmap::unmap;
use crate::medium::write_same::write_same;
use crate::medium::{capacity, compare, verify};
use crate::operation::{Operation, Verb};
use crate::request::{Job, Request, blocks_of};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::shape::Shape;
use crate::task_set::{ACCESS_STATE_SLOT, Claim, EVERYTHING, PERSISTENT_STATE_SLOT, TaskGuard};
use crate::{no_unit, report};
use block::{BlockDevice, Extent, Geometry, Lba, Rope, View};
use std::future::{Future, poll_fn};

/// Remaining work of an admitted task. Small, because it is moved with every command.
enum Work {
    Read(Extent),
    Write(Lba, View, bool),
    Other(Box<Job>),
    /// The task had to wait, so reservations are checked again before it is enabled (SPC-4: checked before a task is
    /// enabled, and never after).
    Waited(Box<(NexusId, Request, Self)>),
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// Executes `command` for `nexus`, ordered among the other tasks by its task attribute.
    ///
    /// The task enters the task set during the call, so the order of calls is the order of commands; the future does
    /// the work. READ and WRITE complete at its first poll, without an allocation, when the device completes at once.
    /// REPORT LUNS is answered as if this were the only unit of the target: a caller with several units answers it
    /// itself ([`no_unit::report_luns`]).
    ///
    /// *Durability*: after GOOD, written data survives power loss, as the `flush` of the device promises.
    pub fn execute(&self, nexus: NexusId, command: Command) -> impl Future<Output = Outcome> + use<'_, D> {
        // Entered here and not in the future: the order of calls decides, not the order of the first polls.
        let entered = self.enter(nexus, command);
        async move {
            let answer = match entered {
                Ok((ticket, work)) => match poll_fn(|cx| ticket.poll_begun(cx)).await {
                    Ok(()) => {
                        let answer = match self.look_again(work) {
                            Ok(Work::Read(extent)) => self.medium.read(extent).await,
                            Ok(Work::Write(start, data, fua)) => self.medium.write(start, data, fua).await,
                            // Boxed, so that the rare commands do not enlarge the future of READ and WRITE.
                            Ok(Work::Other(job)) => Box::pin(self.perform(*job, &ticket)).await,
                            Ok(Work::Waited(_)) => unreachable!("it was looked at again once"),
                            Err(failure) => Err(failure),
                        };
                        // An aborted task completes as aborted, whatever its result.
                        ticket.check_live().map_err(Failure::from).and(answer)
                    }
                    Err(how) => Err(how.into()),
                },
                Err(failure) => Err(failure),
            };
            answer.map_or_else(|failure| self.failed(failure), Outcome::good)
        }
    }

    /// Converts a failure to its outcome, in the sense format of the control mode page, and counts reservation
    /// conflicts.
    pub(super) fn failed(&self, failure: Failure) -> Outcome {
        if matches!(failure, Failure::Status(Status::ReservationConflict)) {
            self.medium.counters().count_conflict();
        }
        let mode = self.mode.get();
        // With the write cache enabled, acknowledged writes may be lost with the device, so NOT READY must not invite a
        // retry. An absent device has lost nothing.
        let failure =
            if mode.write_cache && !self.readiness.is_absent() { failure.with_writes_lost() } else { failure };
        failure.outcome(mode.descriptor_sense)
    }

    /// Repeats the checks that may have changed while the task was blocked.
    fn look_again(&self, work: Work) -> Result<Work, Failure> {
        let Work::Waited(waited) = work else { return Ok(work) };
        let (nexus, request, work) = *waited;
        self.port_groups.check(nexus, request.operation, &self.nexuses)?;
        self.reservations.check(nexus, request.operation.access, request.cdb, &self.nexuses)?;
        self.sanitize.check(request.operation, || self.medium.geometry().blocks)?;
        Ok(work)
    }

    /// Validates the command and adds it to the task set.
    fn enter(&self, nexus: NexusId, command: Command) -> Result<(TaskGuard<'_>, Work), Failure> {
        let geometry = self.medium.geometry();
        let request = self.admit(nexus, command.cdb, &self.shape_of(geometry))?;
        // Behind the admission, because its conditions take precedence.
        if is_backwards(&command, &request) {
            return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT).into());
        }
        assert!(geometry.all().contains(request.extent), "a command is admitted to blocks that are there");
        let claim = claim_of(nexus, &command, &request, geometry)?;
        let Command { tag, data_out, data_out_expected, .. } = command;
        let work = match request.operation.verb {
            Verb::Read => Work::Read(request.extent),
            Verb::Write => {
                let data = blocks_of(data_out, data_out_expected, request.need.data_out, geometry)?;
                Work::Write(request.extent.start, data, request.is_forced())
            }
            _ => Work::Other(Box::new(Job { nexus, tag, request, data_out, data_out_expected, geometry })),
        };
        // Last: a refused command must not occupy a place.
        let ticket = self.tasks.enter(claim)?;
        // A task that begins at once was checked in this very call, so nothing can have changed since `admit`.
        let work = if ticket.has_begun() { work } else { Work::Waited(Box::new((nexus, request, work))) };
        Ok((ticket, work))
    }

    /// Reports a pending unit attention, or checks the command; the order of the checks is the precedence of SPC-4.
    ///
    /// *Errors*: the unit attention, or the first check that fails.
    #[inline]
    pub(super) fn admit(&self, nexus: NexusId, cdb: Cdb, shape: &Shape) -> Result<Request, Failure> {
        // The operation code is looked up first: INQUIRY, REPORT LUNS and REQUEST SENSE are executed despite a pending
        // unit attention, any other command, also an unknown one, reports it.
        let operation = Operation::find(cdb, shape.optional_features());
        let quiet = operation.is_ok_and(Operation::ignores_unit_attention);
        // One cell tells for all nexuses, so the common case needs no search.
        if !self.nexuses.none_pending()
            && !quiet
            && let Some(attention) = self.nexuses.take(nexus)
        {
            return Err(attention.sense().into());
        }
        let operation = operation?;
        self.port_groups.check(nexus, operation, &self.nexuses)?;
        self.reservations.check(nexus, operation.access, cdb, &self.nexuses)?;
        self.sanitize.check(operation, || self.medium.geometry().blocks)?;
        // A unit attention and a reservation conflict take precedence over NOT READY.
        self.readiness.check(operation)?;
        if operation.writes() {
            self.check_writable(nexus)?;
        }
        Ok(judge::request_of(operation, cdb, shape)?)
    }

    /// True when `nexus` is write protected, or the whole unit is.
    pub(super) fn is_read_only(&self, nexus: NexusId) -> bool {
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

    /// Executes every command but READ and WRITE.
    async fn perform(&self, job: Job, ticket: &TaskGuard<'_>) -> Result<Rope, Failure> {
        let (medium, nexuses, tasks) = (&self.medium, &*self.nexuses, &self.tasks);
        let (nexus, cdb, allocation, geometry) = (job.nexus, job.request.cdb, job.request.need.data_in, job.geometry);
        let asked = CopyContext { job: &job, ticket, identity: &self.identity, nexuses };
        match job.request.operation.verb {
            Verb::Read | Verb::Write => unreachable!("READ and WRITE do not come here"),
            // The extent was checked. GOOD, and not CONDITION MET, is the status of a PRE-FETCH whose blocks were not
            // all cached (SBC-4).
            Verb::PreFetch | Verb::TestUnitReady => Ok(Rope::new()),
            Verb::Inquiry => self.inquiry_view(nexus).inquire(cdb, allocation),
            Verb::ReportLuns => {
                // REPORT LUNS clears a pending REPORTED LUNS DATA HAS CHANGED (SPC-4).
                self.lun_inventory_reported(nexus);
                Ok(no_unit::luns_of(cdb, &[Lun::of(0)])?)
            }
            Verb::RequestSense => Ok(self.request_sense(nexus, cdb)),
            Verb::ReadCapacity10 => Ok(capacity::read_capacity_10(geometry)),
            Verb::ReadCapacity16 => Ok(capacity::read_capacity_16(geometry, medium.provisioning(), allocation)),
            Verb::GetLbaStatus => lba_status(medium, &job, ticket).await,
            Verb::ModeSense => self.mode.sense(&job, self.setting(), self.is_read_only(nexus)),
            Verb::ModeSelect => self.mode_select(&job).await,
            Verb::LogSense => self.log_view().sense(cdb, allocation),
            Verb::ReportSupportedOperationCodes => {
                report::report_operations(self.shape().optional_features(), cdb, allocation)
            }
            Verb::ReportSupportedTaskManagement => report::report_task_management(cdb, allocation),
            Verb::ReportTargetPortGroups => self.port_groups.report(cdb, allocation, &self.target_port_groups(nexus)?),
            Verb::SetTargetPortGroups => self.set_target_port_groups(&job).await,
            // For a removable medium the same command loads and ejects.
            Verb::StartStopUnit if self.readiness.is_removable() => {
                self.readiness.start_stop_removable(nexus, cdb, medium, nexuses).await
            }
            Verb::StartStopUnit => self.readiness.start_stop(cdb, medium).await,
            Verb::SendDiagnostic => send_diagnostic(medium, cdb).await,
            Verb::PreventAllow => {
                self.readiness.prevent_allow(nexus, cdb);
                Ok(Rope::new())
            }
            Verb::ReadDefectData => Ok(defects::read_defect_data(cdb, allocation)),
            Verb::SynchronizeCache => medium.synchronize_cache().await,
            Verb::Verify => verify::verify(medium, &job).await,
            Verb::WriteAndVerify => verify::write_and_verify(medium, &job).await,
            Verb::WriteAtomic => {
                let (extent, is_forced) = (job.request.extent, job.request.is_forced());
                medium.write_atomic(extent, job.whole_data()?, is_forced).await
            }
            Verb::WriteSame => write_same(medium, &job, ticket).await,
            Verb::Unmap => unmap(medium, &job, ticket).await,
            Verb::ExtendedCopy => self.copies.extended_copy(&asked).await,
            Verb::ReceiveCopyResults => self.copies.results(nexus, cdb, allocation, geometry.block_bytes),
            Verb::PopulateToken => self.copies.populate_token(&asked, medium.tokens()).await,
            Verb::WriteUsingToken => {
                // Zeros need no source, so the unit executes this part itself.
                let zeros = async |asker: &_, extent| self.copy_zeros(asker, extent, ticket).await;
                self.copies.write_using_token(&asked, zeros).await
            }
            Verb::CopyOperationAbort => self.copies.abort(&job, tasks).await,
            Verb::CompareAndWrite => compare::compare_and_write(medium, &job, ticket).await,
            Verb::OrWrite => compare::or_write(medium, &job, ticket).await,
            Verb::PersistentReserveIn => Ok(self.reservations.report(cdb, allocation, self.persistence.is_able())),
            Verb::PersistentReserveOut => self.persistent_reserve_out(&job).await,
            Verb::Reserve => self.reservations.reserve(nexus, nexuses),
            Verb::Release => self.reservations.release(nexus, nexuses),
            Verb::Sanitize => {
                self.sanitize.order(&job, ticket, medium, async || self.store(self.persistent_state()).await).await
            }
        }
    }
}

fn claim_of(nexus: NexusId, command: &Command, request: &Request, geometry: Geometry) -> Result<Claim, Failure> {
    // ACA needs an auto contingent allegiance, which is not supported (NACA).
    if command.attribute == TaskAttribute::Aca {
        return Err(Sense::illegal(AdditionalSense::INVALID_MESSAGE).into());
    }
    let extent = match request.operation.verb {
        // The blocks are in the parameter list, which has not been parsed yet.
        Verb::Unmap | Verb::PopulateToken => geometry.all(),
        // Changes of persistent state are serialized with each other, and contend with no I/O.
        Verb::PersistentReserveOut | Verb::Reserve | Verb::Release | Verb::ModeSelect => PERSISTENT_STATE_SLOT,
        Verb::SetTargetPortGroups => ACCESS_STATE_SLOT,
        Verb::Sanitize => EVERYTHING,
        // No content is touched, so no blocks are claimed.
        Verb::PreFetch | Verb::SynchronizeCache | Verb::GetLbaStatus => Extent::default(),
        _ => request.extent,
    };
    // SBC-4: SANITIZE is processed as if it had the HEAD OF QUEUE attribute.
    let attribute = if request.operation.is_sanitize() { TaskAttribute::HeadOfQueue } else { command.attribute };
    // SP persists the mode parameters, and the persistent state is written as a whole, so the task needs the slot
    // alone.
    let saves = request.operation.verb == Verb::ModeSelect && request.cdb.bit(1, 0);
    let alone = saves || request.operation.runs_alone();
    Ok(Claim { nexus, tag: command.tag, attribute, extent, alone, is_part: false })
}

/// True when the CDB takes data, and the initiator sends none but expects some: GOOD would claim that data was written.
/// An initiator that announces no transfer at all is believed.
fn is_backwards(command: &Command, request: &Request) -> bool {
    request.need.data_out > 0 && command.data_out_expected == 0 && command.data_in_expected > 0
}
