//! Reading everything that volumes hold, while they serve, to find what is wrong before it is needed.

use super::care::Gait;
use super::work::{Work, WorkKind};
use super::{CREATED_BY, OpenPool, disk_id, find};
use crate::shard_context::ShardContext;
use block::{BlockDevice, Extent, IoError};
use futures_util::future::{Either, select};
use model::{Name, PoolReport, Refusal, ScrubReport, ScrubState, Size, Subject, SubjectKind, Timestamp, code, event};
use raid::{Repair, Scrubbed};
use shard::World;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use volume::{PoolError, Uuid};

/// How much is looked through between two decisions, in bytes.
const PART_BYTES: u64 = 8 << 20;

/// How often a scrub looks whether the repair that it makes way for has ended.
const MAKE_WAY: Duration = Duration::from_secs(1);

/// The scrub of one pool.
#[derive(Default)]
pub(super) struct Scrub {
    runs: Cell<bool>,
    stop: Cell<bool>,
    /// True outside of the hours that were set for it.
    held: Cell<bool>,
    report: RefCell<Option<ScrubReport>>,
    work: Cell<Option<Work>>,
}

/// A way through all groups, and how far it is.
struct Walk {
    work: Work,
    gait: Gait,
    done: u64,
    repairs: bool,
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

/// Everything that volumes of the pool hold is read and compared, from now on.
///
/// *Errors*: `POOL_BUSY` while another scrub runs; `POOL_FAILED` when the pool does not serve.
pub async fn start_scrub<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    repairs: bool,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    if pool.care.scrub.runs.get() {
        let message = format!("a scrub of pool {} runs already", pool.name);
        let hint =
            format!("see blockyard pool scrub status {0}, or stop it with blockyard pool scrub stop {0}", pool.name);
        return Err(Refusal::new(code::POOL_BUSY, message, hint));
    }
    if pool.report().state == model::PoolState::Failed {
        let message = format!("pool {} does not serve", pool.name);
        return Err(Refusal::new(code::POOL_FAILED, message, "bring its disks back first"));
    }
    pool.begin_scrub(repairs);
    Ok(pool.report())
}

/// The scrub that runs has ended, or ends with its present step.
///
/// *Errors*: `SCRUB_UNKNOWN` when none runs.
pub async fn stop_scrub<W: World>(shard: Rc<ShardContext<W>>, pool: Name) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    if !pool.care.scrub.runs.get() {
        let message = format!("no scrub of pool {} runs", pool.name);
        let hint = format!("start one with blockyard pool scrub start {}", pool.name);
        return Err(Refusal::new(code::SCRUB_UNKNOWN, message, hint));
    }
    pool.care.scrub.stop.set(true);
    pool.tell_of_change();
    Ok(pool.report())
}

/// A scrub waits from now on, or goes on.
pub async fn hold_scrub<W: World>(shard: Rc<ShardContext<W>>, pool: Name, held: bool) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    pool.care.scrub.held.set(held);
    pool.tell_of_change();
    Ok(pool.report())
}

impl Scrub {
    pub(super) fn runs(&self) -> bool {
        self.runs.get()
    }

    /// How the scrub is that runs, or ran last.
    pub(super) fn report(&self, now: shard::Time) -> Option<ScrubReport> {
        let mut report = self.report.borrow().clone()?;
        if report.state.runs() {
            report.state = if self.held.get() { ScrubState::Waiting } else { ScrubState::Running };
            report.progress = self.work.get().map(|work| work.progress(now));
        }
        Some(report)
    }
}

impl<W: World> OpenPool<W> {
    fn begin_scrub(self: &Rc<Self>, repairs: bool) {
        let scrub = &self.care.scrub;
        scrub.runs.set(true);
        scrub.stop.set(false);
        *scrub.report.borrow_mut() = Some(ScrubReport {
            state: ScrubState::Running,
            started: Timestamp::from_unix(self.shard.world.unix_seconds()),
            ended: None,
            repairs,
            progress: None,
            checked: Size::ZERO,
            mismatches: 0,
            unreadable: 0,
            healed: 0,
        });
        self.raise(event::SCRUB_BEGAN, format!("a scrub of pool {} has begun", self.name));
        let pool = self.clone();
        self.shard.world.spawn(async move {
            let scrubbed = pin!(pool.scrub(repairs));
            let halted = pin!(pool.halt.pulled());
            let state = match select(scrubbed, halted).await {
                Either::Left((state, _)) => state,
                Either::Right(_) => ScrubState::Stopped,
            };
            pool.end_scrub(state);
        });
    }

