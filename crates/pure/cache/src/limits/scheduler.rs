//! Scheduler: start-time fair queueing among volumes, with guaranteed rates first (as in mClock).
//!
//! At most `depth` commands are in flight below. The others wait and go in the order of virtual time: each command
//! starts where its volume's previous one ended, or now, and lasts its bytes divided by the priority. So an idle
//! volume saves up nothing, and a flooding one only lengthens its own queue. A volume behind its guaranteed rate goes
//! before all others.

use crate::Runtime;
use crate::policy::Limits;
use shard::Signal;
use shard::Time;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Fixed cost of a command, in bytes, added to its length.
const COMMAND_BYTES: u64 = 4096;
/// Virtual time per byte at priority 1.
const SCALE: u128 = 1 << 16;

/// Scheduler of all volumes of a shard. Cheap to clone.
#[derive(Clone)]
pub struct Scheduler<R: Runtime>(Rc<Shared<R>>);

struct Shared<R> {
    runtime: R,
    queues: RefCell<Queues>,
}

#[derive(Default)]
struct Queues {
    depth: usize,
    under_way: usize,
    waiting: usize,
    /// Virtual start time of the command that went last; it never ends, even at 2^64 bytes of priority 1.
    now: u128,
    flows: Vec<Option<Flow>>,
}

/// Queue of one volume.
#[derive(Default)]
struct Flow {
    priority: u64,
    /// Interval between two commands at the guaranteed rate; zero without a guarantee.
    reserve: Duration,
    /// Virtual end time of its newest command.
    end: u128,
    /// Time at which the next command of the guaranteed rate is due.
    due: Time,
    queue: VecDeque<Rc<WaitingCommand>>,
}

/// Command that waits.
struct WaitingCommand {
    cost: u64,
    granted: Cell<bool>,
    signal: Signal,
}

/// Slot of a command that is in flight below, or waits to be; released on drop.
pub(super) struct Slot<R: Runtime> {
    scheduler: Scheduler<R>,
    flow: usize,
    command: Option<Rc<WaitingCommand>>,
}

impl<R: Runtime> Drop for Slot<R> {
    fn drop(&mut self) {
        let mut queues = self.scheduler.0.queues.borrow_mut();
        // Dropped before its turn, it still stands in the queue and occupies no slot.
        let waits = self.command.as_ref().filter(|command| !command.granted.get());
        match waits {
            Some(command) => queues.withdraw(self.flow, command),
            None => {
                assert!(queues.under_way > 0, "a command that ends was under way");
                queues.under_way -= 1;
            }
        }
        // A freed slot goes to the next command at once.
        queues.dispatch(&self.scheduler.0.runtime);
    }
}

impl<R: Runtime> Scheduler<R> {
    /// Creates a scheduler with at most `depth` commands in flight below; 0 disables it.
    pub fn new(runtime: R, depth: usize) -> Self {
        let queues = RefCell::new(Queues { depth, ..Queues::default() });
        Self(Rc::new(Shared { runtime, queues }))
    }

    /// Changes the maximum of commands in flight.
    pub fn set_depth(&self, depth: usize) {
        let mut queues = self.0.queues.borrow_mut();
        queues.depth = depth;
        // A larger depth, or 0, admits commands that wait now.
        queues.dispatch(&self.0.runtime);
    }

