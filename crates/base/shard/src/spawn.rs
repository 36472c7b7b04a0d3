//! Tasks begun by code that does not know its world.

use crate::World;
use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Starts a task of the shard.
pub type Spawn = Rc<dyn Fn(Pin<Box<dyn Future<Output = ()>>>)>;

/// Tasks are started on the shard of `world`.
pub fn spawn_on<W: World>(world: &W) -> Spawn {
    let world = world.clone();
    Rc::new(move |task| world.spawn(task))
}

/// Waits for a time of the shard's clock.
pub type Pause = Rc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Waits on the clock of `world`.
pub fn pause_on<W: World>(world: &W) -> Pause {
    let world = world.clone();
    Rc::new(move |duration| Box::pin(world.sleep(duration)))
}

/// Starts tasks once it is known how; its clones know it too.
#[derive(Clone, Default)]
pub struct Spawner(Rc<OnceCell<Spawn>>);

impl Spawner {
    /// Tasks are started by `spawn` from now on. The first to be set stays.
    pub fn set(&self, spawn: Spawn) {
        let _ = self.0.set(spawn);
    }

    /// Starts `task`; drops it while nobody has said how.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
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
