//! What the owner of a unit tells it and asks of it, beside commands: changes that hosts hear of, access through target port
//! groups, statistics, and the work of SANITIZE.

use super::LogicalUnit;
use crate::alua::{PortGroup, Using};
use crate::command::NexusId;
use crate::kept::Kept;
use crate::log::Statistics;
use crate::nexus::UnitAttention;
use crate::readiness::Absence;
use crate::task_set::{ACCESS_TURN, EVERYTHING, TURN};
use block::BlockDevice;

impl<D: BlockDevice> LogicalUnit<D> {
    /// Tasks of `nexus` ended with a connection of its session, which goes on; it is told (47/7F).
    ///
    /// Source: RFC 7143 §7.6.
    pub fn commands_lost(&self, nexus: NexusId) {
        self.nexuses.establish(nexus, UnitAttention::CommandsLost);
    }

    /// The number of blocks changed; every nexus is told (2A/09).
    pub fn capacity_changed(&self) {
        self.nexuses.establish_for_all(UnitAttention::CapacityChanged);
    }

    /// WRITEs without FUA are answered before they are stable from now on (WCE is one), or not any more; every nexus
    /// is told when that is new (2A/01). SYNCHRONIZE CACHE, and whatever else promises it, makes everything stable.
    pub fn set_write_cache(&self, enabled: bool) {
        if self.mode.set_write_cache(enabled) {
            self.nexuses.establish_for_all(UnitAttention::ModeParametersChanged);
        }
    }

    /// Blocks may hold something else than hosts wrote, as after a roll-back; every nexus is told (28/00).
    ///
    /// Hosts do not forget what they have cached because of it: the caller sees to it that nobody has the unit in use.
    pub fn medium_may_have_changed(&self) {
        self.medium.tokens().cancel(EVERYTHING);
        self.nexuses.establish_for_all(UnitAttention::MediumMayHaveChanged);
    }

    /// The set of units that `nexus` sees beside this one changed; it is told (3F/0E).
    pub fn lun_inventory_changed(&self, nexus: NexusId) {
        self.nexuses.establish(nexus, UnitAttention::LunsChanged);
    }

    /// The number under which `nexus` sees this unit was another unit's before; it is told (3F/03), beside that the nexus is new.
    pub fn took_the_place_of_another(&self, nexus: NexusId) {
        self.nexuses.establish(nexus, UnitAttention::InquiryDataChanged);
    }

    /// What the unit has done since it came up.
    pub fn statistics(&self) -> Statistics {
        self.medium.counters().statistics(self.medium.geometry().block_bytes)
    }

    /// `nexus` has read the list of units elsewhere; it need not be told that it changed.
    pub fn lun_inventory_reported(&self, nexus: NexusId) {
        self.nexuses.clear(nexus, UnitAttention::LunsChanged);
    }

    /// The medium can be ejected and loaded by START STOP UNIT from now on, or not any more, and is there; every nexus is told (3F/03)
    /// when that is new.
    pub fn set_removable(&self, removable: bool) {
        if self.readiness.set_removable(removable) {
            self.nexuses.establish_for_all(UnitAttention::InquiryDataChanged);
        }
    }

    /// The device of the unit is absent for this reason from now on, or is there: what needs it is NOT READY meanwhile.
    pub fn set_absence(&self, absence: Option<Absence>) {
        self.readiness.set_absence(absence);
    }

    /// Every nexus will be told once that a soft threshold of the operator's was reached (38/07).
    ///
    /// For the caller to say once per crossing: it keeps the threshold, and arms it again.
    pub fn soft_threshold_reached(&self) {
        self.nexuses.establish_for_all(UnitAttention::SoftThreshold);
    }

    /// Every nexus will be told of each threshold of a host's that was reached since the last look, once
    /// per crossing (38/07).
    ///
    /// The unit looks by itself after what it writes and unmaps; the caller has it look when others took
    /// or freed space. Costs nothing while no host has enabled a threshold.
    pub fn check_thresholds(&self) {
        self.medium.check_thresholds();
    }

    /// The target port groups are as the owner of the unit wants them: those that `wanted` does not name are
    /// active/optimized. What a nexus has set stays where the owner wants what it wanted before.
    ///
    /// Whoever loses access is answered 04/0A until what it has begun has ended; then everybody is told (2A/06).
    pub async fn set_port_groups(&self, wanted: &[PortGroup]) {
        let _turn = self.tasks.owner_turn(ACCESS_TURN).await;
        if self.port_groups.set_by_owner(wanted, &self.using()).await {
            self.nexuses.establish_for_all(UnitAttention::AccessStateChanged);
        }
    }

    /// Who uses the blocks.
    pub(super) fn using(&self) -> Using<'_> {
        Using { nexuses: &self.nexuses, tasks: &self.tasks, blocks: self.medium.geometry().all() }
    }

    /// True while the unit is to be sanitized: someone runs [`LogicalUnit::carry_out_sanitize`].
    pub fn is_being_sanitized(&self) -> bool {
        self.sanitize.is_running()
    }

    /// How much of a SANITIZE that is under way is done, in 65,536ths.
    pub fn sanitize_progress(&self) -> Option<u16> {
        self.sanitize.sense(|| self.medium.geometry().blocks).and_then(|sense| sense.progress)
    }

    /// True when the unit was to be sanitized last, and that has failed.
    pub fn has_failed_to_be_sanitized(&self) -> bool {
        self.sanitize.has_failed()
    }

    /// Does what a SANITIZE has ordered that is under way, if one is: now, or before the unit was restored. Who waits hears of its end.
    ///
    /// *Durability*: what it has done, and that it is done or has failed, survives power loss when it returns; where the device is
    /// gone, a restart goes on.
    pub async fn carry_out_sanitize(&self) {
        let keep = async |sanitize| {
            let _turn = self.tasks.owner_turn(TURN).await;
            let kept = self.kept();
            self.keep(Kept { sanitize: Option::unwrap_or(sanitize, kept.sanitize), ..kept }).await
        };
        self.sanitize.carry_out(&self.medium, keep).await;
    }

    /// [`LogicalUnit::carry_out_sanitize`] has returned, if it was running. It goes on from there when it is run again.
    pub async fn stop_sanitizing(&self) {
        self.sanitize.stop().await;
    }
}
