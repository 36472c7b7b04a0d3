//! The background work of a pool's families: done while there may be some, and never while there is none.

use super::OpenPool;
use futures_util::future::select;
use shard::{Signal, World, yield_now};
use std::cell::Cell;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Between two looks while volumes are written.
const PAUSE: Duration = Duration::from_secs(3);

/// Looks without anything to do after the last write before the next write is waited for: what one look frees
/// may be what the next one can give back.
const QUIET_LOOKS: u32 = 2;

/// Says that a pool may have something to do in the background, and wakes whoever does it.
#[derive(Default)]
pub(super) struct Chores {
    left: Cell<bool>,
    stopped: Cell<bool>,
    runs: Cell<bool>,
    changed: Signal,
}

impl Chores {
    /// There may be something to do.
    pub(super) fn leave(&self) {
        if !self.left.replace(true) {
            self.changed.raise();
        }
    }

    /// Ready when `holds`, which is looked at whenever something was left to do or nothing more is to be done.
    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        self.changed.until(|| holds(self)).await;
    }

    /// Nothing is done any more.
    pub(super) async fn stop(&self) {
        self.stopped.set(true);
        self.changed.raise();
        self.until(|chores| !chores.runs.get()).await;
    }
}

impl<W: World> OpenPool<W> {
    /// The families of the pool are tended from now on. To be called again whenever one was added.
    pub(super) fn begin_tending(self: &Rc<Self>) {
        let chores = self.care.space.chores.clone();
        chores.leave();
        if chores.runs.replace(true) {
            return;
        }
        self.pool.set_map_cache_bytes(self.shard.limits.map_cache_bytes_per_pool);
        let (weak, world) = (Rc::downgrade(self), self.shard.world.clone());
        self.shard.world.spawn(async move {
            tend(&weak, &world, &chores).await;
            assert!(chores.runs.replace(false), "the chores of a pool end once");
            chores.changed.raise();
        });
    }
}

async fn tend<W: World>(pool: &Weak<OpenPool<W>>, world: &W, chores: &Chores) {
    let mut quiet = 0;
    loop {
        if quiet >= QUIET_LOOKS {
            chores.until(|chores| chores.left.get() || chores.stopped.get()).await;
        }
        let left = chores.left.take();
        let Some(pool) = pool.upgrade().filter(|_| !chores.stopped.get()) else { return };
        match pool.pool.tend().await {
            Ok(tended) => {
                quiet = if left || tended.freed_granules + tended.freed_slabs > 0 { 0 } else { quiet + 1 };
                pool.look_at_hosts_thresholds();
                if tended.more {
                    yield_now().await;
                    quiet = 0;
                    continue;
                }
            }
            Err(error) => {
                // A damaged map, or a group that fails: the next write tries again.
                tracing::error!(pool = %pool.name, %error, "the maps of a pool could not be tended");
                quiet = QUIET_LOOKS;
            }
        }
        drop(pool);
        let stopped = chores.until(|chores| chores.stopped.get());
        select(pin!(world.sleep(PAUSE)), pin!(stopped)).await;
    }
}
