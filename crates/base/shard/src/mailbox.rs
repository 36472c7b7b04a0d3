//! The only way between two shards, and between the planes: a queue with one receiver.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A new mailbox: any number of senders on any thread, one receiver.
///
/// It has no bound of its own: what may be under way is bounded by the command slots of the senders.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Mutex::new(Queue { letters: VecDeque::new(), waker: None, senders: 1, open: true }));
    (Sender(shared.clone()), Receiver(shared))
}

struct Queue<T> {
    letters: VecDeque<T>,
    waker: Option<Waker>,
    senders: usize,
    open: bool,
}

fn lock<T>(queue: &Mutex<Queue<T>>) -> MutexGuard<'_, Queue<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts letters in.
pub struct Sender<T>(Arc<Mutex<Queue<T>>>);

/// Takes letters out, in order.
pub struct Receiver<T>(Arc<Mutex<Queue<T>>>);

impl<T> Sender<T> {
    /// Puts a letter in and wakes the receiver.
    ///
    /// *Errors*: the letter itself, when the receiver is gone.
    pub fn send(&self, letter: T) -> Result<(), T> {
        let waker = {
            let mut queue = lock(&self.0);
            if !queue.open {
                return Err(letter);
            }
            queue.letters.push_back(letter);
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
            if queue.senders == 0 { queue.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// The next letter, or `None` once it is empty and every sender is gone.
    pub async fn receive(&self) -> Option<T> {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// The next letter, if there is one; else the task is woken when one comes.
    pub fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut queue = lock(&self.0);
        match queue.letters.pop_front() {
            Some(letter) => Poll::Ready(Some(letter)),
            None if queue.senders == 0 => Poll::Ready(None),
            None => {
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
            queue.open = false;
            std::mem::take(&mut queue.letters)
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
