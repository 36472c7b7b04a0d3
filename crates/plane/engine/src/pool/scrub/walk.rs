//! The way of a scrub through the groups of a pool, and what it does with what it finds.

use super::super::care::{Care, Gait};
use super::super::losses::LostList;
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

/// How much is looked through between two decisions, in bytes.
const PART_BYTES: u64 = 8 << 20;

/// How often a scrub looks whether the repair that it makes way for has ended.
const MAKE_WAY: Duration = Duration::from_secs(1);

/// How often the catalog says how far a scrub is: so much is read again at most after a crash.
const KEEP_EVERY: Duration = Duration::from_secs(120);

/// A way through all groups, and how far it is.
pub(super) struct Walk<W: World> {
    pool: Rc<OpenPool<W>>,
    work: Work,
    gait: Gait,
    done: u64,
    repairs: bool,
    /// Where it starts; what lies before was read already.
    from: ScrubPosition,
    kept: Time,
}

/// What is wrong in one part, and what was put right.
#[derive(Default)]
struct Found {
    mismatches: u64,
    unreadable: u64,
    healed: u64,
}

impl Found {
    /// What a protected array has found: sums tell who is right, so what can be put right was.
    fn of(scrubbed: &Scrubbed) -> Self {
        let wrong = scrubbed.mismatches + scrubbed.unreadable + scrubbed.unknown + scrubbed.parity;
        let healed = scrubbed.healed + scrubbed.parity;
        Self { mismatches: wrong.saturating_sub(healed + scrubbed.lost), unreadable: scrubbed.lost, healed }
    }
}

impl<W: World> Walk<W> {
    /// From the beginning.
    pub(super) fn new(pool: Rc<OpenPool<W>>, repairs: bool) -> Self {
        Self::resumed(pool, repairs, ScrubPosition::default())
    }

    /// From a stripe on; a group that is laid out otherwise since is read whole.
    pub(super) fn resumed(pool: Rc<OpenPool<W>>, repairs: bool, from: ScrubPosition) -> Self {
        let bytes = |(group, state): (usize, &GroupState<W>), ranges: Vec<Range<u64>>| {
            assert!(state.stripe_bytes() > 0, "group {group} has stripes");
            ranges.iter().map(|range| range.end - range.start).sum::<u64>() * state.stripe_bytes()
        };
        let total: u64 = pool.groups.iter().map(|(at, group)| bytes((at, group), pool.stripes_in_use(at))).sum();
        let left = pool.groups.iter().map(|(at, group)| bytes((at, group), left_of(&pool, at, from)));
        let done = total - left.sum::<u64>();
        let now = pool.shard.world.now();
        let work = Work::resumed(WorkKind::Scrub, now, done, total);
        let gait = pool.care.gait_from(done);
        Self { pool, work, gait, done, repairs, from, kept: now }
    }

    /// How much there is to read, and how much was read.
    pub(super) fn work(&self) -> Work {
        self.work
    }

