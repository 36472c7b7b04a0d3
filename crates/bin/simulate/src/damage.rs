//! Systematic damage of what pools keep on their disks: structure × member × kind of damage.
//!
//! Each seed makes a pool, some with a log device, lets hosts work, stops the data plane cleanly or kills it, damages one block or two, each of
//! one structure on one disk or at the same place on every disk, and opens the pool again. What reads is right or an error, whatever was damaged;
//! damage that the level or the copies of a structure bear costs nothing. A panic or a run without end is caught by [`crate::run`].

mod known;
mod look;
mod place;
mod table;

pub use place::{Kind, Structure};
pub use table::table;

use crate::pool::{Pool, PoolPlan};
use crate::profile::power_cut_volumes;
use crate::run;
use crate::stage::{Judged, Presented, Stage};
use look::Seen;
use model::{Level, Order, WritePolicy};
use place::{Copies, Images, Plan};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

/// What was damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The level of the pool.
    pub level: Level,
    /// The blocks: one, or two.
    pub strikes: Vec<Strike>,
    /// True when the data plane had ended as it was told to.
    pub clean: bool,
}

/// One damaged block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Which structure.
    pub structure: Structure,
    /// How.
    pub kind: Kind,
    /// True when the same place was damaged on every disk that has the structure there, or there is one copy.
    pub everywhere: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, strikes, clean } = self;
        let end = if *clean { "a clean stop" } else { "a kill" };
        write!(f, "{level} after {end}")?;
        for Strike { structure, kind, everywhere } in strikes {
            let place = if *everywhere { "every disk" } else { "one disk" };
            write!(f, ", {structure}: {kind:?} on {place}")?;
        }
        Ok(())
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Everything reads right.
    Whole,
    /// So many blocks are errors, the others read right.
    Errors(u64),
    /// The pool or a volume does not open.
    Refused(String),
    /// What was chosen is the same after the damage, or the structure is not there.
    Nothing,
    /// It breaks what was promised.
    Wrong(String),
    /// As [`Found::Wrong`], and stands in the list of what is known.
    Known(&'static str),
}

/// Plays the round of `seed`.
#[must_use]
pub fn damage(seed: u64) -> (Option<Damage>, Found) {
    let noted: Rc<RefCell<(Option<Damage>, Found)>> = Rc::new(RefCell::new((None, Found::Nothing)));
    let note = noted.clone();
    let outcome = run::caught(seed, None, async move |stage| play(stage, &note).await);
    let (what, found) = noted.borrow().clone();
    let found = outcome.wrong.map_or(found, Found::Wrong);
    let known = what.as_ref().and_then(known::reason);
    match (found, known) {
        (Found::Wrong(_), Some(reason)) => (what, Found::Known(reason)),
        (found, _) => (what, found),
    }
}

async fn play(stage: &Stage, noted: &RefCell<(Option<Damage>, Found)>) -> Judged<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    let mut handles = pool.handles(stage);
    let members = handles.len();
    if stage.chance.percent(30) {
        handles.extend(pool.add_log(stage).await?);
    }
    let volumes = power_cut_volumes(stage, &pool).await?;
    if handles.len() > members {
        stage.write_as(&volumes, WritePolicy::Back).await?;
    }
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    work(stage, &volumes, 40).await?;
    let older = Images::of(&handles);
    work(stage, &volumes, 80).await?;
    let clean = stage.chance.percent(50);
    if clean {
        stage.order(Order::Stop).await?;
        stage.array.kill();
    } else {
        stage.kill(&volumes);
    }
    let mut images = Images::of(&handles);
    let mut plans = Vec::new();
    for _ in 0..if stage.chance.percent(25) { 2 } else { 1 } {
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
        let bears = if plan.disk < members { pool.tolerated() } else { log_disks - 1 };
        let is_only = bears == 0 && plan.structure.copies() == Copies::AsData;
        Strike { structure: plan.structure, kind: plan.kind, everywhere: plan.everywhere || is_only }
    };
    let damage = Damage { level: pool.plan.level, strikes: plans.iter().map(strike).collect(), clean };
    // Before the pool is opened, so that a panic there is told with what had been damaged.
    noted.borrow_mut().0 = Some(damage);
    images.restore(&handles);
    let found = judge(stage, &pool, &volumes).await?;
    let borne = is_borne(&pool, (members, log_disks), &plans);
    noted.borrow_mut().1 = match found {
        Found::Errors(blocks) if borne => Found::Wrong(format!("{blocks} blocks are lost, which is borne")),
        Found::Refused(why) if borne => Found::Wrong(format!("refused, which is borne: {why}")),
        found => found,
    };
    Ok(())
}

/// True when nothing may be lost: one block, of which there is a copy, or blocks of as many disks as the level bears. The disks of
/// the log come behind the members.
fn is_borne(pool: &Pool, (members, log_disks): (usize, usize), plans: &[Plan]) -> bool {
    if let [plan] = plans {
        match plan.structure.copies() {
            Copies::InTwoPlaces if plan.kind != Kind::Swapped => return true,
            Copies::OnTwoMembers if members > 1 && plan.kind != Kind::Swapped && !plan.everywhere => return true,
            _ => {}
        }
    }
    let struck: BTreeSet<usize> = plans.iter().map(|plan| plan.disk).collect();
    let is_anywhere_else = |plan: &Plan| plan.everywhere || plan.kind == Kind::Swapped;
    // A page of checksums that a member forgets is found by its copy alone, which another block may have been.
    let forgets = plans.len() > 1 && plans.iter().any(|plan| plan.kind == Kind::Older);
    let of_log = struck.iter().filter(|&&disk| disk >= members).count();
    let (log_bears, bears) = (log_disks.saturating_sub(1), pool.tolerated());
    !forgets && !plans.iter().any(is_anywhere_else) && of_log <= log_bears && struck.len() - of_log <= bears
}

async fn work(stage: &Stage, volumes: &[Presented], commands: u64) -> Judged<()> {
    let units: Vec<_> = volumes.iter().map(|volume| volume.unit.clone()).collect();
    let traffic = stage.start_hosts(1, commands, &units, &stage.habits());
    stage.until_over(&traffic, std::time::Duration::from_millis(100)).await;
    stage.quiet(&traffic).await
}

/// The pool is opened again, and all of its volumes are read.
async fn judge(stage: &Stage, pool: &Pool, volumes: &[Presented]) -> Judged<Found> {
    stage.array.boot();
    stage.start_daemon();
    if let Err(why) = pool.open(stage).await {
        return Ok(Found::Refused(why));
    }
    stage.present(volumes).await?;
    stage.open_portals().await?;
    let units: Vec<_> = volumes.iter().map(|volume| volume.unit.clone()).collect();
    Ok(match stage.look_tolerantly(&units).await? {
        Seen { lost_blocks: 0, lost_units: 0 } => Found::Whole,
        Seen { lost_units: 0, lost_blocks } => Found::Errors(lost_blocks),
        Seen { lost_units, .. } => Found::Refused(format!("{lost_units} volumes do not serve")),
    })
}
