//! Live rates: the difference of two samples of the counters, a second apart.
//!
//! One task samples for all clients, and only while there is one. Idle objects are left out of [`LiveRates`], so
//! that ten thousand idle volumes cost nothing to send.

mod cause;
mod rates;
mod sampler;

pub use cause::Cause;
pub use rates::{CacheRates, DiskRates, HostRates, LiveRates, PortalRates, Rates, SessionRates, VolumeRates};

use crate::core::Core;
use model::Refusal;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Sampling interval.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Rates of the last second, shared by all clients that watch them.
pub struct Live {
    core: Arc<Core>,
    /// Channel of the sampling task; `None` while no client watches.
    watched: Mutex<Option<watch::Receiver<LatestRates>>>,
}

impl Live {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, watched: Mutex::default() }
    }
}

/// The latest rates, or the error of the last sample; `None` before the second sample.
pub(crate) type LatestRates = Option<Result<Arc<LiveRates>, Refusal>>;

/// Subscription to the rates. A slow client delays no other; it misses samples.
pub struct RateSubscription(watch::Receiver<LatestRates>);

impl RateSubscription {
    /// Waits for the next rates; `None` once the daemon stops.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn next(&mut self) -> Option<Result<Arc<LiveRates>, Refusal>> {
        loop {
            self.0.changed().await.ok()?;
            let told = self.0.borrow_and_update().clone();
            // `None` is the initial value of the channel.
            if told.is_some() {
                return told;
            }
        }
    }
}

#[cfg(test)]
mod tests;
