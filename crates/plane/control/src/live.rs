//! What happens just now: the figures of two looks, a second apart, as rates.
//!
//! One task looks for everybody who watches, and only as long as somebody does. What stands still is left out of a
//! [`Moment`], so that ten thousand idle volumes cost nothing to send.

mod cause;
mod rates;

pub use cause::Cause;
pub use rates::{CacheRates, DiskRates, HostRates, Moment, PortalRates, Rates, SessionRates, VolumeRates};

use crate::Control;
use model::{Activity, Order, PoolReport, Refusal};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often is looked.
pub const LOOK: Duration = Duration::from_secs(1);

/// Everybody who watches.
#[derive(Default)]
pub(crate) struct Live(Mutex<Option<watch::Receiver<Told>>>);

/// The latest moment, and what hinders from telling one.
type Told = Option<Result<Arc<Moment>, Refusal>>;

/// Somebody who watches. Nobody else waits when it is slow: it then misses moments.
pub struct Watching(watch::Receiver<Told>);

/// What was done up to an instant.
struct Look {
    at: Instant,
    activity: Activity,
    pools: Vec<PoolReport>,
}

impl Control {
    /// Watches from now on; the first moment comes after [`LOOK`], or at once when others watch too.
    #[must_use]
    pub fn watch(self: &Arc<Self>) -> Watching {
        let mut watched = self.live.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(receiver) = watched.as_ref().filter(|receiver| receiver.has_changed().is_ok()) {
            let mut receiver = receiver.clone();
            receiver.mark_changed();
            return Watching(receiver);
        }
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(self.clone().look_on(sender));
        *watched = Some(receiver.clone());
        Watching(receiver)
    }

    /// What was done up to now, in figures that only grow.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn activity(&self) -> Result<Activity, Refusal> {
        self.engine.activity(Order::Activity).await
    }

    async fn look(&self) -> Result<Look, Refusal> {
        let activity = self.activity().await?;
        let pools = self.engine.pools(Order::Pools).await?;
        Ok(Look { at: Instant::now(), activity, pools })
    }

    /// Looks every second until nobody watches any more.
    async fn look_on(self: Arc<Self>, sender: watch::Sender<Told>) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = self.stopping.subscribe();
        let mut before: Option<Look> = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = crate::system::stopped(&mut stopping) => return,
            }
            // One receiver is ours, kept for those to come.
            if sender.receiver_count() <= 1 && before.is_some() {
                let mut watched = self.live.0.lock().unwrap_or_else(PoisonError::into_inner);
                if sender.receiver_count() <= 1 {
                    *watched = None;
                    return;
                }
            }
            match self.look().await {
                Ok(now) => {
                    if let Some(before) = &before {
                        let looks = (&before.activity, &now.activity);
                        let moment = Moment::between(crate::system::now(), now.at - before.at, looks, &now.pools);
                        sender.send_replace(Some(Ok(Arc::new(moment))));
                    }
                    before = Some(now);
                }
                Err(refusal) => {
                    sender.send_replace(Some(Err(refusal)));
                    return;
                }
            }
        }
    }
}

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
