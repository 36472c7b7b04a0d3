//! The way of a command through the unit: told, understood, let in, done.

use super::LogicalUnit;
use crate::cdb::Cdb;
use crate::command::{Command, NexusId, Outcome, Status, TaskAttribute};
use crate::copy::Asked;
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
use crate::task_set::{ACCESS_TURN, Claim, EVERYTHING, TURN, Ticket};
use crate::{absent, report};
use block::{BlockDevice, Extent, Geometry, Lba, Rope, View};
use std::future::{Future, poll_fn};

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
                            Ok(Work::Read(extent)) => self.medium.read(extent).await,
                            Ok(Work::Write(start, data, fua)) => self.medium.write(start, data, fua).await,
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
            self.medium.counters().count_conflict();
        }
        let mode = self.mode.get();
        let failure =
            if mode.write_cache && !self.readiness.is_absent() { failure.with_writes_lost() } else { failure };
        failure.outcome(mode.descriptor_sense)
    }

    /// What is to be done of a task that begins, if it had to wait before and may still be done.
    fn look_again(&self, work: Work) -> Result<Work, Failure> {
        let Work::Waited(waited) = work else { return Ok(work) };
        let (nexus, request, work) = *waited;
        self.port_groups.check(nexus, request.operation, &self.nexuses)?;
        self.reservations.check(nexus, request.operation.access, request.cdb, &self.nexuses)?;
        self.sanitize.check(request.operation, || self.medium.geometry().blocks)?;
        Ok(work)
    }

    /// Judges the command and lets it into the task set.
    fn enter(&self, nexus: NexusId, command: Command) -> Result<(Ticket<'_>, Work), Failure> {
        let geometry = self.medium.geometry();
        let request = self.admit(nexus, command.cdb, &self.shape_of(geometry))?;
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
        self.port_groups.check(nexus, operation, &self.nexuses)?;
        self.reservations.check(nexus, operation.access, cdb, &self.nexuses)?;
        self.sanitize.check(operation, || self.medium.geometry().blocks)?;
        self.readiness.check(operation)?;
        if operation.writes() {
            self.check_writable(nexus)?;
        }
        Ok(judge::request_of(operation, cdb, shape)?)
    }

    /// True when `nexus` may not write, or nobody may.
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

    /// Everything but READ and WRITE.
    async fn perform(&self, job: Job, ticket: &Ticket<'_>) -> Result<Rope, Failure> {
        let (medium, nexuses, tasks) = (&self.medium, &*self.nexuses, &self.tasks);
        let (nexus, cdb, allocation, geometry) = (job.nexus, job.request.cdb, job.request.need.data_in, job.geometry);
        let asked = Asked { job: &job, ticket, identity: &self.identity, nexuses };
        match job.request.operation.verb {
            Verb::Read | Verb::Write => unreachable!("READ and WRITE do not come here"),
            // The extent was checked; what fits into no cache is not fetched, and that is GOOD (SBC-4 PRE-FETCH).
            Verb::PreFetch | Verb::TestUnitReady => Ok(Rope::new()),
            Verb::Inquiry => self.described_to(nexus).inquire(cdb, allocation),
            Verb::ReportLuns => {
                self.lun_inventory_reported(nexus);
                Ok(absent::luns_of(cdb, &[Lun::of(0)])?)
            }
            Verb::RequestSense => Ok(self.request_sense(nexus, cdb)),
            Verb::ReadCapacity10 => Ok(capacity::read_capacity_10(geometry)),
            Verb::ReadCapacity16 => Ok(capacity::read_capacity_16(geometry, medium.provisioning(), allocation)),
            Verb::GetLbaStatus => lba_status(medium, &job, ticket).await,
            Verb::ModeSense => self.mode.sense(&job, self.setting(), self.is_read_only(nexus)),
            Verb::ModeSelect => self.mode_select(&job).await,
            Verb::LogSense => self.logged().sense(cdb, allocation),
            Verb::ReportSupportedOperationCodes => report::report_operations(self.shape().offered(), cdb, allocation),
            Verb::ReportSupportedTaskManagement => report::report_task_management(cdb, allocation),
            Verb::ReportTargetPortGroups => self.port_groups.report(cdb, allocation, &self.groups_beside(nexus)?),
            Verb::SetTargetPortGroups => self.set_target_port_groups(&job).await,
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
            Verb::Sanitize => self.sanitize.order(&job, ticket, medium, async || self.keep(self.kept()).await).await,
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
