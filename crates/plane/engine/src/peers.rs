//! Calls between the shards of one layer: a mailbox for each shard, and calls that return a result.
//!
//! Used by the engine and by each front end for its own state on the shards. Messages of one set of mailboxes keep
//! their order; there is no order between two sets.

use shard::World;
use shard::mailbox::{self, Receiver, Sender};
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};

/// Closure that runs on another shard with access to the state there.
pub type Job<S> = Box<dyn FnOnce(Rc<S>) + Send>;

/// State of a layer that lives on each shard and runs the jobs sent to it.
pub trait ShardState<W: World>: Sized + 'static {
    /// World of the shard.
    fn world(&self) -> &W;
}

/// Mailboxes of all shards, by shard index. A clone is cheap and refers to the same mailboxes.
pub struct Peers<M>(Vec<Sender<M>>);

impl<M> Clone for Peers<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Send + 'static> Peers<M> {
    /// Creates mailboxes for `shards` shards, with the receiving ends by shard index.
    pub fn new(shards: usize) -> (Self, Vec<Receiver<M>>) {
        let (senders, inboxes) = (0..shards).map(|_| mailbox::channel()).unzip();
        (Self(senders), inboxes)
    }

    /// Puts `message` into the mailbox of the shard `home`. Messages are received in the order in which they were
    /// posted.
    pub fn post(&self, home: usize, message: M) {
        assert!(home < self.0.len(), "a home is one of the shards");
        // A shard whose mailbox is closed has stopped, and the daemon is stopping with it.
        let _ = self.0[home].send(message);
    }

    /// Runs `work` on the shard `home` and returns its result; `None` when that shard has stopped.
    pub async fn call<W, S, R, F>(&self, home: usize, work: impl FnOnce(Rc<S>) -> F + Send + 'static) -> Option<R>
    where
        W: World,
        S: ShardState<W>,
        M: From<Job<S>>,
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        // The channel closes without a message if the other shard has stopped.
        let (post, inbox) = mailbox::channel();
        let job: Job<S> = Box::new(move |resident: Rc<S>| {
            // The first poll happens while the message is received, so calls start in the order of their messages.
            begin(resident.clone().world(), async move {
                // The send fails only if the caller was dropped; the work is done all the same.
                let _ = post.send(work(resident).await);
            });
        });
        self.post(home, job.into());
        inbox.receive().await
    }
}

/// Runs `work` on this shard, with its first poll before this returns.
///
/// Commands enter the task set of their unit, and task management functions find them there, in the order in which
/// their messages came. That order must not depend on the order in which the executor runs tasks.
pub fn begin<W: World>(world: &W, work: impl Future<Output = ()> + 'static) {
    let mut work = Box::pin(work);
    // A no-op waker is safe here: the spawned task polls the future again with its own waker.
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        world.spawn(work);
    }
}
