//! How the shards of one layer speak to each other: a mailbox for each, and calls that come back.

use shard::World;
use shard::mailbox::{self, Receiver, Sender};
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};

/// Work for the resident of another shard.
pub type Job<S> = Box<dyn FnOnce(Rc<S>) + Send>;

/// What lives on each shard and takes jobs.
pub trait Resident<W: World>: Sized + 'static {
    /// The world of its shard.
    fn world(&self) -> &W;
}

/// The mailboxes of all shards, in the order of their indices. Cheap to clone, the same mailboxes everywhere.
pub struct Peers<M>(Vec<Sender<M>>);

impl<M> Clone for Peers<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Send + 'static> Peers<M> {
    /// Mailboxes for so many shards, with the ends that the shards read.
    pub fn new(shards: usize) -> (Self, Vec<Receiver<M>>) {
        let (senders, inboxes) = (0..shards).map(|_| mailbox::channel()).unzip();
        (Self(senders), inboxes)
    }

    /// Puts `message` into the mailbox of the shard `home`. What is put there first is read first.
    pub fn post(&self, home: usize, message: M) {
        assert!(home < self.0.len(), "a home is one of the shards");
        // A shard whose mailbox is closed has stopped, and the daemon is stopping with it.
        let _ = self.0[home].send(message);
    }

    /// Runs `work` on the shard `home` and returns what it gives; `None` when that shard has stopped.
    pub async fn call<W, S, R, F>(&self, home: usize, work: impl FnOnce(Rc<S>) -> F + Send + 'static) -> Option<R>
    where
        W: World,
        S: Resident<W>,
        M: From<Job<S>>,
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let (post, inbox) = mailbox::channel();
        let job: Job<S> = Box::new(move |resident: Rc<S>| {
            begin(resident.clone().world(), async move {
                // Nobody waits for the answer any more when this fails; the work is done all the same.
                let _ = post.send(work(resident).await);
            });
        });
        self.post(home, job.into());
        inbox.receive().await
    }
}

/// Runs `work` on this shard; its first step is done when this returns.
///
/// Commands enter the task set of their unit, and functions find them there, in the order in which their
/// messages came: that must not hang on the order in which tasks are run.
pub fn begin<W: World>(world: &W, work: impl Future<Output = ()> + 'static) {
    let mut work = Box::pin(work);
    // The task polls it again, with a waker that is its own.
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        world.spawn(work);
    }
}
