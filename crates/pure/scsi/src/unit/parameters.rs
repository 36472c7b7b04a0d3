//! The commands that concern the unit as a whole: each hands its part what the command needs of the others.

use super::LogicalUnit;
use crate::cdb::Cdb;
use crate::command::{NexusId, Status};
use crate::failure::Failure;
use crate::inquiry::Described;
use crate::keeper::keeping_failure;
use crate::kept::Kept;
use crate::log::Logged;
use crate::mode::{ModeParameters, Selected, Setting};
use crate::nexus::UnitAttention;
use crate::reply::Reply;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::{BlockDevice, Rope};
use std::collections::BTreeMap;

impl<D: BlockDevice> LogicalUnit<D> {
    /// The unit as INQUIRY describes it to `nexus`.
    pub(super) fn described_to(&self, nexus: NexusId) -> Described<'_> {
        Described {
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

    /// What LOG SENSE tells.
    pub(super) fn logged(&self) -> Logged<'_> {
        Logged {
            counters: self.medium.counters(),
            block_bytes: self.medium.geometry().block_bytes,
            tells_space: self.medium.tells_space(),
            space: self.medium.space(),
        }
    }

    pub(super) fn setting(&self) -> Setting {
        Setting { tells_space: self.medium.tells_space(), can_save: self.persistence.is_able() }
    }

    /// Carries out MODE SELECT: its list is taken whole or refused whole.
    pub(super) async fn mode_select(&self, job: &Job) -> Result<Rope, Failure> {
        let Some(Selected { before, after, saves }) = self.mode.select(job, self.setting())? else {
            return Ok(Rope::new());
        };
        if saves {
            // What cannot be kept does not hold either.
            self.save_mode(after).await?;
        }
        if after != before {
            self.mode.set(after);
            self.medium.rearm_thresholds(before.thresholds);
            self.nexuses.establish_for_others(Some(job.nexus), UnitAttention::ModeParametersChanged);
        }
        Ok(Rope::new())
    }

    /// What a reset and a restart bring back. The caller has its turn ([`TURN`](crate::task_set::TURN)).
    ///
    /// *Errors*: it cannot be kept; what was saved before still is.
    async fn save_mode(&self, parameters: ModeParameters) -> Result<(), Failure> {
        // The owner decides on WCE.
        let mode = ModeParameters { write_cache: false, ..parameters };
        if mode != self.mode.saved() {
            self.keep(Kept { mode, ..self.kept() }).await.map_err(keeping_failure)?;
            self.mode.set_saved(mode);
        }
        Ok(())
    }

    /// The target port groups of the target through which `nexus` comes, and their ports.
    ///
    /// *Errors*: BUSY when it is not attached any more.
    pub(super) fn groups_beside(&self, nexus: NexusId) -> Result<BTreeMap<u16, u16>, Status> {
        let port = self.nexuses.port(nexus).ok_or(Status::Busy)?;
        Ok(self.persistence.ports_beside(&port))
    }

    /// Carries out SET TARGET PORT GROUPS. What was begun through a group that has lost access has ended when it returns.
    pub(super) async fn set_target_port_groups(&self, job: &Job) -> Result<Rope, Failure> {
        if self.is_read_only(job.nexus) {
            // Who may not write does not decide through which port others may.
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        let list = job.whole_data()?;
        let groups = self.groups_beside(job.nexus)?;
        if self.port_groups.set_by_nexus(&list, &groups, &self.using()).await? {
            self.nexuses.establish_for_others(Some(job.nexus), UnitAttention::AccessStateChanged);
        }
        Ok(Rope::new())
    }

    /// REQUEST SENSE (SPC-4): the first pending unit attention, or the state of the unit.
    pub(super) fn request_sense(&self, nexus: NexusId, cdb: Cdb) -> Rope {
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
        let sanitize = self.sanitize.sense(|| self.medium.geometry().blocks);
        let unserved = || self.port_groups.state_of(nexus, &self.nexuses).sense();
        let sense = sanitize.or_else(|| self.readiness.sense()).or_else(unserved);
        sense.unwrap_or(Sense::new(SenseKey::NoSense, AdditionalSense::NONE))
    }
}
