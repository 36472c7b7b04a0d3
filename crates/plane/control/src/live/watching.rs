//! Looking for everybody who watches: one task, as long as somebody does.

use super::{LOOK, Live, Moment, Told, Watching};
use model::{Activity, Order, PoolReport, Refusal};
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// What was done up to an instant.
struct Look {
    at: Instant,
    activity: Activity,
    pools: Vec<PoolReport>,
}

impl Live {
    /// Watches from now on; the first moment comes after [`LOOK`], or at once when others watch too.
    #[must_use]
    pub fn watch(self: &Arc<Self>) -> Watching {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.core.engine.activity(Order::Activity).await
    }

    async fn look(&self) -> Result<Look, Refusal> {
        let activity = self.activity().await?;
        let pools = self.core.engine.pools(Order::Pools).await?;
        Ok(Look { at: Instant::now(), activity, pools })
    }

    /// Looks every second until nobody watches any more.
    async fn look_on(self: Arc<Self>, sender: watch::Sender<Told>) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = self.core.stopping.subscribe();
        let mut before: Option<Look> = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = crate::system::stopped(&mut stopping) => return,
            }
            // One receiver is ours, kept for those to come.
            if sender.receiver_count() <= 1 && before.is_some() {
                let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
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