    /// Looks through all groups; how it ended.
    async fn scrub(&self, repairs: bool) -> ScrubState {
        let in_use = |group: usize| self.stripes_in_use(group);
        let stripes = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let groups: Vec<usize> = self.groups.iter().map(|(group, _)| group).collect();
        let total = groups.iter().map(|&group| stripes(&in_use(group)) * self.stripe_bytes(group)).sum();
        let mut walk = Walk {
            work: Work::new(WorkKind::Scrub, self.shard.world.now(), total),
            gait: self.gait(),
            done: 0,
            repairs,
        };
        if let Err(error) = self.scrub_members().await {
            tracing::error!(pool = %self.name, %error, "a scrub cannot go on");
            return ScrubState::Failed;
        }
        for &group in groups.iter().filter(|&&group| self.groups[group].array.is_protected()) {
            if !self.scrub_may_go_on(group).await {
                return ScrubState::Stopped;
            }
            match self.scrub_sums(group, &mut walk.gait).await {
                Ok(scrubbed) => self.note_part(group, &Found::of(&scrubbed)),
                Err(_) if self.groups.get(group).is_none() => {}
                Err(error) => {
                    tracing::error!(pool = %self.name, group, %error, "a scrub cannot go on");
                    return ScrubState::Failed;
                }
            }
        }
        for group in groups {
            let before = walk.done;
            loop {
                match self.scrub_group(group, &mut walk).await {
                    Some(ScrubState::Done) => break,
                    Some(state) => return state,
                    // The blocks lie in other stripes now.
                    None => walk.done = before,
                }
            }
        }
        ScrubState::Done
    }

    /// Looks through one group; how that ended, or none when the group was laid out anew meanwhile.
    async fn scrub_group(&self, group: usize, walk: &mut Walk) -> Option<ScrubState> {
        let stripe_bytes = self.stripe_bytes(group);
        let stripes = (PART_BYTES / stripe_bytes).max(1);
        for range in self.stripes_in_use(group) {
            let mut at = range.start;
            while at < range.end {
                if !self.scrub_may_go_on(group).await {
                    return Some(ScrubState::Stopped);
                }
                if self.stripe_bytes(group) != stripe_bytes {
                    return None;
                }
                self.step(&mut walk.gait);
                let part = at..range.end.min(at + stripes);
                at = part.end;
                let scrubbed = self.scrub_part(group, part.clone(), walk.repairs).await;
                if self.groups.get(group).is_none() {
                    // It was removed meanwhile.
                    return Some(ScrubState::Done);
                }
                if let Err(error) = scrubbed {
                    tracing::error!(pool = %self.name, group, %error, "a scrub cannot go on");
                    return Some(ScrubState::Failed);
                }
                walk.done += (part.end - part.start) * stripe_bytes;
                walk.work.advance(self.shard.world.now(), walk.done);
                self.care.scrub.work.set(Some(walk.work));
                self.note(|report| report.checked = Size::new(walk.done));
                let (done, total) = (walk.done, walk.work.total_bytes());
                let may = |pool: &Self| pool.care.scrub.stop.get() || pool.is_resumed();
                self.keep_pace(&mut walk.gait, done, total, may).await;
            }
        }
        Some(ScrubState::Done)
    }

    /// Ready when nothing more urgent is to be done in the group and the hours are right; false when it is to stop.
    async fn scrub_may_go_on(&self, group: usize) -> bool {
        while self.groups[group].repairing.get() && !self.care.scrub.stop.get() {
            self.shard.world.sleep(MAKE_WAY).await;
        }
        self.until(|pool| pool.care.scrub.stop.get() || (pool.is_resumed() && !pool.care.scrub.held.get())).await;
        !self.care.scrub.stop.get()
    }

    /// Looks at what the members say of themselves.
    async fn scrub_members(&self) -> Result<(), PoolError> {
        for (disk, decayed) in self.pool.members().scrub(self.shard.world.unix_seconds(), CREATED_BY).await? {
            if self.tell_of_repair(disk, &decayed.to_string()) {
                self.note(|report| report.healed += 1);
            }
        }
        Ok(())
    }

    /// Operators hear that metadata of a disk was damaged and is whole again; false for a disk that is no member any more.
    pub(super) fn tell_of_repair(&self, disk: Uuid, what: &str) -> bool {
        let Some((group, member)) = self.place_of(disk_id(disk)) else { return false };
        let disk = self.disk_name(group, member);
        let sentence = format!(
            "disk {disk} of pool {}: {what} was damaged and was written again. Check what else writes to this disk, and \
             the disk itself.",
            self.name
        );
        self.shard.raise(event::METADATA_REPAIRED, Subject::new(SubjectKind::Disk, &disk), sentence);
        true
    }

