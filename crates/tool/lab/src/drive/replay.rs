//! A recorded load is sent again: a session of ours for each that was recorded.

use super::{Broken, Ends, Unit, Way, device};
use crate::replay::{Fit, Pace, Plan, Replayed, Score, Script};
use anyhow::{Context, Result, bail, ensure};
use shard::{World, mailbox};
use std::rc::Rc;
use std::time::Duration;

/// Between the last login and the first command.
const LEAD: Duration = Duration::from_millis(10);

/// How a load is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Replaying {
    /// When commands are due.
    pub pace: Pace,
    /// What lies behind the end of the unit goes where there is room.
    pub wrap: bool,
    /// It is written to a unit that holds data, too.
    pub overwrite: bool,
    /// Of the stamps that are written.
    pub seed: u64,
}

/// Replays `plan` on `way`, which has a login for each of its sessions, or one device.
///
/// *Errors*: it does not fit the unit; the unit holds data that would be written over; no session, or one that broke.
pub async fn replay<W: World>(world: &W, mut plan: Plan, way: &Way, how: Replaying) -> Result<Replayed> {
    if let Pace::Recorded { speed } = how.pace {
        ensure!(speed > 0.0 && speed.is_finite(), "a recording does not pass {speed} times as fast");
    }
    let ends = Ends::of(world, way).await?;
    let mut unit = ends.open_one(world, 0, true).await?;
    plan.fit(Fit { bytes: unit.bytes(), block_bytes: unit.block_bytes(), wrap: how.wrap })?;
    let guards = plan.writes() && !how.overwrite;
    let in_use = if guards { unit.in_use(world).await? } else { None };
    unit.leave(world).await?;
    if let Some(why) = in_use {
        bail!("the unit {why}; with --overwrite it is written over");
    }
    let sessions = u32::try_from(plan.sessions.len()).context("too many sessions")?;
    let units = ends.open(world, sessions, false).await?;
    let from = world.now() + LEAD;
    let (mut running, broken) = (Vec::new(), Rc::<Broken>::default());
    for (unit, steps) in units.into_iter().zip(&plan.sessions) {
        let script = Script::new(steps.clone(), how.pace, from, how.seed);
        let (tell, told) = mailbox::channel();
        let (inside, broken) = (world.clone(), broken.clone());
        world.spawn(async move {
            match unit.play(&inside, script).await {
                // Nobody waits any more where another session has failed.
                Ok(scores) => drop(tell.send(scores)),
                Err(error) => broken.raise(error),
            }
        });
        running.push(told);
    }
    let mut scores = Vec::new();
    for session in running {
        scores.extend(broken.unless(session.receive()).await?.context("a session's task is gone")?);
    }
    Ok(plan.compared(&scores, from))
}

impl<W: World> Unit<W> {
    /// The block size that commands must name; none where bytes can be addressed.
    fn block_bytes(&self) -> Option<u32> {
        match self {
            Self::Iscsi(session) => Some(session.block_bytes()),
            Self::Bare(_) | Self::Device(_) => None,
        }
    }

    /// Ends a session without commands.
    async fn leave(self, world: &W) -> Result<()> {
        match self {
            Self::Iscsi(session) => session.log_out(world).await,
            Self::Bare(_) | Self::Device(_) => Ok(()),
        }
    }

    async fn play(self, world: &W, script: Script) -> Result<Vec<Score>> {
        match self {
            Self::Iscsi(mut session) => {
                let scores = session.play(world, script).await?;
                session.log_out(world).await?;
                Ok(scores)
            }
            Self::Bare(_) => bail!("a server of bare bytes has no addresses that a load could be replayed at"),
            Self::Device(disk) => device::play(world, disk, script).await,
        }
    }
}
