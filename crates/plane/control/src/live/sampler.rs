//! Sampling task of the live rates, which runs while any client watches.

use super::{LatestRates, Live, LiveRates, RateSubscription, SAMPLE_INTERVAL};
use model::{Activity, Order, PoolReport, Refusal};
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// One sample of the counters.
struct CounterSample {
    at: Instant,
    activity: Activity,
    pools: Vec<PoolReport>,
}

impl Live {
    /// Subscribes to the rates. The first arrive after [`SAMPLE_INTERVAL`], or immediately while another client
    /// watches.
    #[must_use]
    pub fn watch(self: &Arc<Self>) -> RateSubscription {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        // An error means that the task has ended and dropped its sender.
        if let Some(receiver) = watched.as_ref().filter(|receiver| receiver.has_changed().is_ok()) {
            let mut receiver = receiver.clone();
            // The latest rates count as unseen, so the new client gets them immediately.
            receiver.mark_changed();
            return RateSubscription(receiver);
        }
        let (sender, receiver) = watch::channel(None);
        // Under the lock, so that two clients never start two tasks.
        tokio::spawn(self.clone().run_sampler(sender));
        *watched = Some(receiver.clone());
        RateSubscription(receiver)
    }

    /// Returns the counters since the start, which only grow.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn activity(&self) -> Result<Activity, Refusal> {
        self.core.engine.activity(Order::Activity).await
    }

    async fn sample(&self) -> Result<CounterSample, Refusal> {
        let activity = self.activity().await?;
        let pools = self.core.engine.pools(Order::Pools).await?;
        Ok(CounterSample { at: Instant::now(), activity, pools })
    }

    /// Samples every second until no client watches any more.
    async fn run_sampler(self: Arc<Self>, sender: watch::Sender<LatestRates>) {
        let mut ticks = interval(SAMPLE_INTERVAL);
        // A late sample shifts the following ones; catching up would divide by intervals that are too short.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = self.core.stopping.subscribe();
        let mut before: Option<CounterSample> = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = crate::system::stopped(&mut stopping) => return,
            }
            // One receiver is held by `Live` for later clients.
            if sender.receiver_count() <= 1 && before.is_some() {
                let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
                // Checked again under the lock: `watch` clones the receiver under it, so no client subscribes
                // to a task that ends.
                if sender.receiver_count() <= 1 {
                    *watched = None;
                    return;
                }
            }
            match self.sample().await {
                Ok(now) => {
                    // The first sample has no predecessor, so nothing is sent yet.
                    if let Some(before) = &before {
                        let looks = (&before.activity, &now.activity);
                        let moment = LiveRates::between(crate::system::now(), now.at - before.at, looks, &now.pools);
                        sender.send_replace(Some(Ok(Arc::new(moment))));
                    }
                    before = Some(now);
                }
                Err(refusal) => {
                    // The client sees the error, and the next `watch` starts a new task.
                    sender.send_replace(Some(Err(refusal)));
                    return;
                }
            }
        }
    }
}
