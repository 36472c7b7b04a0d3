//! Mailboxes: queues with one receiver, the only channel between two shards and between the planes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Creates a mailbox: any number of senders on any thread, one receiver.
///
/// The queue itself is unbounded; messages in flight are bounded by the command slots of the senders.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Mutex::new(Queue { messages: VecDeque::new(), waker: None, senders: 1, open: true }));
    (Sender(shared.clone()), Receiver(shared))
}

struct Queue<T> {
    messages: VecDeque<T>,
    waker: Option<Waker>,
    senders: usize,
    open: bool,
}

fn lock<T>(queue: &Mutex<Queue<T>>) -> MutexGuard<'_, Queue<T>> {
    // Every step leaves the queue valid, so a lock that a panic has poisoned is usable.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sending end.
pub struct Sender<T>(Arc<Mutex<Queue<T>>>);

/// Receiving end; messages arrive in order.
pub struct Receiver<T>(Arc<Mutex<Queue<T>>>);

impl<T> Sender<T> {
    /// Appends a message and wakes the receiver.
    ///
    /// *Errors*: returns the message when the receiver was dropped.
    pub fn send(&self, letter: T) -> Result<(), T> {
        // The waker is called after the lock is released: it takes the lock of the executor's queue.
        let waker = {
            let mut queue = lock(&self.0);
            if !queue.open {
                return Err(letter);
            }
            queue.messages.push_back(letter);
            // Taken, not cloned: the receiver registers again when the queue is empty, so one wake serves all messages.
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        lock(&self.0).senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut queue = lock(&self.0);
            queue.senders -= 1;
            // The receiver has to learn that no further message can come.
            if queue.senders == 0 { queue.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// Receives the next message; `None` once the mailbox is empty and every sender was dropped.
    pub async fn receive(&self) -> Option<T> {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// Takes the next message if there is one; otherwise the task is woken when one arrives.
    pub fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut queue = lock(&self.0);
        // Messages sent before the last sender was dropped are still delivered.
        match queue.messages.pop_front() {
            Some(letter) => Poll::Ready(Some(letter)),
            None if queue.senders == 0 => Poll::Ready(None),
            None => {
                // Registered under the lock: a sender that pushes from now on finds the waker.
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let letters = {
            let mut queue = lock(&self.0);
            // Closed under the same lock: no message can be queued behind those that are dropped here.
            queue.open = false;
            // Messages are dropped outside of the lock: they may hold senders of this mailbox.
            std::mem::take(&mut queue.messages)
        };
        drop(letters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn mailbox_keeps_order_and_ends_with_its_senders() {
        let (post, inbox) = channel();
        let second = post.clone();
        post.send(1).expect("open");
        second.send(2).expect("open");
        drop(post);
        assert_eq!(inbox.receive().now_or_never(), Some(Some(1)));
        assert_eq!(inbox.receive().now_or_never(), Some(Some(2)));
        assert_eq!(inbox.receive().now_or_never(), None);
        drop(second);
        assert_eq!(inbox.receive().now_or_never(), Some(None));
    }

    #[test]
    fn mailbox_without_receiver_returns_the_letter() {
        let (post, inbox) = channel();
        drop(inbox);
        assert_eq!(post.send(5), Err(5));
    }
}
