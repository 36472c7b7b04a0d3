//! Walk of a scrub through the groups of a pool, and the handling of its findings.

use super::super::losses::LostList;
use super::super::maintenance::{Maintenance, Pace};
use super::super::work::{Work, WorkKind};
use super::super::{CREATED_BY, GroupState, OpenPool};
use block::IoError;
use model::{ScrubState, Size};
use raid::{Repair, Scrubbed};
use shard::{Time, World};
use std::cmp::Ordering;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use volume::{PoolError, ScrubPosition};

/// Bytes verified between two checks for a pause or a stop.
const PART_BYTES: u64 = 8 << 20;

/// Interval at which a scrub checks whether the repair that it yields to has ended.
const MAKE_WAY: Duration = Duration::from_secs(1);

/// Interval at which the position is recorded in the catalog, the most that is read again after a crash.
const KEEP_EVERY: Duration = Duration::from_secs(120);

/// Walk through all groups, with its position.
pub(super) struct Walk<W: World> {
    pool: Rc<OpenPool<W>>,
    work: Work,
    gait: Pace,
    done: u64,
    repairs: bool,
    /// Start position; everything before it was read already.
    from: ScrubPosition,
    kept: Time,
}

/// Errors found in one part, and those repaired.
#[derive(Default)]
struct Found {
    mismatches: u64,
    unreadable: u64,
    healed: u64,
}

impl Found {
    /// Findings of a protected array: checksums tell which copy is right, so everything that can be repaired was.
    fn of(scrubbed: &Scrubbed) -> Self {
        let wrong = scrubbed.mismatches + scrubbed.unreadable + scrubbed.unknown + scrubbed.parity;
        let healed = scrubbed.healed + scrubbed.parity;
        Self { mismatches: wrong.saturating_sub(healed + scrubbed.lost), unreadable: scrubbed.lost, healed }
    }
}

impl<W: World> Walk<W> {
    /// Starts a walk from the beginning.
    pub(super) fn new(pool: Rc<OpenPool<W>>, repairs: bool) -> Self {
        Self::resumed(pool, repairs, ScrubPosition::default())
    }

    /// Continues a walk at a position. A group whose stripe size has changed since is read from its beginning.
    pub(super) fn resumed(pool: Rc<OpenPool<W>>, repairs: bool, from: ScrubPosition) -> Self {
        let bytes = |(group, state): (usize, &GroupState<W>), ranges: Vec<Range<u64>>| {
            assert!(state.stripe_bytes() > 0, "group {group} has stripes");
            ranges.iter().map(|range| range.end - range.start).sum::<u64>() * state.stripe_bytes()
        };
        let total: u64 = pool.groups.iter().map(|(at, group)| bytes((at, group), pool.stripes_in_use(at))).sum();
        let left = pool.groups.iter().map(|(at, group)| bytes((at, group), left_of(&pool, at, from)));
        // No underflow: what is left is a part of the stripes in use.
        let done = total - left.sum::<u64>();
        let now = pool.shard.world.now();
        let work = Work::resumed(WorkKind::Scrub, now, done, total);
        let gait = pool.maintenance.resume_pace(done);
        Self { pool, work, gait, done, repairs, from, kept: now }
    }

    /// Work record: bytes in total and bytes read.
    pub(super) fn work(&self) -> Work {
        self.work
    }

    /// Walks through all groups. Returns the final state.
    pub(super) async fn run(&mut self) -> ScrubState {
        let groups: Vec<usize> = self.pool.groups.iter().map(|(group, _)| group).collect();
        // Metadata was checked before the first position was recorded.
        if self.from == ScrubPosition::default()
            && let Some(ended) = self.metadata(&groups).await
        {
            return ended;
        }
        for group in groups {
            let before = self.done;
            loop {
                match self.group(group).await {
                    Some(ScrubState::Done) => break,
                    Some(state) => return state,
                    // The group was reshaped: its blocks are in other stripes now.
                    None => self.go_back(group, before),
                }
            }
        }
        ScrubState::Done
    }

