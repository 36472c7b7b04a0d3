//! Scrub: reads and verifies all data of volumes, while they serve, to find errors before the redundancy is needed.

mod walk;

use super::losses::LostList;
use super::work::Work;
use super::{OpenPool, disk_id, find, report};
use crate::shard_context::ShardContext;
use futures_util::future::{Either, select};
use model::{Name, PoolReport, Refusal, ScrubReport, ScrubState, Size, Subject, SubjectKind, Timestamp, code, event};
use shard::World;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use volume::{PoolError, ScrubPhase, ScrubPosition, ScrubRecord, Uuid};
use walk::Walk;

/// Scrub of one pool.
#[derive(Default)]
pub(super) struct Scrub {
    runs: Cell<bool>,
    stop: Cell<bool>,
    /// True outside of the scrub window.
    held: Cell<bool>,
    report: RefCell<Option<ScrubReport>>,
    work: Cell<Option<Work>>,
    /// Position of the first stripe that was not read yet.
    at: Cell<ScrubPosition>,
}

/// Starts a scrub of everything that volumes of the pool use.
///
/// *Errors*: `POOL_BUSY` while another scrub runs; `POOL_FAILED` if the pool does not serve.
pub(crate) async fn start_scrub<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    repairs: bool,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    if pool.maintenance.scrub.runs.get() {
        let message = format!("a scrub of pool {} is already running", pool.name);
        let hint =
            format!("see blockyard pool scrub status {0}, or stop it with blockyard pool scrub stop {0}", pool.name);
        return Err(Refusal::new(code::POOL_BUSY, message, hint));
    }
    if report::is_reported_failed(&pool) {
        let message = format!("pool {} is offline", pool.name);
        return Err(Refusal::new(code::POOL_FAILED, message, "attach its disks first"));
    }
    begin(&pool, repairs);
    Ok(pool.report())
}

/// Resumes the scrub that was interrupted by the closing of the pool or a crash, and loads the report of the last one.
pub(super) fn resume_scrub<W: World>(pool: &Rc<OpenPool<W>>) {
    let Some(record) = pool.pool.scrub() else { return };
    let scrub = &pool.maintenance.scrub;
    assert!(!scrub.runs.get(), "a pool that was just opened is not scrubbed yet");
    *scrub.report.borrow_mut() = Some(report_of(&record));
    // The record of a finished scrub serves for its report only.
    if record.phase != ScrubPhase::Running || pool.is_read_only() {
        return;
    }
    scrub.runs.set(true);
    // Set before the walk starts: closing the pool at once must record this position, not the start.
    scrub.at.set(record.at);
    let walk = Walk::resumed(pool.clone(), record.repairs, record.at);
    let sentence = format!(
        "scrub of pool {} resumed: {} of {} were checked before",
        pool.name,
        Size::new(walk.work().done_bytes()).iec(),
        Size::new(walk.work().total_bytes()).iec()
    );
    pool.raise(event::SCRUB_RESUMED, sentence);
    drive(pool, walk);
}

/// Stops the running scrub after its present step.
///
/// *Errors*: `SCRUB_UNKNOWN` if none runs.
pub(crate) async fn stop_scrub<W: World>(shard: Rc<ShardContext<W>>, pool: Name) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    if !pool.maintenance.scrub.runs.get() {
        let message = format!("no scrub of pool {} is running", pool.name);
        let hint = format!("start one with blockyard pool scrub start {}", pool.name);
        return Err(Refusal::new(code::SCRUB_UNKNOWN, message, hint));
    }
    pool.maintenance.scrub.stop.set(true);
    // Wakes a scrub that waits for its window or its pace.
    pool.maintenance.tell_of_change();
    Ok(pool.report())
}

/// Pauses scrubs or lets them continue; set by the scrub window.
pub(crate) async fn hold_scrub<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    held: bool,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    pool.maintenance.scrub.held.set(held);
    // Wakes a scrub that waits for its window.
    pool.maintenance.tell_of_change();
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

    /// Report of the scrub that runs or ran last.
    pub(super) fn report(&self, now: shard::Time) -> Option<ScrubReport> {
        let mut report = self.report.borrow().clone()?;
        // The stored state does not tell whether it waits for its window; only `held` does.
        if report.state.runs() {
            report.state = if self.held.get() { ScrubState::Waiting } else { ScrubState::Running };
            report.progress = self.work.get().map(|work| work.progress(now));
        }
        Some(report)
    }
}

impl<W: World> OpenPool<W> {
    /// Reports repaired metadata of a disk. False for a disk that is not a member any more.
    pub(super) fn tell_of_repair(&self, disk: Uuid, what: &str) -> bool {
        let Some((group, member)) = self.place_of(disk_id(disk)) else { return false };
        let disk = self.disk_name(group, member);
        let sentence = format!(
            "disk {disk} of pool {}: {what} was damaged and was repaired. Check the disk and whether other \
             software writes to it.",
            self.name
        );
        self.shard.raise(event::METADATA_REPAIRED, Subject::new(SubjectKind::Disk, &disk), sentence);
        true
    }
}

/// Starts a scrub. It survives a restart only after it has checked the metadata of the members: an earlier commit of
/// the catalog would overwrite damaged metadata without a report.
fn begin<W: World>(pool: &Rc<OpenPool<W>>, repairs: bool) {
    let scrub = &pool.maintenance.scrub;
    assert!(!scrub.runs.replace(true), "one scrub of a pool runs at a time");
    // An order that stopped an earlier scrub must not stop this one.
    scrub.stop.set(false);
    scrub.at.set(ScrubPosition::default());
    // This scrub finds and lists them again.
    LostList(pool).forget_unnamed();
    *scrub.report.borrow_mut() = Some(ScrubReport {
        state: ScrubState::Running,
        started: Timestamp::from_unix(pool.shard.world.unix_seconds()),
        ended: None,
        repairs,
        progress: None,
        checked: Size::ZERO,
        mismatches: 0,
        unreadable: 0,
        repaired: 0,
    });
    pool.raise(event::SCRUB_BEGAN, format!("scrub of pool {} started", pool.name));
    drive(pool, Walk::new(pool.clone(), repairs));
}

