//! Reads of a branch, and lookup of its mapped ranges.

use super::data::Run;
use super::lookup::VisibleVersion;
use super::parts::{Parts, parts};
use super::plan::MappedRun;
use super::{Branch, Family, MapError};
use crate::tree::Key;
use block::{BlockDevice, Extent, Rope};
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Reads the blocks of `extent` as the epoch `viewer` sees them.
    pub(crate) async fn read(&self, branch: &Rc<Branch>, viewer: u64, extent: Extent) -> Result<Rope, MapError> {
        // Places that are freed meanwhile are not reused before this guard is dropped.
        let _looking = self.space.eras.enter();
        let parts = parts(extent, self.granule_blocks);
        let seen = self.visible_versions(branch, viewer, &parts).await?;
        let runs = self.data.runs(parts.iter().copied().zip(seen.iter().map(|seen| seen.map(|seen| seen.place))));
        // The common case: one contiguous run, without a join.
        if let [run] = runs[..] {
            return self.data.read_run(run).await;
        }
        let mut rope = Rope::new();
        for part in join_all(runs.into_iter().map(|run: Run| self.data.read_run(run))).await {
            rope.append(part?);
        }
        Ok(rope)
    }

    /// Looks up the granules of `parts` as `viewer` sees them.
    pub(crate) async fn visible_versions(
        &self,
        branch: &Rc<Branch>,
        viewer: u64,
        parts: &Parts,
    ) -> Result<SmallVec<[Option<VisibleVersion>; 4]>, MapError> {
        let mut seen = SmallVec::new();
        for part in parts {
            seen.push(self.visible_version(branch, part.granule, viewer).await?);
        }
        Ok(seen)
    }

    /// Lists the granules of `range` for which the branch or one of its origins has a version; complete up to
    /// the returned granule.
    pub(crate) async fn candidates_in(
        &self,
        branch: &Rc<Branch>,
        range: Range<u64>,
    ) -> Result<(Vec<u32>, u64), MapError> {
        let mut granules = Vec::new();
        let mut until = range.end;
        let mut branch = branch.clone();
        let granule = |number: u64| u32::try_from(number).expect("a volume has at most 2^32 granules");
        if range.is_empty() {
            return Ok((granules, until));
        }
        loop {
            let from = Key::version(branch.number, granule(range.start), 0);
            // The end is exclusive; no version has epoch 2^64 - 1, which stands for the volume's own view.
            let last = Key::version(branch.number, granule(range.end - 1), u64::MAX);
            let (entries, next) = self.entries(from, last).await?;
            granules.extend(entries.iter().map(|(key, _)| key.middle()));
            if let Some(next) = next {
                // A granule whose versions continue in the next leaf is a candidate in any case.
                let next = u64::from(next.middle());
                if next == range.start {
                    granules.push(granule(next));
                }
                // At least one granule of progress, even when all versions of the first fill a leaf.
                until = until.min(next.max(range.start + 1));
            }
            match self.branches.parent(&branch) {
                Some((parent, _)) => branch = parent,
                None => break,
            }
        }
        granules.sort_unstable();
        granules.dedup();
        // Branches were read up to different granules; only what all of them cover is complete.
        granules.retain(|&granule| u64::from(granule) < until);
        Ok((granules, until))
    }

    /// Returns the mapped and unmapped runs of `extent` for `viewer`, at most `runs_max` from its start.
    pub(crate) async fn mapped(
        &self,
        branch: &Rc<Branch>,
        viewer: u64,
        extent: Extent,
        runs_max: usize,
    ) -> Result<Vec<MappedRun>, MapError> {
        let blocks = u64::from(self.granule_blocks);
        let end = extent.end().0.div_ceil(blocks);
        let mut granule = extent.start.0 / blocks;
        let mut runs: Vec<MappedRun> = Vec::new();
        // One run more than wanted is found, because the last wanted one may still become longer.
        while granule < end && runs.len() <= runs_max {
            let (candidates, until) = self.candidates_in(branch, granule..end).await?;
            for candidate in candidates {
                if self.visible_version(branch, candidate, viewer).await?.is_some() {
                    let candidate = u64::from(candidate);
                    add_run(&mut runs, granule..candidate, false, blocks, extent);
                    add_run(&mut runs, candidate..candidate + 1, true, blocks, extent);
                    granule = candidate + 1;
                }
            }
            add_run(&mut runs, granule..until, false, blocks, extent);
            granule = until;
        }
        runs.truncate(runs_max);
        Ok(runs)
    }
}

/// Adds the part of `granules` that is in `extent` to the runs.
fn add_run(runs: &mut Vec<MappedRun>, granules: Range<u64>, mapped: bool, blocks: u64, extent: Extent) {
    if granules.is_empty() {
        return;
    }
    let all = Extent::new(granules.start * blocks, (granules.end - granules.start) * blocks).intersection(extent);
    match runs.last_mut() {
        _ if all.is_empty() => {}
        Some(last) if last.mapped == mapped => last.extent.len += all.len,
        _ => runs.push(MappedRun { extent: all, mapped }),
    }
}