    /// Verifies the metadata of members and arrays. `Some` if the scrub cannot continue.
    async fn metadata(&mut self, groups: &[usize]) -> Option<ScrubState> {
        if let Err(error) = self.members().await {
            tracing::error!(pool = %self.pool.name, %error, "a scrub cannot continue");
            return Some(ScrubState::Failed);
        }
        // From here on a commit overwrites no unseen damage, so the scrub may be recorded.
        self.keep_now().await;
        let pool = self.pool.clone();
        for &group in groups.iter().filter(|&&group| pool.groups[group].array.is_protected()) {
            if !self.may_go_on(group).await {
                return Some(ScrubState::Stopped);
            }
            match self.sums(group).await {
                Ok(scrubbed) => self.note_part(group, &Found::of(&scrubbed)),
                // The group was removed in the meantime.
                Err(_) if self.pool.groups.get(group).is_none() => {}
                Err(error) => {
                    tracing::error!(pool = %self.pool.name, group, %error, "a scrub cannot continue");
                    return Some(ScrubState::Failed);
                }
            }
        }
        None
    }

    /// Resets the position to the beginning of a group, with `done` bytes read.
    fn go_back(&mut self, group: usize, done: u64) {
        self.pass(ScrubPosition { group: number(group), ..ScrubPosition::default() });
        // The reshaped group may use more stripes than were counted at the start.
        let total = self.work.total_bytes().max(done);
        self.done = done;
        self.work = Work::resumed(WorkKind::Scrub, self.pool.shard.world.now(), done, total);
        self.gait = self.pool.maintenance.resume_pace(done);
    }

    /// Verifies one group. `None` if it was reshaped in the meantime.
    async fn group(&mut self, group: usize) -> Option<ScrubState> {
        let stripe_bytes = self.pool.groups[group].stripe_bytes();
        // At least one stripe, however large it is.
        let stripes = (PART_BYTES / stripe_bytes).max(1);
        for range in left_of(&self.pool, group, self.from) {
            let mut at = range.start;
            while at < range.end {
                if !self.may_go_on(group).await {
                    return Some(ScrubState::Stopped);
                }
                if self.pool.groups[group].stripe_bytes() != stripe_bytes {
                    return None;
                }
                // The wait above does not count as time of the step.
                self.pool.maintenance.step(&mut self.gait);
                let part = at..range.end.min(at + stripes);
                assert!(part.start < part.end, "a part of a scrub has stripes");
                at = part.end;
                let scrubbed = self.part(group, part.clone()).await;
                if self.pool.groups.get(group).is_none() {
                    // The group was removed in the meantime.
                    return Some(ScrubState::Done);
                }
                if let Err(error) = scrubbed {
                    tracing::error!(pool = %self.pool.name, group, %error, "a scrub cannot continue");
                    return Some(ScrubState::Failed);
                }
                self.done += (part.end - part.start) * stripe_bytes;
                self.work.advance(self.pool.shard.world.now(), self.done);
                self.pool.maintenance.scrub.work.set(Some(self.work));
                self.pool.maintenance.scrub.note(|report| report.checked = Size::new(self.done));
                self.pass(ScrubPosition { group: number(group), stripe: part.end, stripe_bytes });
                self.keep().await;
                let (done, total) = (self.done, self.work.total_bytes());
                // A stop must not wait until paused repairs are resumed.
                let may = |care: &Maintenance<W>| care.scrub.stop.get() || care.is_resumed();
                self.pool.maintenance.keep_pace(&mut self.gait, done, total, may).await;
            }
        }
        Some(ScrubState::Done)
    }

    /// Sets the position: everything before it was read.
    fn pass(&mut self, at: ScrubPosition) {
        self.from = at;
        self.pool.maintenance.scrub.at.set(at);
    }

    /// Records the position in the catalog at intervals. If that fails, more is read again after a restart.
    async fn keep(&mut self) {
        let now = self.pool.shard.world.now();
        if now.since(self.kept) >= KEEP_EVERY {
            self.kept = now;
            self.keep_now().await;
        }
    }

    async fn keep_now(&self) {
        if let Err(error) = super::keep(&self.pool).await {
            tracing::warn!(pool = %self.pool.name, %error, "the progress of the scrub could not be saved");
        }
    }