    /// True when commands are scheduled at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.0.queues.borrow().depth > 0
    }

    pub(super) fn join(&self, limits: &Limits) -> usize {
        let mut queues = self.0.queues.borrow_mut();
        // Places of volumes that have left are reused, so the list is as long as the most volumes at one time.
        let at = queues.flows.iter().position(Option::is_none).unwrap_or_else(|| {
            queues.flows.push(None);
            queues.flows.len() - 1
        });
        let now = queues.now;
        // A new volume starts at the current virtual time, with no claim on the past.
        queues.flows[at] = Some(Flow { end: now, ..Flow::default() });
        drop(queues);
        self.set_limits(at, limits);
        at
    }

    pub(super) fn leave(&self, flow: usize) {
        let left = self.0.queues.borrow_mut().flows[flow].take();
        assert!(
            left.is_some_and(|flow| flow.queue.is_empty()),
            "a volume leaves once, when none of its commands waits"
        );
    }

    pub(super) fn set_limits(&self, flow: usize, limits: &Limits) {
        let flow = &mut self.0.queues.borrow_mut().flows[flow];
        let flow = flow.as_mut().expect("a volume stays until it leaves");
        // Never zero: the cost of a command is divided by it.
        flow.priority = u64::from(limits.priority.max(1));
        let second = Duration::from_secs(1).as_nanos() as u64;
        // Without a guarantee the rate is 0, and so is the interval.
        flow.reserve = Duration::from_nanos(second.checked_div(limits.iops_min).unwrap_or(0));
    }

    /// Waits until a command of `bytes` may go below; `None` when scheduling is disabled.
    pub(super) async fn enter(&self, flow: usize, bytes: u64) -> Option<Slot<R>> {
        if !self.is_enabled() {
            return None;
        }
        let command = Rc::new(WaitingCommand {
            // With a fixed part: by bytes alone a flood of small commands would cost next to nothing.
            cost: bytes.saturating_add(COMMAND_BYTES),
            granted: Cell::new(false),
            signal: Signal::default(),
        });
        {
            let mut queues = self.0.queues.borrow_mut();
            let own = queues.flows[flow].as_mut().expect("a volume stays until it leaves");
            own.queue.push_back(command.clone());
            queues.waiting += 1;
            // Admits this command, too, where a slot is free.
            queues.dispatch(&self.0.runtime);
        }
        // Created before the wait, so that dropping the future withdraws the command.
        let slot = Slot { scheduler: self.clone(), flow, command: Some(command.clone()) };
        command.signal.wait(|| command.granted.get().then_some(())).await;
        Some(slot)
    }
}

impl Queues {
    /// Admits commands while slots are free.
    fn dispatch(&mut self, runtime: &impl Runtime) {
        // Depth 0 also admits commands that had queued under an earlier depth.
        while self.waiting > 0 && (self.depth == 0 || self.under_way < self.depth) {
            let Some(flow) = self.next_flow(runtime) else { return };
            let start = self.now;
            let flow = self.flows[flow].as_mut().expect("it was chosen just now");
            let Some(command) = flow.queue.pop_front() else { return };
            // A volume that was idle starts now, not where it had ended.
            let begin = start.max(flow.end);
            // Twice the priority, half the virtual time: twice the share.
            flow.end = begin + u128::from(command.cost) * SCALE / u128::from(flow.priority);
            self.now = start.max(begin);
            self.waiting -= 1;
            self.under_way += 1;
            let is_within = self.depth == 0 || self.under_way <= self.depth;
            assert!(is_within, "no more commands are under way than may be");
            command.granted.set(true);
            command.signal.raise();
        }
    }

    /// Chooses the next volume: one whose guaranteed rate is due, otherwise the one whose command starts first.
    fn next_flow(&mut self, runtime: &impl Runtime) -> Option<usize> {
        let waiting = || self.flows.iter().enumerate().filter_map(|(at, flow)| Some((at, flow.as_ref()?)));
        let waiting = || waiting().filter(|(_, flow)| !flow.queue.is_empty());
        // The clock is read only where a guarantee exists.
        if waiting().any(|(_, flow)| !flow.reserve.is_zero()) {
            let now = runtime.now();
            let due = waiting().filter(|(_, flow)| !flow.reserve.is_zero() && flow.due <= now);
            if let Some(at) = due.min_by_key(|(_, flow)| flow.due).map(|(at, _)| at) {
                let flow = self.flows[at].as_mut().expect("it was found just now");
                // An unused guarantee is not saved up, except for one command.
                flow.due = (flow.due + flow.reserve).max(Time(now.0.saturating_sub(flow.reserve.as_nanos() as u64)));
                return Some(at);
            }
        }
        // A volume that was idle starts now, so an early end is no advantage.
        waiting().min_by_key(|(_, flow)| flow.end.max(self.now)).map(|(at, _)| at)
    }

    fn withdraw(&mut self, flow: usize, command: &Rc<WaitingCommand>) {
        let Some(flow) = self.flows[flow].as_mut() else { return };
        let before = flow.queue.len();
        flow.queue.retain(|waiting| !Rc::ptr_eq(waiting, command));
        self.waiting -= before - flow.queue.len();
    }
}
