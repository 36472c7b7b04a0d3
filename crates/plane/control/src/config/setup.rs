//! First setup: from disks to a volume that a host uses. It builds a small document and applies it, all or
//! nothing.
//!
//! `blockyard up` and the first-run form of the console call it. It adds and presents; the only existing object
//! that it changes is a volume that grows to its size, where it need not be new.

use super::{
    Applied, ApplyConfig, ChapEntry, DiskEntry, Document, ExternalSections, HostEntry, PoolEntry, PresentEntry, Step,
    VolumeEntry,
};
use crate::PresentationReport;
use crate::config::Configuration;
use crate::request::{NewGroup, NewSetup};
use model::{Iqn, Level, Name, Refusal, VolumeName, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Result of a setup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetupReport {
    /// Steps in order; empty when nothing had to change.
    pub steps: Vec<Step>,
    /// The presentation of the volume to the host; null where it was ended in the meantime.
    pub presentation: Option<PresentationReport>,
}

impl Configuration {
    /// Creates a pool of these disks with this volume, and presents it to this host. When a part is refused,
    /// everything is rolled back.
    ///
    /// *Errors*: a part is refused, or a name is taken that must be new.
    pub async fn set_up(&self, asked: NewSetup, annex: &dyn ExternalSections) -> Result<SetupReport, Refusal> {
        let is_known = self.admit_setup_host(&asked)?;
        self.admit_setup_names(&asked).await?;
        let (volume, host) = (asked.volume.clone(), asked.host.clone());
        let (force, allow_disruption) = (asked.force, asked.allow_disruption);
        let document = document(asked, is_known)?;
        // Never pruned: only the objects that the document names are touched.
        let request = ApplyConfig { document, force, allow_disruption, ..ApplyConfig::default() };
        let Applied { steps } = self.apply(request, annex).await?;
        // Read again: the presentation may have been ended since.
        let presentation =
            self.presentations.list().into_iter().find(|seen| seen.volume == volume && seen.host == host);
        Ok(SetupReport { steps, presentation })
    }

    /// Returns true for an existing host, which stays as it is.
    fn admit_setup_host(&self, asked: &NewSetup) -> Result<bool, Refusal> {
        let name = &asked.host;
        let state = self.core.state();
        let known = state.hosts.get(name);
        if known.is_none() && asked.initiators.is_empty() {
            let hint = "give its initiators to add it";
            return Err(Refusal::new(code::HOST_UNKNOWN, format!("host {name} does not exist"), hint));
        }
        let Some(known) = known else { return Ok(false) };
        if asked.must_be_new && !asked.initiators.is_empty() {
            return Err(taken(format!("host {name} already exists"), "choose another name, or present to that host"));
        }
        // An existing host may have more initiators than are named, but must have these.
        let is_new = |iqn: &&Iqn| !known.initiators.contains(iqn);
        let Some(new) = asked.initiators.iter().find(is_new) else { return Ok(true) };
        let hint = "add it with blockyard host change --add-initiator, or choose another name with --host";
        Err(taken(format!("host {name} already exists, without initiator {new}"), hint))
    }

    /// Admits disks only for a new pool; and the volume's name, where it must be new.
    async fn admit_setup_names(&self, asked: &NewSetup) -> Result<(), Refusal> {
        let (volume, pool) = (&asked.volume, asked.volume.pool());
        if pool.is_none() && !asked.disks.is_empty() {
            let hint = "write POOL/VOLUME, such as tank/vm1";
            return Err(Refusal::new(
                code::NAME_INVALID,
                format!("volume name {volume} contains no pool for the disks"),
                hint,
            ));
        }
        let pools = self.pools.list().await?;
        if let Some(there) = pools.iter().find(|known| !asked.disks.is_empty() && Some(&known.name) == pool) {
            let hint = "omit the disks, or expand the pool with blockyard pool add-group";
            return Err(taken(format!("pool {} already exists", there.name), hint));
        }
        if asked.must_be_new && self.volumes.list().await?.iter().any(|known| known.name == *volume) {
            return Err(taken(format!("volume {volume} already exists"), "choose another name"));
        }
        Ok(())
    }
}

fn taken(message: String, hint: &str) -> Refusal {
    Refusal::new(code::NAME_TAKEN, message, hint)
}

/// Builds the document.
fn document(asked: NewSetup, is_known: bool) -> Result<Document, Refusal> {
    let NewSetup { volume, size, provision, disks, level, host, initiators, chap, .. } = asked;
    let mut document = Document { schema: super::document::FORM, ..Document::default() };
    // Without disks the pool has to exist, and the document does not name it.
    if let Some(pool) = pool_of(&volume, disks.is_empty()) {
        let names = disks.iter().map(|disk| disk.name.clone()).collect();
        let level = level.unwrap_or_else(|| usual_level(disks.len()));
        let group = NewGroup { level, chunk: None, no_integrity: false, member_size: None, disks: names };
        let entry = PoolEntry { groups: vec![group], settings: BTreeMap::new(), read_only: None };
        document.pool.insert(pool, entry);
        for disk in disks {
            if document.disk.insert(disk.name.clone(), DiskEntry { path: disk.path, ..DiskEntry::default() }).is_some()
            {
                let message = format!("disk {} is listed twice", disk.name);
                return Err(Refusal::new(code::NAMED_TWICE, message, "list each disk once"));
            }
        }
    }
    document.volume.insert(volume.clone(), VolumeEntry { size: Some(size), provision, ..VolumeEntry::default() });
    // An existing host stays out of the document, which would otherwise reset its settings.
    if !is_known {
        let chap =
            chap.map(|chap| ChapEntry { user: chap.user, secret: chap.secret, secret_file: None, demand: chap.demand });
        document.host.insert(host.clone(), HostEntry { initiators, chap, ..HostEntry::default() });
    }
    document.present.push(PresentEntry { volume, host, target: None, lun: None, groups: Vec::new(), read_only: false });
    Ok(document)
}

fn pool_of(volume: &VolumeName, is_there: bool) -> Option<Name> {
    volume.pool().filter(|_| !is_there).cloned()
}

/// Returns the RAID level that survives the loss of most disks with so few.
const fn usual_level(disks: usize) -> Level {
    match disks {
        0 | 1 => Level::Raid0,
        2 => Level::Raid1,
        3 => Level::Raid5,
        _ => Level::Raid6,
    }
}