    /// Waits for repairs of the group and for the scrub window. False if the scrub is to stop.
    async fn may_go_on(&self, group: usize) -> bool {
        // Repairs go first: they restore redundancy.
        while self.pool.groups[group].repairing.get() && !self.pool.maintenance.scrub.stop.get() {
            self.pool.shard.world.sleep(MAKE_WAY).await;
        }
        self.pool
            .maintenance
            .until(|care| care.scrub.stop.get() || (care.is_resumed() && !care.scrub.held.get()))
            .await;
        !self.pool.maintenance.scrub.stop.get()
    }

    /// Verifies labels and catalogs of the members.
    async fn members(&self) -> Result<(), PoolError> {
        for (disk, decayed) in self.pool.pool.members().scrub(self.pool.shard.world.unix_seconds(), CREATED_BY).await? {
            if self.pool.tell_of_repair(disk, &decayed.to_string()) {
                self.pool.maintenance.scrub.note(|report| report.repaired += 1);
            }
        }
        Ok(())
    }

    /// Verifies the stored checksums themselves.
    async fn sums(&mut self, group: usize) -> Result<Scrubbed, IoError> {
        let (pool, gait) = (&self.pool, &mut self.gait);
        let may = |care: &Maintenance<W>| care.scrub.stop.get() || care.is_resumed();
        let pace = async |_| {
            // Checksum pages are not part of the bytes to verify; only pauses and a stop matter here.
            pool.maintenance.keep_pace(gait, 0, 0, may).await;
        };
        pool.groups[group].array.scrub_metadata(pace).await
    }

    /// Verifies some stripes and repairs what can be repaired.
    async fn part(&self, group: usize, stripes: Range<u64>) -> Result<(), IoError> {
        let array = &self.pool.groups[group].array;
        if array.is_protected() {
            let scrubbed = array.scrub(stripes, Repair::Heal, async |_| ()).await?;
            self.note_part(group, &Found::of(&scrubbed));
            return Ok(());
        }
        let check = async || array.scrub_check(stripes.clone(), async |_| ()).await;
        let mut found = Found::default();
        let mut verified = check().await?;
        // Unreadable blocks are safe to restore from redundancy: reading the stripe does it.
        if verified.unreadable > 0 {
            LostList(&self.pool).look_for(group, stripes.clone()).await;
            let before = verified.unreadable;
            verified = check().await?;
            found.healed += before.saturating_sub(verified.unreadable);
        }
        found.unreadable = verified.unreadable;
        found.mismatches = verified.mismatches;
        // Without checksums a mismatch does not tell whether data or parity is wrong, so parity is rewritten on request
        // only.
        if self.repairs && verified.mismatches > 0 {
            let repaired = array.resync(stripes.clone(), async |_| ()).await?;
            found.healed += repaired.mismatches;
            found.mismatches = verified.mismatches.saturating_sub(repaired.mismatches);
        }
        self.note_part(group, &found);
        Ok(())
    }

    fn note_part(&self, group: usize, found: &Found) {
        if found.mismatches + found.unreadable > 0 {
            tracing::error!(pool = %self.pool.name, group, found.mismatches, found.unreadable, "a scrub has found");
        }
        self.pool.maintenance.scrub.note(|report| {
            report.mismatches += found.mismatches;
            report.unreadable += found.unreadable;
            report.repaired += found.healed;
        });
    }
}

/// Stripes of a group that are in use and after the position `from`.
fn left_of<W: World>(pool: &OpenPool<W>, group: usize, from: ScrubPosition) -> Vec<Range<u64>> {
    let all = pool.stripes_in_use(group);
    let first = match usize::from(from.group).cmp(&group) {
        Ordering::Greater => return Vec::new(),
        Ordering::Equal if from.stripe_bytes == pool.groups[group].stripe_bytes() => from.stripe,
        Ordering::Equal | Ordering::Less => 0,
    };
    let left = all.into_iter().map(|range| range.start.max(first)..range.end);
    left.filter(|range| !range.is_empty()).collect()
}

fn number(group: usize) -> u16 {
    u16::try_from(group).expect("a pool has at most 64 groups")
}
