//! What happens just now: the figures of two looks, a second apart, as rates.
//!
//! One task looks for everybody who watches, and only as long as somebody does. What stands still is left out of a
//! [`Moment`], so that ten thousand idle volumes cost nothing to send.

mod cause;
mod rates;
mod watching;

pub use cause::Cause;
pub use rates::{CacheRates, DiskRates, HostRates, Moment, PortalRates, Rates, SessionRates, VolumeRates};

use crate::core::Core;
use model::Refusal;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// How often is looked.
pub const LOOK: Duration = Duration::from_secs(1);

/// Rates of the last second, for everybody who watches.
pub struct Live {
    core: Arc<Core>,
    /// What those who watch are told; none while nobody watches.
    watched: Mutex<Option<watch::Receiver<Told>>>,
}

impl Live {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, watched: Mutex::default() }
    }
}

/// The latest moment, and what hinders from telling one.
pub(crate) type Told = Option<Result<Arc<Moment>, Refusal>>;

/// Somebody who watches. Nobody else waits when it is slow: it then misses moments.
pub struct Watching(watch::Receiver<Told>);

impl Watching {
    /// The next moment; none once the daemon stops.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn next(&mut self) -> Option<Result<Arc<Moment>, Refusal>> {
        loop {
            self.0.changed().await.ok()?;
            let told = self.0.borrow_and_update().clone();
            if told.is_some() {
                return told;
            }
        }
    }
}

#[cfg(test)]
mod tests;
