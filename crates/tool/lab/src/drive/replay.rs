//! Replay of a recorded load, with a session for each recorded one.

use super::{FirstError, OpenTransport, Transport, Unit, device};
use crate::replay::{Fit, Pace, Plan, Replayed, Score, Script};
use anyhow::{Context, Result, bail, ensure};
use shard::{World, mailbox};
use std::rc::Rc;
use std::time::Duration;

/// Time between the last login and the first command.
const LEAD: Duration = Duration::from_millis(10);

/// Options of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Replaying {
    /// Pace of the commands.
    pub pace: Pace,
    /// Wrap addresses beyond the end of the unit into its range.
    pub wrap: bool,
    /// Write to a unit even if it holds data.
    pub overwrite: bool,
    /// Seed of the stamps that are written.
    pub seed: u64,
}

/// Replays `plan` over `way`, which has a login for each of its sessions, or one device.
///
/// *Errors*: the plan does not fit the unit, the unit holds data that would be overwritten, or a session failed.
pub async fn replay<W: World>(world: &W, mut plan: Plan, way: &Transport, how: Replaying) -> Result<Replayed> {
    if let Pace::Recorded { speed } = how.pace {
        ensure!(speed > 0.0 && speed.is_finite(), "a recording does not pass {speed} times as fast");
    }
    let ends = OpenTransport::of(world, way).await?;
    // A session of its own: size and use of the unit are checked before the sessions of the load exist.
    let mut unit = ends.open_one(world, 0, true).await?;
    plan.fit(Fit { bytes: unit.bytes(), block_bytes: unit.block_bytes(), wrap: how.wrap })?;
    let guards = plan.writes() && !how.overwrite;
    // Reported only after the session is closed, so that the target has no session left.
    let in_use = if guards { unit.in_use(world).await? } else { None };
    unit.leave(world).await?;
    if let Some(why) = in_use {
        bail!("the unit {why}; with --overwrite it is written over");
    }
    let sessions = u32::try_from(plan.sessions.len()).context("too many sessions")?;
    let units = ends.open(world, sessions, false).await?;
    // A common start for all sessions, so that recorded times hold across them.
    let from = world.now() + LEAD;
    let (mut running, broken) = (Vec::new(), Rc::<FirstError>::default());
    for (unit, steps) in units.into_iter().zip(&plan.sessions) {
        let script = Script::new(steps.clone(), how.pace, from, how.seed);
        let (tell, told) = mailbox::channel();
        let (inside, broken) = (world.clone(), broken.clone());
        world.spawn(async move {
            match unit.play(&inside, script).await {
                // The receiver is gone if another session has failed.
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
    /// Returns the block size that commands must be multiples of; none for byte-addressable devices.
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