/// Runs the scrub in the background.
fn drive<W: World>(pool: &Rc<OpenPool<W>>, mut walk: Walk<W>) {
    // Set before the task runs, so that the first report has a progress.
    pool.maintenance.scrub.work.set(Some(walk.work()));
    let pool = pool.clone();
    pool.shard.world.clone().spawn(async move {
        let ended = {
            let scrubbed = pin!(walk.run());
            let halted = pin!(pool.halt.raised());
            match select(scrubbed, halted).await {
                Either::Left((state, _)) => Some(state),
                Either::Right(_) => None,
            }
        };
        // A finished scrub records its result, an interrupted one its position.
        match ended {
            Some(state) => end(&pool, state).await,
            None => interrupt(&pool).await,
        }
    });
}

/// Records the state of the scrub in the catalog.
pub(super) async fn keep<W: World>(pool: &OpenPool<W>) -> Result<(), PoolError> {
    let scrub = &pool.maintenance.scrub;
    let record = scrub.report.borrow().as_ref().map(|report| record_of(report, scrub.at.get()));
    match record {
        Some(record) => pool.pool.store_scrub(record).await,
        None => Ok(()),
    }
}

/// Records the position of the scrub when the pool is being closed; it continues at the next opening.
async fn interrupt<W: World>(pool: &OpenPool<W>) {
    if let Err(error) = keep(pool).await {
        tracing::warn!(pool = %pool.name, %error, "the progress of the scrub could not be saved");
    }
    pool.maintenance.scrub.work.set(None);
    assert!(pool.maintenance.scrub.runs.replace(false), "a scrub is interrupted while it runs");
}

fn record_of(report: &ScrubReport, at: ScrubPosition) -> ScrubRecord {
    ScrubRecord {
        phase: match report.state {
            // A scrub that waits for its window continues at the next opening like one that runs.
            ScrubState::Running | ScrubState::Waiting => ScrubPhase::Running,
            ScrubState::Done => ScrubPhase::Done,
            ScrubState::Stopped => ScrubPhase::Stopped,
            ScrubState::Failed => ScrubPhase::Failed,
        },
        started: report.started.unix(),
        ended: report.ended.map_or(0, Timestamp::unix),
        repairs: report.repairs,
        at,
        checked_bytes: report.checked.bytes(),
        mismatches: report.mismatches,
        unreadable: report.unreadable,
        healed: report.repaired,
    }
}

fn report_of(record: &ScrubRecord) -> ScrubReport {
    ScrubReport {
        state: match record.phase {
            ScrubPhase::Running => ScrubState::Running,
            ScrubPhase::Done => ScrubState::Done,
            ScrubPhase::Stopped => ScrubState::Stopped,
            ScrubPhase::Failed => ScrubState::Failed,
        },
        started: Timestamp::from_unix(record.started),
        ended: (record.ended > 0).then(|| Timestamp::from_unix(record.ended)),
        repairs: record.repairs,
        progress: None,
        checked: Size::new(record.checked_bytes),
        mismatches: record.mismatches,
        unreadable: record.unreadable,
        repaired: record.healed,
    }
}

/// Ends the scrub and reports its result.
async fn end<W: World>(pool: &OpenPool<W>, state: ScrubState) {
    let now = Timestamp::from_unix(pool.shard.world.unix_seconds());
    pool.maintenance.scrub.note(|report| (report.state, report.ended) = (state, Some(now)));
    let scrub = &pool.maintenance.scrub;
    scrub.work.set(None);
    // Recorded while it still counts as running: closing the pool waits until it does not.
    if let Err(error) = keep(pool).await {
        tracing::warn!(pool = %pool.name, %error, "the end of the scrub could not be recorded");
    }
    assert!(scrub.runs.replace(false), "a scrub ends once");
    // Repaired blocks may have been listed as lost; they are read again.
    pool.groups.iter().for_each(|(group, _)| LostList(pool).doubt(group));
    let Some(report) = scrub.report.borrow().clone() else { return };
    let (name, checked, seconds) = (&pool.name, report.checked.iec(), report.seconds(now));
    let read = format!("scrub of pool {name}: {checked} checked in {seconds} s");
    let ScrubReport { mismatches, unreadable, repaired: healed, .. } = report;
    let (code, sentence) = match state {
        ScrubState::Done if mismatches + unreadable > 0 => {
            let hint = "blockyard pool scrub start POOL --repair rewrites the parity from the data";
            let wrong = format!("{mismatches} stripes inconsistent, {unreadable} unreadable");
            (event::SCRUB_FOUND, format!("{read}: {wrong}, {healed} repaired; {hint}"))
        }
        ScrubState::Done if healed > 0 => (event::SCRUB_HEALED, format!("{read}: {healed} stripes repaired")),
        ScrubState::Done => (event::SCRUB_ENDED, format!("{read}: no errors")),
        ScrubState::Failed => (event::SCRUB_FOUND, format!("{read}, then failed")),
        ScrubState::Running | ScrubState::Waiting | ScrubState::Stopped => {
            (event::SCRUB_STOPPED, format!("{read}, then stopped"))
        }
    };
    pool.raise(code, sentence);
}
