//! Environment of a scenario: a machine with disks that runs the data plane, a machine for the hosts, and a network.

use crate::daemon::Daemon;
use crate::host::traffic::{Host, SessionEnd, Shared, SpaceReports, Unit, WorkloadProfile};
use crate::oracle::Clock;
use crate::planted::BugState;
use crate::seeded_random::SeededRandom;
use crate::violation_log::ViolationLog;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use iscsi::chap::{Algorithm, Credential};
use iscsi::initiator::Config;
use iscsi::login::{InitiatorAuth, InitiatorConfig};
use iscsi::pdu::Isid;
use iscsi::{DigestOffer, IscsiName, Offer};
use model::{
    Access, Chap, ChapCredentials, Demand, DiskCounters, DiskName, GroupReport, Host as ModelHost, Initiators, Name,
    Order, PoolReport, Portal, PortalPolicy, Presentation, Refusal, Report, Secret, SessionReport, Target, VolumeId,
    VolumeName,
};
use shard::World;
use sim::{NetworkFaults, Sim};
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

const TARGET: &str = "iqn.2026-11.io.blockyard:simulated";
const HOST_SECRET: &[u8] = b"a secret of the host";
const TARGET_SECRET: &[u8] = b"a secret of the target";

const DIGESTS: [DigestOffer; 4] =
    [DigestOffer::Never, DigestOffer::Accepted, DigestOffer::Preferred, DigestOffer::Required];

/// Upper bound of the duration of a slow disk operation, and of a hang before the disk fails.
pub(crate) const DISK_PATIENCE: Duration = Duration::from_secs(5);

/// Time limit for old sessions to end and for disks to become idle after all activity has ended.
const QUIET_TIME_MAX: Duration = Duration::from_secs(3600);

/// Result with a violation in words.
pub(crate) type CheckResult<T> = Result<T, String>;

/// Machines of one run.
pub(crate) struct Stage {
    /// Machine of the hosts, on which the scenario itself runs.
    pub world: Sim,
    /// Machine with the disks.
    pub array: Sim,
    pub chance: SeededRandom,
    pub plant: Rc<BugState>,
    pub judge: ViolationLog,
    daemon: Rc<RefCell<Daemon>>,
    shards: usize,
    cache_bytes: u64,
    portals: Rc<Vec<SocketAddr>>,
    protection: Protection,
    /// Logical clock of all volumes of the run.
    pub clock: Clock,
    pub told: Rc<SpaceReports>,
    done: Rc<Cell<u64>>,
    lingering: Rc<Cell<u64>>,
    /// Number of stops and starts of the data plane.
    pub lives: Rc<Cell<u64>>,
    /// True while the data plane is down.
    pub is_dead: Rc<Cell<bool>>,
    /// Time limit of an order, where it is checked.
    orders_within: Cell<Option<Duration>>,
}

/// Authentication of hosts, the same for the whole run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protection {
    None,
    Chap,
    Mutual,
}

/// Volume that is mapped to the hosts.
#[derive(Clone)]
pub(crate) struct PresentedVolume {
    pub name: VolumeName,
    pub id: VolumeId,
    pub unit: Unit,
}

/// Running hosts.
pub(crate) struct Traffic {
    left: Rc<Cell<u64>>,
    running: Rc<Cell<usize>>,
}

impl Stage {
    /// Creates two machines on a network without faults, and a data plane without volumes.
    pub(crate) fn new(world: &Sim, judge: &ViolationLog, plant: &Rc<BugState>) -> Self {
        let chance = SeededRandom::of(world);
        // Two addresses with a portal each, so that the network can cut one path and leave the other.
        let addresses: [IpAddr; 2] = [[10, 0, 0, 2].into(), [10, 0, 1, 2].into()];
        let array = world.add_node(addresses[0]);
        array.add_address(addresses[1]);
        let shards = chance.count(1..=2);
        // A cache would hide the effect of a bug that is planted below it.
        let cache_bytes = if plant.alters_disks() { 0 } else { chance.pick(&[0, 256 << 10, 2 << 20, 64 << 20]) };
        let daemon = Daemon::start(&array, shards, cache_bytes, plant);
        let protection = match chance.below(4) {
            0 | 1 => Protection::None,
            2 => Protection::Chap,
            _ => Protection::Mutual,
        };
        Self {
            world: world.clone(),
            array,
            chance,
            plant: plant.clone(),
            judge: judge.clone(),
            daemon: Rc::new(RefCell::new(daemon)),
            shards,
            cache_bytes,
            portals: Rc::new(addresses.map(|address| SocketAddr::new(address, 3260)).to_vec()),
            protection,
            clock: Rc::new(Cell::new(1)),
            told: Rc::default(),
            done: Rc::default(),
            lingering: Rc::default(),
            lives: Rc::default(),
            is_dead: Rc::default(),
            orders_within: Cell::default(),
        }
    }

