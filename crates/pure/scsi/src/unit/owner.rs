//! Interface of the owner of a unit beside commands: changes that establish unit attentions, ALUA states, statistics,
//! and the execution of SANITIZE.

use super::LogicalUnit;
use crate::alua::{AccessChangeContext, PortGroup};
use crate::command::NexusId;
use crate::log::Statistics;
use crate::nexus::UnitAttention;
use crate::persistent_state::PersistentState;
use crate::readiness::Absence;
use crate::task_set::{ACCESS_STATE_SLOT, EVERYTHING, PERSISTENT_STATE_SLOT};
use block::BlockDevice;

impl<D: BlockDevice> LogicalUnit<D> {
    /// Establishes 47/7F SOME COMMANDS CLEARED BY ISCSI PROTOCOL EVENT for `nexus`: a connection of its session was
    /// lost together with tasks, and the session continues.
    ///
    /// Source: RFC 7143 §7.6.
    pub fn commands_lost(&self, nexus: NexusId) {
        self.nexuses.establish(nexus, UnitAttention::CommandsLost);
    }

    /// Establishes 2A/09 CAPACITY DATA HAS CHANGED for every nexus, after the number of blocks changed.
    pub fn capacity_changed(&self) {
        self.nexuses.establish_for_all(UnitAttention::CapacityChanged);
    }

    /// Sets the write cache (WCE). With WCE at one, WRITEs without FUA complete before they are stable. A change
    /// establishes 2A/01 for every nexus. SYNCHRONIZE CACHE, and every other command that promises stability, makes all
    /// of it stable.
    pub fn set_write_cache(&self, enabled: bool) {
        // No unit attention without a change.
        if self.mode.set_write_cache(enabled) {
            self.nexuses.establish_for_all(UnitAttention::ModeParametersChanged);
        }
    }

    /// Establishes 28/00 for every nexus: blocks may differ from the data that hosts wrote, as after a roll-back.
    /// Cancels all ROD tokens.
    ///
    /// Hosts do not drop their caches because of it. The caller must ensure that no host uses the unit.
    pub fn medium_may_have_changed(&self) {
        // The content behind a token is no longer what it represents.
        self.medium.tokens().cancel(EVERYTHING);
        self.nexuses.establish_for_all(UnitAttention::MediumMayHaveChanged);
    }

    /// Establishes 3F/0E REPORTED LUNS DATA HAS CHANGED for `nexus`, whose set of mapped units changed.
    pub fn lun_inventory_changed(&self, nexus: NexusId) {
        self.nexuses.establish(nexus, UnitAttention::LunsChanged);
    }

    /// Establishes 3F/03 INQUIRY DATA HAS CHANGED for `nexus`, which saw another unit under this LUN before, in
    /// addition to the 29/00 of a new nexus.
    pub fn replaced_other_unit(&self, nexus: NexusId) {
        self.nexuses.establish(nexus, UnitAttention::InquiryDataChanged);
    }

    /// Returns the counters of the unit since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.medium.counters().statistics(self.medium.geometry().block_bytes)
    }

    /// Clears a pending 3F/0E of `nexus`, which has read the LUN inventory through another unit.
    pub fn lun_inventory_reported(&self, nexus: NexusId) {
        self.nexuses.clear(nexus, UnitAttention::LunsChanged);
    }

    /// Sets whether START STOP UNIT may eject and load the medium. The medium counts as loaded. A change establishes
    /// 3F/03 for every nexus.
    pub fn set_removable(&self, removable: bool) {
        if self.readiness.set_removable(removable) {
            self.nexuses.establish_for_all(UnitAttention::InquiryDataChanged);
        }
    }

    /// Marks the device as absent for the given reason, or as present. While it is absent, commands that need it end
    /// with NOT READY.
    pub fn set_absence(&self, absence: Option<Absence>) {
        self.readiness.set_absence(absence);
    }

    /// Establishes 38/07 for every nexus: a soft threshold that the operator set was crossed.
    ///
    /// The caller stores the threshold, re-arms it and must call this once per crossing.
    pub fn soft_threshold_reached(&self) {
        self.nexuses.establish_for_all(UnitAttention::SoftThreshold);
    }

    /// Checks the thresholds that hosts set with MODE SELECT and establishes 38/07 for every nexus, once per crossing.
    ///
    /// The unit checks by itself after its own writes and unmaps. The caller checks when other volumes took or freed
    /// space. Costs nothing while no host has enabled a threshold.
    pub fn check_thresholds(&self) {
        self.medium.check_thresholds();
    }

    /// Sets the access states of the target port groups (implicit ALUA). Groups that `wanted` does not list become
    /// active/optimized. A state that a nexus set explicitly stays where the wanted state has not changed since.
    ///
    /// A group that loses access answers 04/0A until the tasks that began through it have ended. Then 2A/06 is
    /// established for every nexus.
    pub async fn set_port_groups(&self, wanted: &[PortGroup]) {
        // Serialized with SET TARGET PORT GROUPS.
        let _turn = self.tasks.acquire_owner_slot(ACCESS_STATE_SLOT).await;
        if self.port_groups.set_by_owner(wanted, &self.access_change_context()).await {
            self.nexuses.establish_for_all(UnitAttention::AccessStateChanged);
        }
    }

    /// Collects the context of a change of access states: nexuses, tasks and blocks.
    pub(super) fn access_change_context(&self) -> AccessChangeContext<'_> {
        AccessChangeContext { nexuses: &self.nexuses, tasks: &self.tasks, blocks: self.medium.geometry().all() }
    }

    /// True while a SANITIZE is pending: the owner must run [`LogicalUnit::carry_out_sanitize`].
    pub fn is_being_sanitized(&self) -> bool {
        self.sanitize.is_running()
    }

    /// Progress of a running SANITIZE in 65,536ths; `None` when none is running.
    pub fn sanitize_progress(&self) -> Option<u16> {
        self.sanitize.sense(|| self.medium.geometry().blocks).and_then(|sense| sense.progress)
    }

    /// True when the last SANITIZE has failed and none has succeeded since.
    pub fn has_failed_to_be_sanitized(&self) -> bool {
        self.sanitize.has_failed()
    }

    /// Carries out a pending SANITIZE, ordered now or before the unit was restored, and wakes commands that await its
    /// end.
    ///
    /// *Durability*: progress, completion and failure survive power loss when it returns. Where the device is gone, a
    /// restart resumes the operation.
    pub async fn carry_out_sanitize(&self) {
        let keep = async |sanitize| {
            // Each stored state replaces the whole record, so the slot is held from reading `kept` until it is durable.
            let _turn = self.tasks.acquire_owner_slot(PERSISTENT_STATE_SLOT).await;
            let kept = self.persistent_state();
            self.store(PersistentState { sanitize: Option::unwrap_or(sanitize, kept.sanitize), ..kept }).await
        };
        self.sanitize.carry_out(&self.medium, keep).await;
    }

    /// Stops [`LogicalUnit::carry_out_sanitize`] and waits for its return. A later call resumes from the stored
    /// progress.
    pub async fn stop_sanitizing(&self) {
        self.sanitize.stop().await;
    }
}
