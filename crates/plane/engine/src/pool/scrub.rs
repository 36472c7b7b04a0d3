//! Reading everything that volumes hold, while they serve, to find what is wrong before it is needed.

use super::care::{Care, Gait};
use super::work::{Work, WorkKind};
use super::{CREATED_BY, GroupState, OpenPool, disk_id, find};
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
struct Walk<W: World> {
    pool: Rc<OpenPool<W>>,
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
    begin(&pool, repairs);
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
    pool.care.tell_of_change();
    Ok(pool.report())
}

/// A scrub waits from now on, or goes on.
pub async fn hold_scrub<W: World>(shard: Rc<ShardContext<W>>, pool: Name, held: bool) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    pool.care.scrub.held.set(held);
    pool.care.tell_of_change();
    Ok(pool.report())
}

impl Scrub {
    fn note(&self, note: impl FnOnce(&mut ScrubReport)) {
        if let Some(report) = self.report.borrow_mut().as_mut() {
            note(report);
        }
    }

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
}

impl<W: World> Walk<W> {
    fn new(pool: Rc<OpenPool<W>>, repairs: bool) -> Self {
        let stripes = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let bytes =
            |(group, state): (usize, &GroupState<W>)| stripes(&pool.stripes_in_use(group)) * state.stripe_bytes();
        let total = pool.groups.iter().map(bytes).sum();
        let work = Work::new(WorkKind::Scrub, pool.shard.world.now(), total);
        let gait = pool.care.gait();
        Self { pool, work, gait, done: 0, repairs }
    }

    /// Looks through all groups; how it ended.
    async fn run(&mut self) -> ScrubState {
        let groups: Vec<usize> = self.pool.groups.iter().map(|(group, _)| group).collect();
        if let Err(error) = self.members().await {
            tracing::error!(pool = %self.pool.name, %error, "a scrub cannot go on");
            return ScrubState::Failed;
        }
        let pool = self.pool.clone();
        for &group in groups.iter().filter(|&&group| pool.groups[group].array.is_protected()) {
            if !self.may_go_on(group).await {
                return ScrubState::Stopped;
            }
            match self.sums(group).await {
                Ok(scrubbed) => self.note_part(group, &Found::of(&scrubbed)),
                Err(_) if self.pool.groups.get(group).is_none() => {}
                Err(error) => {
                    tracing::error!(pool = %self.pool.name, group, %error, "a scrub cannot go on");
                    return ScrubState::Failed;
                }
            }
        }
        for group in groups {
            let before = self.done;
            loop {
                match self.group(group).await {
                    Some(ScrubState::Done) => break,
                    Some(state) => return state,
                    // The blocks lie in other stripes now.
                    None => self.done = before,
                }
            }
        }
        ScrubState::Done
    }

    /// Looks through one group; how that ended, or none when the group was laid out anew meanwhile.
    async fn group(&mut self, group: usize) -> Option<ScrubState> {
        let stripe_bytes = self.pool.groups[group].stripe_bytes();
        let stripes = (PART_BYTES / stripe_bytes).max(1);
        for range in self.pool.stripes_in_use(group) {
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
                let (done, total) = (self.done, self.work.total_bytes());
                let may = |care: &Care<W>| care.scrub.stop.get() || care.is_resumed();
                self.pool.care.keep_pace(&mut self.gait, done, total, may).await;
            }
        }
        Some(ScrubState::Done)
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
            self.read_whole(group, stripes.clone()).await;
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

    /// Reads stripes as a host would: what a member cannot give is computed from the others and written back.
    async fn read_whole(&self, group: usize, stripes: Range<u64>) {
        let array = &self.pool.groups[group].array;
        let blocks = array.stripe_blocks();
        for stripe in stripes {
            if let Err(error) = array.read(Extent::new(stripe * blocks, blocks)).await {
                tracing::debug!(pool = %self.pool.name, group, stripe, %error, "a stripe cannot be read");
            }
        }
    }
}

/// A scrub of the pool runs from now on.
fn begin<W: World>(pool: &Rc<OpenPool<W>>, repairs: bool) {
    let scrub = &pool.care.scrub;
    scrub.runs.set(true);
    scrub.stop.set(false);
    *scrub.report.borrow_mut() = Some(ScrubReport {
        state: ScrubState::Running,
        started: Timestamp::from_unix(pool.shard.world.unix_seconds()),
        ended: None,
        repairs,
        progress: None,
        checked: Size::ZERO,
        mismatches: 0,
        unreadable: 0,
        healed: 0,
    });
    pool.raise(event::SCRUB_BEGAN, format!("a scrub of pool {} has begun", pool.name));
    let pool = pool.clone();
    pool.shard.world.clone().spawn(async move {
        let mut walk = Walk::new(pool.clone(), repairs);
        let scrubbed = pin!(walk.run());
        let halted = pin!(pool.halt.pulled());
        let state = match select(scrubbed, halted).await {
            Either::Left((state, _)) => state,
            Either::Right(_) => ScrubState::Stopped,
        };
        end(&pool, state);
    });
}

/// The scrub has ended so: operators hear what it has found.
fn end<W: World>(pool: &OpenPool<W>, state: ScrubState) {
    let now = Timestamp::from_unix(pool.shard.world.unix_seconds());
    pool.care.scrub.note(|report| (report.state, report.ended) = (state, Some(now)));
    let scrub = &pool.care.scrub;
    scrub.work.set(None);
    scrub.runs.set(false);
    let Some(report) = scrub.report.borrow().clone() else { return };
    let (name, checked, seconds) = (&pool.name, report.checked.iec(), report.seconds(now));
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
    pool.raise(code, sentence);
}