    /// Sets the time limit of orders.
    pub(crate) fn bound_orders(&self, most: Duration) {
        self.orders_within.set(Some(most));
    }

    /// Returns the number of commands that ended GOOD.
    pub(crate) fn done(&self) -> u64 {
        self.done.get()
    }

    /// Sends an order and returns the answer; a late answer fails the run.
    pub(crate) async fn ask(&self, order: Order) -> Result<Report, Refusal> {
        tracing::info!(at = self.world.now().0, "order {order:?}");
        // Not borrowed across the order: a restart replaces the data plane while the order waits.
        let daemon = self.daemon.borrow().clone();
        let Some(most) = self.orders_within.get() else { return daemon.order(order).await };
        let asked = format!("{order:?}");
        match select(pin!(daemon.order(order)), self.world.sleep(most)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((_, answer)) => {
                // The run has failed already; the scenario continues with the late answer.
                self.judge.fail(format!("an order has no answer after {most:?}: {asked}"));
                answer.await
            }
        }
    }

    /// Sends an order that the data plane has no reason to refuse.
    pub(crate) async fn order(&self, order: Order) -> CheckResult<Report> {
        let asked = format!("{order:?}");
        self.ask(order).await.map_err(|refusal| format!("refused: {refusal} ({}): {asked}", refusal.code))
    }

    /// Starts the data plane after a power failure or a kill.
    pub(crate) fn start_daemon(&self) {
        self.lives.set(self.lives.get() + 1);
        self.is_dead.set(false);
        *self.daemon.borrow_mut() = Daemon::start(&self.array, self.shards, self.cache_bytes, &self.plant);
    }

    /// Maps exactly `volumes` to the hosts, through every portal.
    pub(crate) async fn present(&self, volumes: &[PresentedVolume]) -> CheckResult<()> {
        self.order(Order::SetAccess(self.access(volumes))).await.map(drop)
    }

    /// Opens every portal.
    pub(crate) async fn open_portals(&self) -> CheckResult<()> {
        for &address in &*self.portals {
            self.order(Order::OpenPortal { address }).await?;
        }
        Ok(())
    }

    /// Starts hosts that send `commands` commands in all to `units`, each over one session at a time.
    pub(crate) fn start_hosts(&self, hosts: usize, commands: u64, units: &[Unit], habits: &WorkloadProfile) -> Traffic {
        let traffic = Traffic { left: Rc::new(Cell::new(commands)), running: Rc::new(Cell::new(hosts)) };
        for number in 0..hosts {
            let depth = self.chance.count(1..=habits.depth);
            let habits = WorkloadProfile { depth, ..habits.clone() };
            let host = self.host(number, &traffic.left, units, habits);
            let running = traffic.running.clone();
            self.world.spawn(async move {
                host.run().await;
                running.set(running.get() - 1);
            });
        }
        traffic
    }

    /// Draws the behavior of hosts that keep their connections and wait for every answer.
    pub(crate) fn habits(&self) -> WorkloadProfile {
        WorkloadProfile {
            depth: 8,
            blocks: self.chance.within(1..=24),
            large_bytes: 256 << 10,
            manages: self.chance.percent(30),
            drops_connections: false,
            media_fail: false,
            answers_within: None,
        }
    }

    /// Creates the host with this number.
    pub(crate) fn host(&self, number: usize, left: &Rc<Cell<u64>>, units: &[Unit], habits: WorkloadProfile) -> Host {
        let shared = Shared {
            world: self.world.clone(),
            portals: self.portals.clone(),
            chance: self.chance.clone(),
            judge: self.judge.clone(),
            left: left.clone(),
            done: self.done.clone(),
            told: self.told.clone(),
            lives: self.lives.clone(),
            is_dead: self.is_dead.clone(),
            lingering: self.lingering.clone(),
        };
        Host { shared, config: self.initiator(number), units: units.to_vec(), habits, gone: self.gone() }
    }

    /// Waits until no commands are left to send, checking at this interval.
    pub(crate) async fn until_over(&self, traffic: &Traffic, every: Duration) {
        while !traffic.is_over() {
            self.world.sleep(every).await;
        }
    }

