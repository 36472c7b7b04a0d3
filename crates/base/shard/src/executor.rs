//! Executor of one shard: runs woken tasks in order of waking, or in an order that a simulator chooses.
//!
//! Called by the reactors of `uring` and `sim` only. A task runs on the thread of its executor and is never migrated.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Executor for the tasks of one shard, on the thread that created it. Cheap to clone.
#[derive(Clone)]
pub struct Executor(Rc<Inner>);

struct Inner {
    tasks: RefCell<Tasks>,
    ready: Arc<ReadyQueue>,
}

#[derive(Default)]
struct Tasks {
    places: Vec<Option<Task>>,
    free: Vec<usize>,
    /// Number of calls of `clear`. A task that was running during one belongs to an earlier life and is not put back.
    life: u64,
}

struct Task {
    /// `None` while the task runs.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    waker: Arc<TaskWaker>,
}

/// Ends the sleep of a shard's reactor. Called from any thread, only while the shard has announced that it sleeps.
pub type Unpark = Box<dyn Fn() + Send + Sync>;

struct ReadyQueue {
    /// Indexes of woken tasks. Only mailboxes push from other threads, so the lock is almost never contended.
    woken: Mutex<VecDeque<usize>>,
    sleeping: AtomicBool,
    unpark: Unpark,
}

struct TaskWaker {
    place: usize,
    queued: AtomicBool,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // `queued` keeps a task at most once in the queue, so its length is bounded by the number of tasks.
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.woken.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.place);
            // Pushed before `sleeping` is read, while `announce_sleep` stores before it looks at the queue (both
            // `SeqCst`): one of the two sides sees the other, so no wake is lost.
            if self.ready.sleeping.load(Ordering::SeqCst) {
                (self.ready.unpark)();
            }
        }
    }
}

impl Executor {
    /// Returns an executor without tasks; `unpark` wakes its reactor.
    #[must_use]
    pub fn new(unpark: Unpark) -> Self {
        let ready = ReadyQueue { woken: Mutex::default(), sleeping: AtomicBool::new(false), unpark };
        Self(Rc::new(Inner { tasks: RefCell::default(), ready: Arc::new(ready) }))
    }

