//! Systematic corruption of pool metadata: structure × member × kind of corruption.
//!
//! Each seed creates a pool, some with a log device, runs I/O, stops the data plane cleanly or kills it, corrupts one
//! or two blocks (each of one structure, on one disk or at the same place of every disk), and opens the pool again.
//! Whatever was corrupted, every read returns correct data or an error. Corruption that the RAID level or the copies of
//! a structure tolerate loses nothing. A panic or a hang is caught by [`crate::run`].

mod known;
mod place;
mod read_back;
mod table;

pub use place::{Kind, Structure};
pub use table::table;

use crate::pool::{Pool, PoolPlan};
use crate::profile::power_cut_volumes;
use crate::run;
use crate::stage::{CheckResult, PresentedVolume, Stage};
use model::{Level, Order, WritePolicy};
use place::{Copies, Images, Plan};
use read_back::LossCount;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

/// Corruption of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// RAID level of the pool.
    pub level: Level,
    /// One or two corrupted blocks.
    pub blocks: Vec<CorruptedBlock>,
    /// Data plane had stopped cleanly before.
    pub clean: bool,
}

/// Corrupted block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptedBlock {
    /// Structure to which the block belongs.
    pub structure: Structure,
    /// Kind of corruption.
    pub kind: Kind,
    /// True when the same place was corrupted on every disk that has the structure there, or the structure has one
    /// copy.
    pub everywhere: bool,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, blocks: strikes, clean } = self;
        let end = if *clean { "a clean stop" } else { "a kill" };
        write!(f, "{level} after {end}")?;
        for CorruptedBlock { structure, kind, everywhere } in strikes {
            let place = if *everywhere { "every disk" } else { "one disk" };
            write!(f, ", {structure}: {kind:?} on {place}")?;
        }
        Ok(())
    }
}

/// Result of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundResult {
    /// All data reads correctly.
    Whole,
    /// Number of blocks that return errors; all others read correctly.
    Errors(u64),
    /// The pool or a volume does not open.
    Refused(String),
    /// The corruption changed nothing, or the structure does not exist.
    Nothing,
    /// Violation of a guarantee.
    Wrong(String),
    /// As [`RoundResult::Wrong`], but listed as a known finding.
    Known(&'static str),
}

/// Runs the round of `seed`.
#[must_use]
pub fn damage(seed: u64) -> (Option<Corruption>, RoundResult) {
    let noted: Rc<RefCell<(Option<Corruption>, RoundResult)>> = Rc::new(RefCell::new((None, RoundResult::Nothing)));
    let note = noted.clone();
    let outcome = run::caught(seed, None, async move |stage| play(stage, &note).await);
    // Kept outside of the world of the run, so that a round that panics is reported as well.
    let (what, found) = noted.borrow().clone();
    let found = outcome.wrong.map_or(found, RoundResult::Wrong);
    let known = what.as_ref().and_then(known::reason);
    match (found, known) {
        (RoundResult::Wrong(_), Some(reason)) => (what, RoundResult::Known(reason)),
        (found, _) => (what, found),
    }
}

