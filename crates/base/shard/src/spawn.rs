//! Spawning and sleeping for code that does not know its world.

use crate::World;
use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Function that spawns a task on the shard.
pub type Spawn = Rc<dyn Fn(Pin<Box<dyn Future<Output = ()>>>)>;

/// Returns a [`Spawn`] for the shard of `world`.
pub fn spawn_on<W: World>(world: &W) -> Spawn {
    let world = world.clone();
    Rc::new(move |task| world.spawn(task))
}

/// Function that waits for a duration of the shard's clock.
pub type Pause = Rc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Returns a [`Pause`] on the clock of `world`.
pub fn pause_on<W: World>(world: &W) -> Pause {
    let world = world.clone();
    Rc::new(move |duration| Box::pin(world.sleep(duration)))
}

/// Spawner that can be created before its world is known; clones share the setting.
#[derive(Clone, Default)]
pub struct Spawner(Rc<OnceCell<Spawn>>);

impl Spawner {
    /// Sets the function that spawns tasks. Only the first call has an effect.
    pub fn set(&self, spawn: Spawn) {
        let _ = self.0.set(spawn);
    }

    /// Spawns `task`; drops it when no function has been set.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        // Before `set` there is no executor, and the task is dropped.
        if let Some(spawn) = self.0.get() {
            spawn(Box::pin(task));
        }
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").field("is_set", &self.0.get().is_some()).finish()
    }
}
