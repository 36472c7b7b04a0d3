//! Search for the disks of closed pools: at their recorded paths, then in all searched folders.

use super::PoolRecovery;
use crate::search;
use crate::state::{DiskRecord, PoolRecord};
use model::{DiskId, DiskName, Order, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Response time from which a disk counts as slow, and the time for which it is then skipped, because
/// inspections are sequential.
const SLOW: Duration = Duration::from_secs(2);
const SLOW_INTERVAL: Duration = Duration::from_secs(60);
/// Interval between two searches of folders.
const SEARCH_INTERVAL: Duration = Duration::from_secs(5);

/// Results of earlier searches.
#[derive(Default)]
pub(super) struct DiskSearch {
    /// Disks that answered slowly, and when.
    slow: BTreeMap<DiskName, Instant>,
    searched: Option<Instant>,
}

impl DiskSearch {
    fn is_slow(&self, disk: &DiskName) -> bool {
        self.slow.get(disk).is_some_and(|when| when.elapsed() < SLOW_INTERVAL)
    }
}

impl PoolRecovery {
    /// Returns the members of the pool that are there. The data plane has each of them open at its current
    /// path.
    pub(super) async fn find(
        &self,
        finding: &mut DiskSearch,
        pool: &PoolRecord,
    ) -> Result<BTreeSet<DiskName>, Refusal> {
        let state = self.core.state();
        let mut wanted = pool.members.clone();
        if wanted.is_empty() {
            // A record written by an earlier version lists no members: use the labels of open disks instead.
            let disks = self.core.engine.disks(Order::Disks).await?;
            let of_pool = disks.iter().filter(|disk| disk.label.pool().is_some_and(|(id, _)| id == pool.id));
            wanted = of_pool.filter_map(|disk| disk.label.disk()).collect();
        }
        let members = state.disks.iter().filter_map(|(name, record)| Some((name, record, record.id?)));
        let members: Vec<(&DiskName, &DiskRecord, DiskId)> = members.filter(|(_, _, id)| wanted.contains(id)).collect();
        let mut found: BTreeMap<DiskName, String> = BTreeMap::new();
        for (name, record, id) in &members {
            if self.is_at(finding, name, record, *id).await {
                found.insert((*name).clone(), record.path.clone());
            }
        }
        // A remote disk is never found under another path.
        let lost = members.iter().filter(|(name, record, _)| record.remote.is_none() && !found.contains_key(*name));
        let lost: Vec<(&DiskName, &DiskRecord)> = lost.map(|(name, record, _)| (*name, *record)).collect();
        if !lost.is_empty() && finding.searched.is_none_or(|when| when.elapsed() >= SEARCH_INTERVAL) {
            // A slow disk must not stall the search of its folder either.
            let slow = state.disks.iter().filter(|(name, _)| finding.is_slow(name));
            let slow: BTreeSet<&str> = slow.map(|(_, record)| record.path.as_str()).collect();
            let elsewhere = search::disks_but(&self.core.engine, &self.folders(), &slow).await;
            // From the end of the search, which may take longer than the interval.
            finding.searched = Some(Instant::now());
            let at =
                lost.into_iter().filter_map(|(name, record)| Some((name.clone(), elsewhere.path_of(record)?.clone())));
            found.extend(at);
        }
        let mut present = BTreeSet::new();
        for (name, path) in found {
            if self.make_known(&name, &path).await? {
                present.insert(name);
            }
        }
        Ok(present)
    }

    /// Returns true when the disk is at its recorded path.
    async fn is_at(&self, finding: &mut DiskSearch, name: &DiskName, record: &DiskRecord, id: DiskId) -> bool {
        if finding.is_slow(name) {
            return false;
        }
        let remote = record.remote.as_ref().map(|remote| Box::new(remote.login(false)));
        let began = Instant::now();
        let seen = self.core.engine.disk(Order::InspectDisk { path: record.path.clone(), remote }).await;
        if began.elapsed() >= SLOW {
            finding.slow.insert(name.clone(), Instant::now());
        } else {
            finding.slow.remove(name);
        }
        // Only the label proves that it is the member; the path may lead to another disk by now.
        seen.is_ok_and(|seen| seen.label.disk() == Some(id))
    }

    /// Returns the folders to search: those of all known disks, and the configured ones.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let state = self.core.state();
        let local = state.disks.values().filter(|record| record.remote.is_none());
        let was_in = local.filter_map(|record| Path::new(&record.path).parent()).map(Path::to_path_buf);
        was_in.chain(self.core.settings.disk_search.iter().cloned()).collect()
    }

    /// Opens the disk at this path in the data plane; returns false where that is impossible.
    async fn make_known(&self, name: &DiskName, path: &str) -> Result<bool, Refusal> {
        // A change in progress is not waited for; the next round tries again.
        let Some(turn) = self.core.try_lock_changes() else { return Ok(false) };
        // Read again under the lock: the disk may have been removed since.
        let state = self.core.state();
        let Some(record) = state.disks.get(name) else { return Ok(false) };
        let known = self.disks.opened(name).await?;
        if known.as_ref().is_some_and(|known| known.path == path && known.label.disk() == record.id) {
            return Ok(true);
        }
        // Open at another path, or with another label: it has to be reopened where it is now.
        if known.is_some() && self.core.engine.done(Order::CloseDisk { disk: name.clone() }).await.is_err() {
            return Ok(false);
        }
        let there = DiskRecord { path: path.to_owned(), ..record.clone() };
        let report = match self.core.engine.disk(there.order(name)).await {
            Ok(report) => report,
            Err(refusal) => {
                tracing::info!(disk = %name, path, %refusal, "a disk that is there again cannot be opened");
                return Ok(false);
            }
        };
        // The disk was exchanged between inspection and opening.
        if report.label.disk() != record.id {
            return Ok(false);
        }
        if record.path != path {
            tracing::info!(disk = %name, path, "found under another name");
            self.core.commit(&turn, |state| {
                if let Some(record) = state.disks.get_mut(name) {
                    record.path = path.to_owned();
                    record.identity = report.identity;
                }
            })?;
        }
        Ok(true)
    }
}
