//! Commands that concern the unit as a whole: each passes to its component the state of the others that the command
//! needs.

use super::LogicalUnit;
use crate::cdb::Cdb;
use crate::command::{NexusId, Status};
use crate::failure::Failure;
use crate::inquiry::InquiryView;
use crate::log::LogView;
use crate::mode::{ModeParameters, ParsedModeSelect, Setting};
use crate::nexus::UnitAttention;
use crate::persistence::store_failure;
use crate::persistent_state::PersistentState;
use crate::reply::Reply;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::{BlockDevice, Rope};
use std::collections::BTreeMap;

impl<D: BlockDevice> LogicalUnit<D> {
    /// Returns the view of the unit that INQUIRY reports to `nexus`.
    pub(super) fn inquiry_view(&self, nexus: NexusId) -> InquiryView<'_> {
        InquiryView {
            identity: &self.identity,
            options: &self.options,
            provisioning: self.medium.provisioning(),
            geometry: self.medium.geometry(),
            shape: self.shape(),
            tells_space: self.medium.tells_space(),
            space: self.medium.space(),
            port: self.nexuses.port(nexus),
            is_disconnected: self.port_groups.state_of(nexus, &self.nexuses).is_disconnected(),
        }
    }

    /// Returns the input of LOG SENSE.
    pub(super) fn log_view(&self) -> LogView<'_> {
        LogView {
            counters: self.medium.counters(),
            block_bytes: self.medium.geometry().block_bytes,
            tells_space: self.medium.tells_space(),
            space: self.medium.space(),
        }
    }

    pub(super) fn setting(&self) -> Setting {
        Setting { tells_space: self.medium.tells_space(), can_save: self.persistence.is_able() }
    }

    /// Executes MODE SELECT. The parameter list is applied as a whole or refused as a whole.
    pub(super) async fn mode_select(&self, job: &Job) -> Result<Rope, Failure> {
        let Some(ParsedModeSelect { before, after, saves }) = self.mode.select(job, self.setting())? else {
            return Ok(Rope::new());
        };
        if saves {
            // Parameters are persisted before they take effect, so that saved and current values never disagree after a
            // failure.
            self.save_mode(after).await?;
        }
        if after != before {
            self.mode.set(after);
            // A changed threshold is compared anew, and can be reported again.
            self.medium.rearm_thresholds(before.thresholds);
            self.nexuses.establish_for_others(Some(job.nexus), UnitAttention::ModeParametersChanged);
        }
        Ok(Rope::new())
    }

    /// Persists the saved mode parameters, which a reset or a restart restores. The caller must hold the serialization
    /// slot [`PERSISTENT_STATE_SLOT`](crate::task_set::PERSISTENT_STATE_SLOT).
    ///
    /// *Errors*: the store failed; the previously saved values remain.
    async fn save_mode(&self, parameters: ModeParameters) -> Result<(), Failure> {
        // WCE is not saved: the owner sets it (`set_write_cache`).
        let mode = ModeParameters { write_cache: false, ..parameters };
        // Equal values need no write to the store.
        if mode != self.mode.saved() {
            self.store(PersistentState { mode, ..self.persistent_state() }).await.map_err(store_failure)?;
            self.mode.set_saved(mode);
        }
        Ok(())
    }

    /// Returns the target port groups of the target that `nexus` is logged in to, with their ports.
    ///
    /// *Errors*: BUSY when the nexus is no longer attached.
    pub(super) fn target_port_groups(&self, nexus: NexusId) -> Result<BTreeMap<u16, u16>, Status> {
        let port = self.nexuses.port(nexus).ok_or(Status::Busy)?;
        Ok(self.persistence.port_groups_of(&port))
    }

    /// Executes SET TARGET PORT GROUPS. When it returns, tasks that began through a group that lost access have ended.
    pub(super) async fn set_target_port_groups(&self, job: &Job) -> Result<Rope, Failure> {
        if self.is_read_only(job.nexus) {
            // A nexus without write access must not change the paths of others.
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        let list = job.whole_data()?;
        let groups = self.target_port_groups(job.nexus)?;
        if self.port_groups.set_by_nexus(&list, &groups, &self.access_change_context()).await? {
            self.nexuses.establish_for_others(Some(job.nexus), UnitAttention::AccessStateChanged);
        }
        Ok(Rope::new())
    }

    /// REQUEST SENSE (SPC-4): returns the first pending unit attention, or else the state of the unit.
    pub(super) fn request_sense(&self, nexus: NexusId, cdb: Cdb) -> Rope {
        // Taken, because REQUEST SENSE clears the unit attention that it reports (SPC-4).
        let mut sense = match self.nexuses.take(nexus) {
            Some(attention) => attention.sense(),
            None => self.state_sense(nexus),
        };
        sense.descriptor_format = cdb.bit(1, 0);
        let mut reply = Reply::new();
        reply.bytes(&sense.emit());
        reply.cut(u64::from(cdb.u8_at(4)))
    }

    fn state_sense(&self, nexus: NexusId) -> Sense {
        // Conditions of the unit precede those of the path; for commands, `admit` checks the path first.
        // SBC-4 wants the progress of a SANITIZE in REQUEST SENSE while it runs, and hosts may poll through any path.
        let sanitize = self.sanitize.sense(|| self.medium.geometry().blocks);
        let unserved = || self.port_groups.state_of(nexus, &self.nexuses).sense();
        let sense = sanitize.or_else(|| self.readiness.sense()).or_else(unserved);
        sense.unwrap_or(Sense::new(SenseKey::NoSense, AdditionalSense::NONE))
    }
}
