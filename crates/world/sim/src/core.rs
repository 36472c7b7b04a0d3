//! Shared state of all nodes of a simulated world: clock, event queue, scheduler, random streams.

use crate::disk::DiskState;
use crate::net::Net;
use crate::random::Random;
use crate::trace::Trace;
use shard::time::Timers;
use shard::{Executor, Time};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// Default limit on the virtual time of a run; a longer one counts as hung.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Scheduled event.
pub(crate) type Event = Box<dyn FnOnce(&Rc<Core>)>;

/// Disks by machine and path.
pub(crate) type Disks = BTreeMap<(usize, String), Rc<RefCell<DiskState>>>;

/// One simulated world.
pub(crate) struct Core {
    pub seed: u64,
    pub now: Cell<Time>,
    pub nodes: RefCell<Vec<Rc<Node>>>,
    pub net: RefCell<Net>,
    pub disks: RefCell<Disks>,
    pub entropy: RefCell<Random>,
    pub time_limit: Cell<Duration>,
    schedule: RefCell<Random>,
    events: RefCell<Events>,
    trace: RefCell<Trace>,
}

/// Simulated machine: tasks that end together.
pub(crate) struct Node {
    pub id: usize,
    pub addresses: RefCell<Vec<IpAddr>>,
    pub executor: Executor,
    pub timers: Timers,
    /// False from a power cut until the machine is booted.
    pub is_up: Cell<bool>,
}

#[derive(Default)]
struct Events {
    // The number keeps events of the same instant in the order in which they were scheduled.
    queue: BTreeMap<(Time, u64), Event>,
    next_id: u64,
}

impl Core {
    pub(crate) fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self {
            seed,
            now: Cell::default(),
            nodes: RefCell::default(),
            // One random stream per concern: a change in one of them does not shift the others for the same seed.
            net: RefCell::new(Net::new(Random::new(seed, "network"))),
            disks: RefCell::default(),
            entropy: RefCell::new(Random::new(seed, "entropy")),
            time_limit: Cell::new(TIME_LIMIT),
            schedule: RefCell::new(Random::new(seed, "schedule")),
            events: RefCell::default(),
            trace: RefCell::new(Trace::new()),
        })
    }

    /// Adds a machine with `address`.
    pub(crate) fn add_node(&self, address: IpAddr) -> Rc<Node> {
        let mut nodes = self.nodes.borrow_mut();
        let taken = nodes.iter().any(|node| node.addresses.borrow().contains(&address));
        assert!(!taken, "the address {address} is another node's");
        let node = Rc::new(Node {
            id: nodes.len(),
            addresses: RefCell::new(vec![address]),
            // One thread drives all nodes: nothing has to be unparked.
            executor: Executor::new(Box::new(|| {})),
            timers: Timers::default(),
            is_up: Cell::new(true),
        });
        nodes.push(node.clone());
        node
    }

    /// Schedules `event` at `at`.
    pub(crate) fn schedule(&self, at: Time, event: Event) {
        let mut events = self.events.borrow_mut();
        events.next_id += 1;
        let id = events.next_id;
        events.queue.insert((at, id), event);
    }

    /// Appends to the trace.
    pub(crate) fn record(&self, what: &'static str, who: u64, detail: u64) {
        self.trace.borrow_mut().record(self.now.get(), what, who, detail);
    }

    pub(crate) fn digest(&self) -> u64 {
        self.trace.borrow().digest()
    }

    /// Runs the world until `is_over`.
    ///
    /// *Panics*: when nothing can happen any more (deadlock), or the time limit has passed.
    pub(crate) fn drive(self: &Rc<Self>, is_over: impl Fn() -> bool) {
        while !is_over() {
            self.happen();
            // One task per turn, chosen among the ready tasks of all nodes. The clock jumps only when none is ready.
            // The task may just have ended the run; with nothing left to happen, `advance` would report a deadlock.
            if !self.run_a_task() && !is_over() {
                self.advance();
            }
        }
    }

    /// Runs all events and fires all timers that are due.
    fn happen(self: &Rc<Self>) {
        let now = self.now.get();
        loop {
            // Taken out of the queue first: an event may schedule others, also for now.
            let event = {
                let mut events = self.events.borrow_mut();
                match events.queue.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => break,
                }
            };
            event(self);
        }
        // Firing only queues tasks: nothing runs, and adds a node, while the nodes are borrowed.
        for node in self.nodes.borrow().iter() {
            node.timers.fire(now);
        }
    }

    /// Runs one ready task of any node, chosen by the seed; returns false when there is none.
    fn run_a_task(&self) -> bool {
        // A clone: the task may add a machine.
        let nodes = self.nodes.borrow().clone();
        let ready: usize = nodes.iter().map(|node| node.executor.ready_count()).sum();
        if ready == 0 {
            return false;
        }
        // One draw over the tasks of all nodes: each has the same chance, whichever node it is on.
        let mut choice = self.schedule.borrow_mut().index(ready);
        for node in &nodes {
            let here = node.executor.ready_count();
            if choice < here {
                self.record("run", node.id as u64, choice as u64);
                node.executor.run_one(|_| choice);
                break;
            }
            choice -= here;
        }
        // A task's turn takes time, too, so that a task that is always ready cannot stop the clock.
        let spent = self.schedule.borrow_mut().below(2_000);
        self.set_now(self.now.get() + Duration::from_nanos(spent));
        true
    }

    /// Advances the clock to the next timer or event.
    fn advance(&self) {
        let timers = self.nodes.borrow().iter().filter_map(|node| node.timers.next()).min();
        let event = self.events.borrow().queue.keys().next().map(|&(at, _)| at);
        match timers.into_iter().chain(event).min() {
            // Turns of tasks may have moved the clock past the due time already.
            Some(next) => self.set_now(self.now.get().max(next)),
            None => panic!("deadlock: no task is ready, no timer and no event is due\n{}", self.report()),
        }
    }

    fn set_now(&self, now: Time) {
        // Checked at every step of the clock, so that tasks that wake each other without end are found as well.
        if now.since(Time::default()) > self.time_limit.get() {
            panic!("the run is not over after {:?} of its time\n{}", self.time_limit.get(), self.report());
        }
        self.now.set(now);
    }

    /// Describes the state of the world for a panic message.
    pub(crate) fn report(&self) -> String {
        let mut report = format!("seed {}, {} ns into the run\n", self.seed, self.now.get().0);
        for node in self.nodes.borrow().iter() {
            let (tasks, addresses) = (node.executor.task_count(), node.addresses.borrow());
            report += &format!("node {} {addresses:?}: {tasks} tasks wait\n", node.id);
        }
        report + &self.trace.borrow().to_string()
    }

    /// Drops all tasks and events: they hold the world, which holds them.
    pub(crate) fn end(&self) {
        for node in self.nodes.borrow().clone() {
            // Before the events: destructors of tasks close sockets, which schedules more.
            node.executor.clear();
        }
        // Dropped outside of the borrow: destructors may schedule events.
        let events = std::mem::take(&mut *self.events.borrow_mut());
        drop(events);
    }
}
