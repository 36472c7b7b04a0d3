//! Systematic damage of what pools keep on their disks: structure × member × kind of damage.
//!
//! Each seed makes a pool, lets hosts work, stops the data plane cleanly or kills it, damages one block of one structure on one member
//! or at the same place on every member, and opens the pool again. What reads is right or an error, whatever was damaged; damage
//! that the level bears costs nothing. A panic or a run without end is caught by [`crate::run`].

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
use model::{Level, Order};
use place::{Images, Plan};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// What was damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The level of the pool.
    pub level: Level,
    /// Which structure.
    pub structure: Structure,
    /// How.
    pub kind: Kind,
    /// True when the same place was damaged on every member that has the structure there.
    pub everywhere: bool,
    /// True when the data plane had ended as it was told to.
    pub clean: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, structure, kind, everywhere, clean } = self;
        let place = if *everywhere { "every member" } else { "one member" };
        let end = if *clean { "a clean stop" } else { "a kill" };
        write!(f, "{level}, {structure}, {kind:?} on {place} after {end}")
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
    match (what, found) {
        (Some(damage), Found::Wrong(why)) => {
            let known = known::reason(&damage);
            (what, known.map_or(Found::Wrong(why), Found::Known))
        }
        (_, found) => (what, found),
    }
}

async fn play(stage: &Stage, noted: &RefCell<(Option<Damage>, Found)>) -> Judged<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    let volumes = power_cut_volumes(stage, &pool).await?;
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    work(stage, &volumes, 40).await?;
    let older = Images::of(&pool.handles(stage));
    work(stage, &volumes, 80).await?;
    let clean = stage.chance.percent(50);
    if clean {
        stage.order(Order::Stop).await?;
        stage.array.kill();
    } else {
        stage.kill(&volumes);
    }
    let handles = pool.handles(stage);
    let mut images = Images::of(&handles);
    let Some(plan) = Plan::of_chance(&stage.chance, &images) else { return Ok(()) };
    let damage = Damage {
        level: pool.plan.level,
        structure: plan.structure,
        kind: plan.kind,
        everywhere: plan.everywhere,
        clean,
    };
    if !plan.strike(&stage.chance, &mut images, &older) {
        return Ok(());
    }
    // Before the pool is opened, so that a panic there is told with what had been damaged.
    noted.borrow_mut().0 = Some(damage);
    images.restore(&handles);
    let found = judge(stage, &pool, &volumes).await?;
    let borne = pool.tolerated() > 0 && !plan.everywhere && plan.kind != Kind::Swapped;
    noted.borrow_mut().1 = match found {
        Found::Errors(blocks) if borne => Found::Wrong(format!("{blocks} blocks are lost, which the level bears")),
        Found::Refused(why) if borne => Found::Wrong(format!("refused, which the level bears: {why}")),
        found => found,
    };
    Ok(())
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