async fn play(stage: &Stage, noted: &RefCell<(Option<Corruption>, RoundResult)>) -> CheckResult<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    let mut handles = pool.handles(stage);
    let members = handles.len();
    if stage.chance.percent(30) {
        handles.extend(pool.add_log(stage).await?);
    }
    let volumes = power_cut_volumes(stage, &pool).await?;
    // Write-back needs a log device.
    if handles.len() > members {
        stage.write_as(&volumes, WritePolicy::Back).await?;
    }
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    work(stage, &volumes, 40).await?;
    // Source of the kind `Older`: blocks as they were some commands ago.
    let older = Images::of(&handles);
    work(stage, &volumes, 80).await?;
    let clean = stage.chance.percent(50);
    // A clean stop leaves empty logs, a kill leaves logs to be replayed; both are damaged.
    if clean {
        stage.order(Order::Stop).await?;
        stage.array.kill();
    } else {
        stage.kill(&volumes);
    }
    let mut images = Images::of(&handles);
    let mut plans = Vec::new();
    for _ in 0..if stage.chance.percent(25) { 2 } else { 1 } {
        // Without any structure there is nothing to damage, and the round is no finding.
        let Some(plan) = Plan::of_chance(&stage.chance, &images) else { return Ok(()) };
        if plan.strike(&stage.chance, &mut images, &older) {
            plans.push(plan);
        }
    }
    if plans.is_empty() {
        return Ok(());
    }
    let log_disks = handles.len() - members;
    let strike = |plan: &Plan| {
        // The disks of the log device follow the members. They mirror each other, whatever the level of the pool is.
        let bears = if plan.disk < members { pool.tolerated() } else { log_disks - 1 };
        // Without redundancy the damaged block is the only copy, as if every copy were damaged.
        let is_only = bears == 0 && plan.structure.copies() == Copies::AsData;
        CorruptedBlock { structure: plan.structure, kind: plan.kind, everywhere: plan.everywhere || is_only }
    };
    let damage = Corruption { level: pool.plan.level, blocks: plans.iter().map(strike).collect(), clean };
    // Recorded before the pool is opened, so that a panic there is reported with its corruption.
    noted.borrow_mut().0 = Some(damage);
    // The data plane is down here, so none of its caches hides the damage.
    images.restore(&handles);
    let found = judge(stage, &pool, &volumes).await?;
    let borne = is_tolerated(&pool, (members, log_disks), &plans);
    noted.borrow_mut().1 = match found {
        RoundResult::Errors(blocks) if borne => RoundResult::Wrong(format!("{blocks} blocks are lost, which is borne")),
        RoundResult::Refused(why) if borne => RoundResult::Wrong(format!("refused, which is borne: {why}")),
        found => found,
    };
    Ok(())
}

/// True when nothing may be lost: one block of which a copy exists, or blocks of no more disks than the level
/// tolerates. The log disks follow the members.
fn is_tolerated(pool: &Pool, (members, log_disks): (usize, usize), plans: &[Plan]) -> bool {
    if let [plan] = plans {
        match plan.structure.copies() {
            // An exchange damages two places, of which one may hold the only copy.
            Copies::InTwoPlaces if plan.kind != Kind::Swapped => return true,
            Copies::OnTwoMembers if members > 1 && plan.kind != Kind::Swapped && !plan.everywhere => return true,
            _ => {}
        }
    }
    let struck: BTreeSet<usize> = plans.iter().map(|plan| plan.disk).collect();
    let is_anywhere_else = |plan: &Plan| plan.everywhere || plan.kind == Kind::Swapped;
    // Only the copy reveals that a member returns an old page of checksums, and the other corrupted block may be that
    // copy.
    let forgets = plans.len() > 1 && plans.iter().any(|plan| plan.kind == Kind::Older);
    let of_log = struck.iter().filter(|&&disk| disk >= members).count();
    let (log_bears, bears) = (log_disks.saturating_sub(1), pool.tolerated());
    !forgets && !plans.iter().any(is_anywhere_else) && of_log <= log_bears && struck.len() - of_log <= bears
}

async fn work(stage: &Stage, volumes: &[PresentedVolume], commands: u64) -> CheckResult<()> {
    let units: Vec<_> = volumes.iter().map(|volume| volume.unit.clone()).collect();
    let traffic = stage.start_hosts(1, commands, &units, &stage.habits());
    // All commands end, so that each block has one value and the corruption alone explains another one.
    stage.until_over(&traffic, std::time::Duration::from_millis(100)).await;
    stage.until_quiet(&traffic).await
}

/// Opens the pool again and reads all volumes.
async fn judge(stage: &Stage, pool: &Pool, volumes: &[PresentedVolume]) -> CheckResult<RoundResult> {
    stage.array.boot();
    stage.start_daemon();
    // A refusal is a result here: whether it was allowed is judged by the caller.
    if let Err(why) = pool.open(stage).await {
        return Ok(RoundResult::Refused(why));
    }
    stage.present(volumes).await?;
    stage.open_portals().await?;
    let units: Vec<_> = volumes.iter().map(|volume| volume.unit.clone()).collect();
    Ok(match stage.check_with_losses(&units).await? {
        LossCount { lost_blocks: 0, lost_units: 0 } => RoundResult::Whole,
        LossCount { lost_units: 0, lost_blocks } => RoundResult::Errors(lost_blocks),
        LossCount { lost_units, .. } => RoundResult::Refused(format!("{lost_units} volumes do not serve")),
    })
}