    /// Waits until every host has stopped and every old session has ended.
    pub(crate) async fn until_quiet(&self, traffic: &Traffic) -> CheckResult<()> {
        traffic.stop();
        let until = self.world.now() + QUIET_TIME_MAX;
        // Replaced sessions count as well: their writes end only with them.
        while traffic.running.get() > 0 || self.lingering.get() > 0 {
            if self.world.now() > until {
                return Err(format!("hosts or old sessions are still there after {QUIET_TIME_MAX:?}"));
            }
            self.world.sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Waits until the disks are idle: no rebuild and no resync runs.
    pub(crate) async fn idle_disks(&self) -> CheckResult<()> {
        let until = self.world.now() + QUIET_TIME_MAX;
        let mut before: Option<Vec<_>> = None;
        loop {
            let Report::Disks(disks) = self.order(Order::Disks).await? else {
                return Err("Disks was not answered with disks".to_owned());
            };
            let now: Vec<_> = disks.into_iter().map(|disk| (disk.name, disk.counters)).collect();
            // Two equal looks, since one alone does not show whether an operation runs.
            if before.is_some_and(|before| are_idle(&before, &now)) && !self.repairs().await? {
                return Ok(());
            }
            if self.world.now() > until {
                return Err(format!("disks are not idle after {QUIET_TIME_MAX:?}"));
            }
            before = Some(now);
            // Operations are counted when they begin: the interval is longer than the slowest one.
            self.world.sleep(2 * DISK_PATIENCE).await;
        }
    }

    /// True while a repair runs, even if it currently yields the disks to host I/O.
    async fn repairs(&self) -> CheckResult<bool> {
        let Report::Pools(pools) = self.order(Order::Pools).await? else {
            return Err("Pools was not answered with pools".to_owned());
        };
        let is_repaired = |group: &GroupReport| group.rebuild.is_some() || group.resync.is_some();
        Ok(pools.iter().any(|pool| pool.all_groups().any(is_repaired)))
    }

    /// Returns the sessions of the data plane; none while it is down.
    pub(crate) async fn sessions(&self) -> Vec<SessionReport> {
        match self.ask(Order::Sessions).await {
            Ok(Report::Sessions(sessions)) => sessions,
            _ => Vec::new(),
        }
    }

    /// Returns the pool that is open.
    pub(crate) async fn pool(&self) -> CheckResult<PoolReport> {
        match self.order(Order::Pools).await? {
            Report::Pools(pools) => pools.into_iter().next().ok_or_else(|| "no pool is open".to_owned()),
            other => Err(format!("Pools was answered with {other:?}")),
        }
    }

    /// Draws network faults; connections survive them unless `breaks`.
    pub(crate) fn bad_network(&self, breaks: bool) -> NetworkFaults {
        let chance = &self.chance;
        let per_million = |most| u32::try_from(chance.below(most)).expect("at most a million");
        NetworkFaults {
            // The lower bound is added to the upper one, so that the range is never empty.
            delay: Duration::from_micros(5)..=chance.moment(Duration::from_millis(50)) + Duration::from_micros(5),
            buffer_bytes: chance.pick(&[512, 4 << 10, 16 << 10, 64 << 10, 256 << 10]),
            split_per_million: per_million(950_000),
            short_per_million: per_million(900_000),
            reset_per_million: if breaks { per_million(3_000) } else { 0 },
            stall_per_million: if breaks { per_million(1_000) } else { 0 },
            stall: Duration::from_millis(100)..=Duration::from_secs(60),
            refuse_per_million: if breaks { per_million(200_000) } else { 0 },
        }
    }

    /// Returns the function that waits until the data plane has removed a session.
    fn gone(&self) -> SessionEnd {
        let (world, daemon) = (self.world.clone(), self.daemon.clone());
        Rc::new(move |tsih| {
            let (world, daemon) = (world.clone(), daemon.clone());
            async move {
                loop {
                    // Borrowed for each question, since a restart replaces the data plane.
                    let asked = daemon.borrow().clone();
                    let known = match asked.order(Order::Sessions).await {
                        Ok(Report::Sessions(sessions)) => sessions.iter().any(|one| one.id == u32::from(tsih)),
                        // A data plane that is down has no sessions, and after its restart it does not know the old
                        // ones.
                        _ => false,
                    };
                    if !known {
                        return;
                    }
                    world.sleep(Duration::from_secs(5)).await;
                }
            }
            .boxed_local()
        })
    }

    fn initiator(&self, number: usize) -> Config {
        let name = |text: &str| IscsiName::parse(text).expect("this is an iSCSI name");
        let own = format!("iqn.2026-11.io.blockyard:host{number}");
        let mut login = InitiatorConfig::new(name(&own), Some(name(TARGET)));
        // ISID type 10b, random (RFC 7143 §11.12.5): one per host, because hosts have one session at a time.
        login.isid = Isid([0x80, 0, 0, 0, u8::try_from(number).expect("few hosts"), 0]);
        login.auth = self.auth();
        login.offer = self.offer();
        Config { tasks_max: u32::try_from(self.chance.within(4..=128)).expect("few"), ..Config::new(login) }
    }

    fn auth(&self) -> InitiatorAuth {
        let credential = |name: &str, secret: &[u8]| Credential {
            name: name.to_owned(),
            secret: iscsi::chap::Secret::new(secret).expect("it is long enough"),
        };
        let target = match self.protection {
            Protection::None => return InitiatorAuth::None,
            Protection::Chap => None,
            Protection::Mutual => Some(credential("target", TARGET_SECRET)),
        };
        let weakest = self.chance.pick(&Algorithm::ALL);
        InitiatorAuth::chap(credential("host", HOST_SECRET), target, weakest).expect("the secrets differ")
    }

    fn offer(&self) -> Offer {
        let chance = &self.chance;
        let bytes = |all: &[u32]| chance.pick(all);
        // Digests would reveal the altered PDUs of a wire bug before the oracle can.
        let digests: &[DigestOffer] = if self.plant.alters_wire() { &[DigestOffer::Never] } else { &DIGESTS };
        // 512 is the smallest value of these keys (RFC 7143 §13.12 to §13.14), and 1,000 is no multiple of a block.
        let burst_bytes_max = bytes(&[512, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20]);
        Offer {
            header_digest: chance.pick(digests),
            data_digest: chance.pick(digests),
            initial_r2t: chance.percent(50),
            immediate_data: chance.percent(50),
            data_segment_bytes_max: bytes(&[512, 1000, 4096, 8 << 10, 64 << 10, 256 << 10]),
            burst_bytes_max,
            // FirstBurstLength must not exceed MaxBurstLength (RFC 7143 §13.14).
            first_burst_bytes_max: bytes(&[512, 4096, 64 << 10, 256 << 10]).min(burst_bytes_max),
            outstanding_r2t_max: u16::try_from(chance.within(1..=8)).expect("few"),
            ..Offer::default()
        }
    }

    fn access(&self, volumes: &[PresentedVolume]) -> Access {
        let chap = |user: &str, secret: &[u8]| {
            let secret = Secret::new(secret.to_vec()).expect("it is long enough");
            Chap { user: user.to_owned(), secret, demand: Demand::Required }
        };
        let name = |text: &str| -> Name { text.parse().expect("this is a name") };
        let host = ModelHost {
            name: name("hosts"),
            initiators: Initiators::Any,
            networks: Vec::new(),
            chap: ChapCredentials {
                own: (self.protection != Protection::None).then(|| chap("host", HOST_SECRET)),
                mutual: (self.protection == Protection::Mutual).then(|| chap("target", TARGET_SECRET)),
            },
        };
        let presentation = |volume: &PresentedVolume| Presentation {
            volume: volume.name.clone(),
            volume_id: volume.id,
            host: name("hosts"),
            target: name("target"),
            lun: volume.unit.number(),
            groups: Vec::new(),
            read_only: false,
        };
        Access {
            targets: vec![Target { name: name("target"), iqn: TARGET.parse().expect("this is an iSCSI name") }],
            portals: self.portals.iter().map(|&address| Portal { address, policy: PortalPolicy::default() }).collect(),
            hosts: vec![host],
            presentations: volumes.iter().map(presentation).collect(),
            ..Access::default()
        }
    }
}

impl Traffic {
    /// Stops sending new commands.
    pub(crate) fn stop(&self) {
        self.left.set(0);
    }

    /// True when no commands are left to send, or the hosts have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.left.get() == 0 || self.running.get() == 0
    }
}

/// True when the disks did no more I/O than the renewal of pool ownership, which takes place every two seconds. Before
/// and after a write of one block and a flush it reads three labels and four marks, and these again one by one if they
/// are unreadable.
fn are_idle(before: &[(Option<DiskName>, DiskCounters)], now: &[(Option<DiskName>, DiskCounters)]) -> bool {
    // Renewals in the interval between two checks, with a margin of two.
    let beats = 2 * DISK_PATIENCE.as_secs() / 2 + 2;
    // A counter that went back belongs to another disk of the same name.
    let at_most = |before: u64, now: u64, most: u64| now.checked_sub(before).is_some_and(|done| done <= most);
    let is_idle = |before: &DiskCounters, now: &DiskCounters| {
        at_most(before.reads, now.reads, beats * 2 * (5 + 3))
            && at_most(before.read_bytes, now.read_bytes, beats * 2 * (2 * 16384 + 3 * 4096))
            && at_most(before.written_bytes, now.written_bytes, beats * 4096)
    };
    before.len() == now.len()
        && before.iter().zip(now).all(|((disk, before), (same, now))| disk == same && is_idle(before, now))
}
