//! Engine and iSCSI front end on a simulated machine, for tests of the components that give orders to the engine.
//!
//! Clock, scheduler and network are those of [`sim`]. Disks are files of the host, so that a test can remove, overwrite
//! or copy them as an administrator would. A [`Testbed`] runs on a thread of its own and takes orders from any other
//! thread. Virtual time jumps ahead while an order is carried out and passes slowly otherwise, so an order takes no
//! real time except for its computation.
//!
//! Used only by the tests of `control`, `api` and `blockyard`.

mod hosts;
mod machine;

use engine::{Budget, Limits};
use iscsi_target::{Facts, conduct, shard_seeds};
use machine::Machine;
use model::{Access, Call, NodeId, NodeIdentity, Order, Report, Secret};
use shard::mailbox::{self, Receiver, Sender};
use shard::{StreamOptions, World};
use sim::Sim;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

pub use hosts::Hosts;
pub use shard::DiskFacts;

/// Virtual time between two polls for the answer to an order.
const STEP: Duration = Duration::from_micros(100);
/// Real time between two polls of an empty mailbox.
const IDLE: Duration = Duration::from_millis(1);

/// Point in time at which a test may take a crash image.
pub enum Instant<'a> {
    /// Before an order that changes something is given to the engine.
    Before(&'a Order),
    /// After the engine carried out or refused the order, before the sender has the answer.
    After(&'a Order),
    /// After a disk was flushed.
    Flush,
}

/// Callback at each [`Instant`], on the thread of the testbed.
pub type Watch = Arc<dyn Fn(Instant<'_>) + Send + Sync>;

/// Configuration of the machine. By default a disk has no properties beyond its file.
pub struct Testbed {
    /// Serial numbers, slots and locate lights of disks, by path.
    pub facts: BTreeMap<String, DiskFacts>,
    /// Simulated sessions and reservations.
    pub hosts: Hosts,
    /// Access table that was given to the engine last.
    pub access: Arc<Mutex<Access>>,
    /// Number of volume reports in all answers.
    pub volumes_read: Arc<AtomicUsize>,
    /// Callback at each instant, used to take crash images.
    pub watch: Option<Watch>,
    /// Virtual time that passes before each order, and per millisecond while there is none.
    pub pace: Duration,
    /// Throughput of a disk in bytes per second of virtual time.
    pub disk_bytes_per_second: u64,
    /// Number of further attempts to open a disk that fail because it is in use.
    pub busy: u32,
}

impl Default for Testbed {
    fn default() -> Self {
        Self {
            facts: BTreeMap::new(),
            hosts: Hosts::default(),
            access: Arc::default(),
            volumes_read: Arc::default(),
            watch: None,
            pace: Duration::from_millis(5),
            disk_bytes_per_second: 4 << 20,
            busy: 0,
        }
    }
}

impl Testbed {
    /// Starts the array. It runs until an order to stop is done or every sender is dropped; the thread ends soon after.
    ///
    /// *Panics*: when the system cannot start a thread; on the thread, when the simulation fails.
    #[must_use]
    pub fn start(self) -> (Sender<Call>, JoinHandle<()>) {
        /// Distinct per testbed and process, so that no two runs create the same identifiers.
        static SEED: AtomicU64 = AtomicU64::new(1);
        let (orders, inbox) = mailbox::channel();
        let seed = SEED.fetch_add(1, Ordering::Relaxed) ^ (u64::from(std::process::id()) << 32);
        let run = move || {
            let sim = Sim::new(seed);
            // No limit of virtual time: the testbed runs as long as its test does.
            sim.set_time_limit(Duration::MAX);
            sim.run(async move |sim| self.serve(&sim, &inbox).await);
        };
        let thread = std::thread::Builder::new().name("testbed".to_owned()).spawn(run);
        (orders, thread.expect("the system gives a thread"))
    }

    async fn serve(mut self, sim: &Sim, inbox: &Receiver<Call>) {
        let machine = Machine::new(sim, &mut self);
        let engine = start_engine(&machine);
        let hosts = Arc::new(Mutex::new(std::mem::take(&mut self.hosts)));
        let under_way = Arc::new(AtomicUsize::new(0));
        // A new order ends the wait in `next` at once.
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut has_stopped = false;
        while !has_stopped {
            let is_idle = under_way.load(Ordering::Acquire) == 0;
            match next(inbox, &waker, is_idle) {
                Poll::Ready(Some(call)) => {
                    // Virtual time passes between two orders, as between two commands of an administrator.
                    if is_idle {
                        sim.sleep(self.pace).await;
                    }
                    let stops = matches!(call.order, Order::Stop);
                    self.forward(call, &engine, &hosts, &under_way);
                    has_stopped = stops && self.settle(sim, &under_way).await;
                }
                Poll::Ready(None) => return,
                Poll::Pending if is_idle => sim.sleep(self.pace).await,
                Poll::Pending => sim.sleep(STEP).await,
            }
        }
    }

    /// Forwards the order to the engine, unless it concerns simulated sessions.
    fn forward(&self, call: Call, engine: &Sender<Call>, hosts: &Arc<Mutex<Hosts>>, under_way: &Arc<AtomicUsize>) {
        if let Some(answer) = lock(hosts).answer(&call.order) {
            call.answer(answer);
            return;
        }
        if let Order::SetAccess(access) = &call.order {
            lock(&self.access).clone_from(access);
        }
        // This order is answered when an event occurs; it must not keep the clock running at full speed.
        let counts = !matches!(call.order, Order::NextEvents);
        // Orders that only query change nothing that a crash image could show.
        let watch = self.watch.clone().filter(|_| !call.order.runs_concurrently());
        if let Some(watch) = &watch {
            watch(Instant::Before(&call.order));
        }
        let counter = under_way.clone();
        counter.fetch_add(usize::from(counts), Ordering::AcqRel);
        let Call { order, reply } = call;
        let (watched, hosts, volumes_read) = (order.clone(), hosts.clone(), self.volumes_read.clone());
        let inner = Call::new(order, move |mut answer| {
            if let Some(watch) = &watch {
                watch(Instant::After(&watched));
            }
            if let Ok(Report::Volumes(volumes)) = &mut answer {
                volumes_read.fetch_add(volumes.len(), Ordering::Relaxed);
                volumes.iter_mut().for_each(|volume| lock(&hosts).amend(volume));
            }
            reply(answer);
            // Only after the reply: the thread may end once the count is zero, and the sender must have its answer by
            // then.
            counter.fetch_sub(usize::from(counts), Ordering::AcqRel);
        });
        assert!(engine.send(inner).is_ok(), "the conductor runs until the order to stop");
    }

    /// Waits until every order is answered.
    async fn settle(&self, sim: &Sim, under_way: &AtomicUsize) -> bool {
        while under_way.load(Ordering::Acquire) > 0 {
            sim.sleep(STEP).await;
        }
        true
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic elsewhere must not hide its cause behind a poisoned lock.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the next order. While no order is under way, the thread waits briefly for one.
fn next(inbox: &Receiver<Call>, waker: &Waker, is_idle: bool) -> Poll<Option<Call>> {
    let mut context = Context::from_waker(waker);
    let first = inbox.poll_receive(&mut context);
    if first.is_pending() && is_idle {
        // Sleep in real time: an idle loop would otherwise advance virtual time as fast as the CPU allows.
        std::thread::park_timeout(IDLE);
        return inbox.poll_receive(&mut context);
    }
    first
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Starts one shard and its conductor.
fn start_engine(machine: &Machine) -> Sender<Call> {
    let limits = Limits::of(Budget { shards: 1, buffer_bytes: 1 << 40, cache_bytes: 8 << 20 });
    let ticket = shard_seeds::<Machine>(limits, &StreamOptions::default()).remove(0);
    let shard = ticket.start(machine.clone());
    let (orders, inbox) = mailbox::channel();
    // The sender is dropped at once: the addresses of this machine never change.
    let (_, address_changes) = mailbox::channel();
    let facts = Facts {
        io: "sim".to_owned(),
        node: NodeIdentity {
            id: NodeId::from_bytes([1; 16]),
            name: "node1".parse().expect("a name"),
            boot_instance: [1; 16],
            machine: None,
        },
        secret: Secret::new(vec![1; 32]).expect("a short secret"),
        addresses: Vec::new(),
        address_changes,
    };
    machine.spawn(conduct(shard, inbox, facts));
    orders
}

/// True for addresses at which listening fails (port 1); tests use it for a portal that cannot start.
#[must_use]
pub fn is_refused(address: SocketAddr) -> bool {
    address.port() == 1
}