    /// Looks through the checksums themselves.
    async fn scrub_sums(&self, group: usize, gait: &mut Gait) -> Result<Scrubbed, IoError> {
        let may = |pool: &Self| pool.care.scrub.stop.get() || pool.is_resumed();
        let pace = async |_| {
            self.keep_pace(gait, 0, 0, may).await;
        };
        self.groups[group].array.scrub_sums(pace).await
    }

    /// Looks through some stripes, and puts right what can be.
    async fn scrub_part(&self, group: usize, stripes: Range<u64>, repairs: bool) -> Result<(), IoError> {
        let array = &self.groups[group].array;
        if array.is_protected() {
            let scrubbed = array.scrub(stripes, Repair::Heal, async |_| ()).await?;
            self.note_part(group, &Found::of(&scrubbed));
            return Ok(());
        }
        let check = async || array.scrub_check(stripes.clone(), async |_| ()).await;
        let mut found = Found::default();
        let mut verified = check().await?;
        if verified.unreadable > 0 {
            self.read_whole(group, stripes.clone()).await;
            let before = verified.unreadable;
            verified = check().await?;
            found.healed += before.saturating_sub(verified.unreadable);
        }
        found.unreadable = verified.unreadable;
        found.mismatches = verified.mismatches;
        if repairs && verified.mismatches > 0 {
            let repaired = array.resync(stripes.clone(), async |_| ()).await?;
            found.healed += repaired.mismatches;
            found.mismatches = verified.mismatches.saturating_sub(repaired.mismatches);
        }
        self.note_part(group, &found);
        Ok(())
    }

    fn note_part(&self, group: usize, found: &Found) {
        if found.mismatches + found.unreadable > 0 {
            tracing::error!(pool = %self.name, group, found.mismatches, found.unreadable, "a scrub has found");
        }
        self.note(|report| {
            report.mismatches += found.mismatches;
            report.unreadable += found.unreadable;
            report.healed += found.healed;
        });
    }

    /// Reads stripes as a host would: what a member cannot give is computed from the others and written back.
    async fn read_whole(&self, group: usize, stripes: Range<u64>) {
        let array = &self.groups[group].array;
        let blocks = array.stripe_blocks();
        for stripe in stripes {
            if let Err(error) = array.read(Extent::new(stripe * blocks, blocks)).await {
                tracing::debug!(pool = %self.name, group, stripe, %error, "a stripe cannot be read");
            }
        }
    }

    fn note(&self, note: impl FnOnce(&mut ScrubReport)) {
        if let Some(report) = self.care.scrub.report.borrow_mut().as_mut() {
            note(report);
        }
    }

    fn end_scrub(&self, state: ScrubState) {
        let now = Timestamp::from_unix(self.shard.world.unix_seconds());
        self.note(|report| (report.state, report.ended) = (state, Some(now)));
        let scrub = &self.care.scrub;
        scrub.work.set(None);
        scrub.runs.set(false);
        let Some(report) = scrub.report.borrow().clone() else { return };
        let (name, checked, seconds) = (&self.name, report.checked.iec(), report.seconds(now));
        let read = format!("the scrub of pool {name} has looked through {checked} in {seconds} s");
        let ScrubReport { mismatches, unreadable, healed, .. } = report;
        let (code, sentence) = match state {
            ScrubState::Done if mismatches + unreadable > 0 => {
                let hint = "blockyard pool scrub start POOL --repair takes the data for true";
                let wrong =
                    format!("{mismatches} stripes disagree with their redundancy, {unreadable} cannot be read whole");
                (event::SCRUB_FOUND, format!("{read}: {wrong}, {healed} were put right; {hint}"))
            }
            ScrubState::Done if healed > 0 => (event::SCRUB_HEALED, format!("{read}: {healed} stripes were put right")),
            ScrubState::Done => (event::SCRUB_ENDED, format!("{read}: all was right")),
            ScrubState::Failed => (event::SCRUB_FOUND, format!("{read}, and could not go on")),
            ScrubState::Running | ScrubState::Waiting | ScrubState::Stopped => {
                (event::SCRUB_STOPPED, format!("{read}, and was stopped"))
            }
        };
        self.raise(code, sentence);
    }
}
