//! Background maintenance of a pool's maps: runs while there may be work, sleeps while there is none.

use super::OpenPool;
use futures_util::future::select;
use shard::{Signal, World, yield_now};
use std::cell::Cell;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Pause between two passes while volumes are written.
const PAUSE: Duration = Duration::from_secs(3);

/// Idle passes after the last write before the task sleeps. What one pass frees may be what the next one can return to
/// the pool.
const QUIET_LOOKS: u32 = 2;

/// Work flag of a pool's maps, and the wake-up of the task that does the work.
#[derive(Default)]
pub(super) struct MapWork {
    left: Cell<bool>,
    stopped: Cell<bool>,
    runs: Cell<bool>,
    changed: Signal,
}

impl MapWork {
    /// Notes that there may be work. Called for every write, so it must be cheap.
    pub(super) fn leave(&self) {
        // The signal is raised only at the first change; further writes cost one flag.
        if !self.left.replace(true) {
            self.changed.raise();
        }
    }

    /// Waits until `holds`; it is evaluated when work was noted or the task was stopped.
    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        self.changed.until(|| holds(self)).await;
    }

    /// Stops the task and waits for its end.
    pub(super) async fn stop(&self) {
        self.stopped.set(true);
        self.changed.raise();
        self.until(|chores| !chores.runs.get()).await;
    }
}

impl<W: World> OpenPool<W> {
    /// Starts the maintenance task unless it runs, and wakes it. Called again whenever a family was added.
    pub(super) fn start_map_work(self: &Rc<Self>) {
        let chores = self.maintenance.space.chores.clone();
        chores.leave();
        if chores.runs.replace(true) {
            return;
        }
        self.pool.set_map_cache_bytes(self.shard.limits.map_cache_bytes_per_pool);
        let (weak, world) = (Rc::downgrade(self), self.shard.world.clone());
        self.shard.world.spawn(async move {
            run_map_work(&weak, &world, &chores).await;
            assert!(chores.runs.replace(false), "the chores of a pool end once");
            // Wakes `stop`, which waits for this.
            chores.changed.raise();
        });
    }
}

async fn run_map_work<W: World>(pool: &Weak<OpenPool<W>>, world: &W, chores: &MapWork) {
    let mut quiet = 0;
    loop {
        if quiet >= QUIET_LOOKS {
            chores.until(|chores| chores.left.get() || chores.stopped.get()).await;
        }
        // Cleared before the pass: a write during it causes another one.
        let left = chores.left.take();
        let Some(pool) = pool.upgrade().filter(|_| !chores.stopped.get()) else { return };
        match pool.pool.run_maintenance().await {
            Ok(tended) => {
                quiet = if left || tended.freed_granules + tended.freed_slabs > 0 { 0 } else { quiet + 1 };
                pool.look_at_hosts_thresholds();
                // More work is left: commands get a turn, then the next pass starts without a pause.
                if tended.more {
                    yield_now().await;
                    quiet = 0;
                    continue;
                }
            }
            Err(error) => {
                // A damaged map or a failing group; the next write causes another attempt.
                tracing::error!(pool = %pool.name, %error, "the maps of a pool could not be tended");
                quiet = QUIET_LOOKS;
            }
        }
        // The pool must not be kept open while the task sleeps.
        drop(pool);
        let stopped = chores.until(|chores| chores.stopped.get());
        select(pin!(world.sleep(PAUSE)), pin!(stopped)).await;
    }
}