    /// Runs `future` from the next turn on, until it is ready.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(future);
        let waker = {
            let mut tasks = self.0.tasks.borrow_mut();
            // Slots are reused, so the table is as long as the largest number of tasks so far.
            let place = tasks.free.pop().unwrap_or_else(|| {
                tasks.places.push(None);
                tasks.places.len() - 1
            });
            let ready = self.0.ready.clone();
            let waker = Arc::new(TaskWaker { place, queued: AtomicBool::new(false), ready });
            tasks.places[place] = Some(Task { future: Some(future), waker: waker.clone() });
            waker
        };
        // A new task starts as a woken one, so its first poll is in the order of spawning.
        waker.wake();
    }

    /// True when a woken task is waiting to run.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.woken().is_empty()
    }

    /// Number of tasks that have not finished.
    #[must_use]
    pub fn task_count(&self) -> usize {
        let tasks = self.0.tasks.borrow();
        tasks.places.len() - tasks.free.len()
    }

    /// Number of woken tasks that wait to run.
    #[must_use]
    pub fn ready_count(&self) -> usize {
        self.woken().len()
    }

    /// Drops every task, including those that dropped tasks spawn. A task that calls this itself is dropped when its
    /// turn ends.
    pub fn clear(&self) {
        // Destructors may spawn new tasks, so this repeats until none are left.
        loop {
            let dropped = {
                let mut tasks = self.0.tasks.borrow_mut();
                // The queue refers to slots that are about to disappear.
                self.woken().clear();
                // A task that is running compares `life` after its poll.
                tasks.life += 1;
                tasks.free.clear();
                // Dropped outside of the borrow: destructors may spawn tasks, or wake them.
                std::mem::take(&mut tasks.places)
            };
            if dropped.is_empty() {
                return;
            }
        }
    }

    /// Runs the tasks that are woken now, in the order of waking. Tasks woken by them run in the next turn.
    pub fn run_ready(&self) {
        // The length is taken once: a task that wakes itself cannot keep the reactor from timers and I/O.
        let turn = self.woken().len();
        for _ in 0..turn {
            // Fewer than counted where a task of this turn has called `clear`.
            let Some(place) = self.woken().pop_front() else { return };
            self.run(place);
        }
    }

    /// Runs one woken task, the one at index `choose(count)`. Returns false when no task is woken.
    pub fn run_one(&self, choose: impl FnOnce(usize) -> usize) -> bool {
        let place = {
            let mut woken = self.woken();
            if woken.is_empty() {
                return false;
            }
            // The queue is locked while `choose` runs, so it must not wake a task.
            let at = choose(woken.len());
            woken.remove(at).expect("the choice is below the count")
        };
        self.run(place);
        true
    }

    /// Announces that the reactor is about to sleep: from now on a wake calls `unpark`. Returns false, without the
    /// announcement, when a task is ready.
    pub fn announce_sleep(&self) -> bool {
        // Stored before the check: a wake in between sees it and unparks the thread.
        self.0.ready.sleeping.store(true, Ordering::SeqCst);
        if self.is_ready() {
            self.announce_awake();
            return false;
        }
        true
    }

    /// Announces that the reactor is awake again.
    pub fn announce_awake(&self) {
        // A wake that has seen the announcement may still unpark: that ends one later sleep early, and loses nothing.
        self.0.ready.sleeping.store(false, Ordering::SeqCst);
    }

    fn woken(&self) -> std::sync::MutexGuard<'_, VecDeque<usize>> {
        // Each change of the queue is one call, so a panic elsewhere leaves it valid.
        self.0.ready.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, place: usize) {
        let (mut future, shared, life) = {
            let mut tasks = self.0.tasks.borrow_mut();
            let life = tasks.life;
            // A waker of an earlier life may refer to a slot that no longer exists.
            let Some(task) = tasks.places.get_mut(place).and_then(Option::as_mut) else { return };
            // Cleared before the poll: a wake during it queues the task again.
            // `Release` suffices: data of other threads arrives under the lock of a mailbox, which orders both sides.
            task.waker.queued.store(false, Ordering::Release);
            let Some(future) = task.future.take() else { return };
            (future, task.waker.clone(), life)
        };
        let waker = Waker::from(shared);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        // The task called `clear`: its slot is gone, or belongs to another task.
        if self.0.tasks.borrow().life != life {
            return;
        }
        match polled {
            Poll::Pending => {
                let mut tasks = self.0.tasks.borrow_mut();
                tasks.places[place].as_mut().expect("a running task keeps its place").future = Some(future);
            }
            Poll::Ready(()) => {
                let ended = {
                    let mut tasks = self.0.tasks.borrow_mut();
                    // Free before the destructors run: a task that they spawn may take the slot.
                    tasks.free.push(place);
                    tasks.places[place].take()
                };
                // Dropped after the borrow has ended: destructors of the task may use the executor.
                drop(future);
                drop(ended);
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Tasks may hold the executor; the cycle is broken while it is still intact.
        let places = std::mem::take(&mut self.tasks.borrow_mut().places);
        drop(places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn executor_runs_woken_tasks_in_order_and_reuses_places() {
        let executor = Executor::new(Box::new(|| {}));
        let log = Rc::new(RefCell::new(Vec::new()));
        for n in 0..3 {
            let log = log.clone();
            executor.spawn(async move { log.borrow_mut().push(n) });
        }
        executor.run_ready();
        assert_eq!(*log.borrow(), [0, 1, 2]);
        assert_eq!(executor.task_count(), 0);
        assert!(!executor.is_ready());
    }

    #[test]
    fn executor_task_that_wakes_itself_runs_in_the_next_turn() {
        let executor = Executor::new(Box::new(|| {}));
        let polls = Rc::new(Cell::new(0));
        let count = polls.clone();
        executor.spawn(std::future::poll_fn(move |cx| {
            count.set(count.get() + 1);
            cx.waker().wake_by_ref();
            if count.get() < 3 { Poll::Pending } else { Poll::Ready(()) }
        }));
        executor.run_ready();
        assert_eq!(polls.get(), 1);
        executor.run_ready();
        executor.run_ready();
        assert_eq!((polls.get(), executor.task_count()), (3, 0));
        executor.run_ready();
    }

    #[test]
    fn executor_clear_drops_every_task_also_the_one_that_asks_for_it() {
        let executor = Executor::new(Box::new(|| {}));
        let dropped = Rc::new(Cell::new(0));
        struct Count(Rc<Cell<u32>>);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        for _ in 0..2 {
            let guard = Count(dropped.clone());
            executor.spawn(async move {
                std::future::pending::<()>().await;
                drop(guard);
            });
        }
        let (own, guard) = (executor.clone(), Count(dropped.clone()));
        executor.spawn(async move {
            own.clear();
            own.spawn(async {});
            std::future::pending::<()>().await;
            drop(guard);
        });
        executor.run_ready();
        assert_eq!((dropped.get(), executor.task_count()), (3, 1), "only what was spawned after is left");
        executor.run_ready();
        assert_eq!(executor.task_count(), 0);
    }

    #[test]
    fn executor_wake_from_another_thread_ends_the_sleep() {
        let (tell, told) = std::sync::mpsc::channel();
        let executor = Executor::new(Box::new(move || tell.send(()).expect("the test listens")));
        let (post, inbox) = crate::mailbox::channel();
        let seen = Rc::new(Cell::new(0));
        let see = seen.clone();
        executor.spawn(async move { see.set(inbox.receive().await.expect("a letter is sent")) });
        executor.run_ready();
        assert!(executor.announce_sleep());
        std::thread::spawn(move || post.send(7)).join().expect("the sender ends").expect("the inbox lives");
        told.recv_timeout(std::time::Duration::from_secs(10)).expect("the wake calls unpark");
        assert!(!executor.announce_sleep(), "a shard with a ready task must not sleep");
        executor.run_ready();
        assert_eq!(seen.get(), 7);
    }
}