    /// Looks through all groups; how it ended.
    pub(super) async fn run(&mut self) -> ScrubState {
        let groups: Vec<usize> = self.pool.groups.iter().map(|(group, _)| group).collect();
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
                    // The blocks lie in other stripes now.
                    None => self.go_back(group, before),
                }
            }
        }
        ScrubState::Done
    }

    /// Looks through what members and arrays keep beside the data; how the scrub ended, where it cannot go on.
    async fn metadata(&mut self, groups: &[usize]) -> Option<ScrubState> {
        if let Err(error) = self.members().await {
            tracing::error!(pool = %self.pool.name, %error, "a scrub cannot go on");
            return Some(ScrubState::Failed);
        }
        self.keep_now().await;
        let pool = self.pool.clone();
        for &group in groups.iter().filter(|&&group| pool.groups[group].array.is_protected()) {
            if !self.may_go_on(group).await {
                return Some(ScrubState::Stopped);
            }
            match self.sums(group).await {
                Ok(scrubbed) => self.note_part(group, &Found::of(&scrubbed)),
                Err(_) if self.pool.groups.get(group).is_none() => {}
                Err(error) => {
                    tracing::error!(pool = %self.pool.name, group, %error, "a scrub cannot go on");
                    return Some(ScrubState::Failed);
                }
            }
        }
        None
    }

    /// No more than `done` bytes are looked through: what was seen of a group is to be seen again.
    fn go_back(&mut self, group: usize, done: u64) {
        self.pass(ScrubPosition { group: number(group), ..ScrubPosition::default() });
        let total = self.work.total_bytes().max(done);
        self.done = done;
        self.work = Work::resumed(WorkKind::Scrub, self.pool.shard.world.now(), done, total);
        self.gait = self.pool.care.gait_from(done);
    }

    /// Looks through one group; how that ended, or none when the group was laid out anew meanwhile.
    async fn group(&mut self, group: usize) -> Option<ScrubState> {
        let stripe_bytes = self.pool.groups[group].stripe_bytes();
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
                self.pool.care.step(&mut self.gait);
                let part = at..range.end.min(at + stripes);
                assert!(part.start < part.end, "a part of a scrub has stripes");
                at = part.end;
                let scrubbed = self.part(group, part.clone()).await;
                if self.pool.groups.get(group).is_none() {
                    // It was removed meanwhile.
                    return Some(ScrubState::Done);
                }
                if let Err(error) = scrubbed {
                    tracing::error!(pool = %self.pool.name, group, %error, "a scrub cannot go on");
                    return Some(ScrubState::Failed);
                }
                self.done += (part.end - part.start) * stripe_bytes;
                self.work.advance(self.pool.shard.world.now(), self.done);
                self.pool.care.scrub.work.set(Some(self.work));
                self.pool.care.scrub.note(|report| report.checked = Size::new(self.done));
                self.pass(ScrubPosition { group: number(group), stripe: part.end, stripe_bytes });
                self.keep().await;
                let (done, total) = (self.done, self.work.total_bytes());
                let may = |care: &Care<W>| care.scrub.stop.get() || care.is_resumed();
                self.pool.care.keep_pace(&mut self.gait, done, total, may).await;
            }
        }
        Some(ScrubState::Done)
    }

    /// Everything before this place was read.
    fn pass(&mut self, at: ScrubPosition) {
        self.from = at;
        self.pool.care.scrub.at.set(at);
    }

    /// The catalog says how far it is, every now and then. Where that fails, more is read again after a restart.
    async fn keep(&mut self) {
        let now = self.pool.shard.world.now();
        if now.since(self.kept) >= KEEP_EVERY {
            self.kept = now;
            self.keep_now().await;
        }
    }

    async fn keep_now(&self) {
        if let Err(error) = super::keep(&self.pool).await {
            tracing::warn!(pool = %self.pool.name, %error, "how far the scrub is could not be written down");
        }
    }

    /// Ready when nothing more urgent is to be done in the group and the hours are right; false when it is to stop.
    async fn may_go_on(&self, group: usize) -> bool {
        while self.pool.groups[group].repairing.get() && !self.pool.care.scrub.stop.get() {
            self.pool.shard.world.sleep(MAKE_WAY).await;
        }
        self.pool.care.until(|care| care.scrub.stop.get() || (care.is_resumed() && !care.scrub.held.get())).await;
        !self.pool.care.scrub.stop.get()
    }

    /// Looks at what the members say of themselves.
    async fn members(&self) -> Result<(), PoolError> {
        for (disk, decayed) in self.pool.pool.members().scrub(self.pool.shard.world.unix_seconds(), CREATED_BY).await? {
            if self.pool.tell_of_repair(disk, &decayed.to_string()) {
                self.pool.care.scrub.note(|report| report.healed += 1);
            }
        }
        Ok(())
    }

    /// Looks through the checksums themselves.
    async fn sums(&mut self, group: usize) -> Result<Scrubbed, IoError> {
        let (pool, gait) = (&self.pool, &mut self.gait);
        let may = |care: &Care<W>| care.scrub.stop.get() || care.is_resumed();
        let pace = async |_| {
            pool.care.keep_pace(gait, 0, 0, may).await;
        };
        pool.groups[group].array.scrub_sums(pace).await
    }

    /// Looks through some stripes, and puts right what can be.
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
        if verified.unreadable > 0 {
            LostList(&self.pool).look_for(group, stripes.clone()).await;
            let before = verified.unreadable;
            verified = check().await?;
            found.healed += before.saturating_sub(verified.unreadable);
        }
        found.unreadable = verified.unreadable;
        found.mismatches = verified.mismatches;
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
        self.pool.care.scrub.note(|report| {
            report.mismatches += found.mismatches;
            report.unreadable += found.unreadable;
            report.healed += found.healed;
        });
    }
}

/// The stripes of a group that are in use and not read yet by a scrub that is at `from`.
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
