//! Rates computed from the difference of two samples.

use super::cause::{Cause, cause};
use model::histogram::ROWS;
use model::{
    Activity, CacheReport, DiskCounters, DiskName, Histogram, Name, PoolReport, SessionActivity, Timestamp, Took,
    VolumeActivity, VolumeCounters, VolumeName, VolumePolicy,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::Hash;
use std::net::SocketAddr;
use std::time::Duration;

/// Rates between two samples. Idle objects are left out of the lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveRates {
    /// Time of the later sample.
    pub time: Timestamp,
    /// Interval between the samples in milliseconds.
    pub span_ms: u64,
    /// Rates of all volumes together.
    pub total: Rates,
    /// Rates of hosts' commands by volume; the slowest first.
    pub volumes: Vec<VolumeRates>,
    /// Rates by host; the busiest first.
    pub hosts: Vec<HostRates>,
    /// Rates by session; the busiest first.
    pub sessions: Vec<SessionRates>,
    /// Rates by portal.
    pub portals: Vec<PortalRates>,
    /// Rates by disk; the slowest first.
    pub disks: Vec<DiskRates>,
}

/// Rates and latencies of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Read commands per second.
    pub reads: f64,
    /// Write commands per second.
    pub writes: f64,
    /// Other commands per second.
    pub others: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// Median latency in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: u64,
    /// 99.9th percentile of the latency in microseconds.
    pub p999_us: u64,
    /// Latency histogram for a heat map: commands below 8 µs, below 16 µs, and so on, doubling with each row.
    pub latency_histogram: [u64; ROWS],
}

/// Rates of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeRates {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Rates and latencies.
    #[serde(flatten)]
    pub rates: Rates,
    /// Commands that failed with a medium or hardware error.
    pub errors: u64,
    /// Read cache, for a volume in a pool.
    pub cache: Option<CacheRates>,
    /// Bottleneck, where the figures tell it.
    pub cause: Option<Cause>,
}

/// Read cache rates of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheRates {
    /// Cache hits in bytes per second.
    pub hits: f64,
    /// Cache misses in bytes per second.
    pub misses: f64,
}

/// Rates of a host over all of its sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostRates {
    /// Name of the host; null for unknown initiators.
    pub host: Option<Name>,
    /// Rates, and latencies as measured by its connections.
    #[serde(flatten)]
    pub rates: Rates,
    /// Number of sessions with commands.
    pub sessions: u32,
}

/// Rates of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRates {
    /// Session number (TSIH).
    pub id: u32,
    /// iSCSI name of the initiator.
    pub initiator: String,
    /// Name of the host; null for unknown initiators.
    pub host: Option<Name>,
    /// Portal that the session uses.
    pub portal: SocketAddr,
    /// Rates and latencies.
    #[serde(flatten)]
    pub rates: Rates,
}

/// Rates of a portal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortalRates {
    /// Address of the portal.
    pub portal: SocketAddr,
    /// Bytes read through it per second.
    pub read_bytes: f64,
    /// Bytes written through it per second.
    pub written_bytes: f64,
    /// Commands through it per second.
    pub commands: f64,
    /// Sessions on it, idle ones included.
    pub sessions: u32,
}

/// Rates of a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskRates {
    /// Name of the disk.
    pub disk: DiskName,
    /// Reads per second.
    pub reads: f64,
    /// Writes per second.
    pub writes: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// Mean latency of an operation in microseconds.
    pub mean_us: f64,
    /// Share of the time in which at least one operation was in flight, 0 to 1.
    pub busy: f64,
    /// Mean queue depth while the disk was busy.
    pub depth: f64,
    /// Operations that failed.
    pub errors: u64,
}

impl LiveRates {
    /// Computes the rates between two samples that are `span` apart; `pools` is the state at the second one.
    #[must_use]
    pub fn between(
        time: Timestamp,
        span: Duration,
        (before, now): (&Activity, &Activity),
        pools: &[PoolReport],
    ) -> Self {
        // At least 1 ms, so that no rate is divided by zero.
        let each = RateInterval(span.as_secs_f64().max(1e-3));
        // By identity: a volume that was deleted and created again counts from zero.
        let volumes_before = by(&before.volumes, |volume| volume.id);
        let mut took = Histogram::default();
        let mut total = Rates::default();
        let mut volumes: Vec<VolumeRates> = Vec::new();
        for volume in &now.volumes {
            // A volume that has appeared since the first sample counts from zero.
            let since =
                volume.took.since(&volumes_before.get(&volume.id).map_or_else(Took::default, |v| v.took.clone()));
            let rates = each.volume(volume, volumes_before.get(&volume.id).copied(), since, &mut took, &mut total);
            volumes.extend(rates);
        }
        // Percentiles do not add up, so the histograms of all volumes are merged and evaluated once.
        total.set_percentiles(&took);
        let (sessions, hosts) = each.sessions(before, now);
        let disks_before: BTreeMap<&DiskName, DiskCounters> =
            before.disks.iter().map(|(name, all)| (name, *all)).collect();
        let disk = |(name, all): &(DiskName, DiskCounters)| each.disk(name, all, disks_before.get(name));
        let mut disks: Vec<DiskRates> = now.disks.iter().filter_map(disk).collect();
        disks.sort_by(|a, b| b.mean_us.total_cmp(&a.mean_us));
        volumes.sort_by_key(|volume| std::cmp::Reverse(volume.rates.p99_us));
        let policies: BTreeMap<&VolumeName, &VolumePolicy> =
            now.volumes.iter().map(|volume| (&volume.name, &volume.policy)).collect();
        // Needs the rates of the disks, so after all of them.
        for volume in &mut volumes {
            let pool = pools.iter().find(|pool| volume.volume.pool() == Some(&pool.name));
            volume.cause = policies.get(&volume.volume).and_then(|policy| cause(&volume.rates, policy, pool, &disks));
        }
        let portals = portals(now, &sessions);
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self { time, span_ms, total, volumes, hosts, sessions, portals, disks }
    }
}

impl Rates {
    /// Returns commands of all kinds per second.
    #[must_use]
    pub fn commands(&self) -> f64 {
        self.reads + self.writes + self.others
    }

    fn set_percentiles(&mut self, took: &Histogram) {
        (self.p50_us, self.p99_us, self.p999_us) = (took.within_us(500), took.within_us(990), took.within_us(999));
        self.latency_histogram = took.rows();
    }

    fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.others += other.others;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// Divides differences by the seconds between the samples.
struct RateInterval(f64);

impl RateInterval {
    #[allow(clippy::cast_precision_loss, reason = "a rate of 2^53 commands a second is not met")]
    fn rate(&self, now: u64, before: u64) -> f64 {
        // A counter that has decreased was reset, so all of it is new.
        let done = if now < before { now } else { now - before };
        done as f64 / self.0
    }

    fn rates(&self, took: &Took, all: &Histogram, bytes: [(u64, u64); 2]) -> Rates {
        // `took` is a difference already, so nothing is subtracted.
        let commands = |histogram: &Histogram| self.rate(histogram.commands(), 0);
        let mut rates = Rates {
            reads: commands(&took.reads),
            writes: commands(&took.writes),
            others: commands(&took.others),
            read_bytes: self.rate(bytes[0].0, bytes[0].1),
            written_bytes: self.rate(bytes[1].0, bytes[1].1),
            ..Rates::default()
        };
        rates.set_percentiles(all);
        rates
    }

    fn volume(
        &self,
        now: &VolumeActivity,
        before: Option<&VolumeActivity>,
        since: Took,
        took: &mut Histogram,
        total: &mut Rates,
    ) -> Option<VolumeRates> {
        let counted = before.map_or_else(VolumeCounters::default, |before| before.counters);
        let all = since.all();
        let errors = now.counters.errors.saturating_sub(counted.errors);
        // Idle: left out, so that it costs nothing to send.
        if all.commands() == 0 && errors == 0 {
            return None;
        }
        let read = (now.counters.read_bytes, counted.read_bytes);
        let rates = self.rates(&since, &all, [read, (now.counters.written_bytes, counted.written_bytes)]);
        took.add(&all);
        total.add(&rates);
        let cached = before.and_then(|before| before.cache).unwrap_or_default();
        let cache = |cache: CacheReport| CacheRates {
            hits: self.rate(cache.hits.bytes(), cached.hits.bytes()),
            misses: self.rate(cache.misses.bytes(), cached.misses.bytes()),
        };
        Some(VolumeRates { volume: now.name.clone(), rates, errors, cache: now.cache.map(cache), cause: None })
    }

    fn sessions(&self, before: &Activity, now: &Activity) -> (Vec<SessionRates>, Vec<HostRates>) {
        // A TSIH is reused; with another initiator or address it is another session.
        let key = |session: &SessionActivity| (session.id, session.initiator.clone(), session.address);
        let before = by(&before.sessions, key);
        let mut hosts: BTreeMap<Option<Name>, (Rates, Histogram, u32)> = BTreeMap::new();
        let mut sessions = Vec::new();
        for session in &now.sessions {
            let earlier = before.get(&key(session)).copied();
            let took = earlier.map_or_else(|| session.took.clone(), |earlier| session.took.since(&earlier.took));
            let all = took.all();
            // Idle sessions are left out here; `portals` counts them separately.
            if all.commands() == 0 {
                continue;
            }
            let (read, written) = earlier.map_or((0, 0), |earlier| (earlier.read_bytes, earlier.written_bytes));
            let rates = self.rates(&took, &all, [(session.read_bytes, read), (session.written_bytes, written)]);
            let (sum, sum_took, count) = hosts.entry(session.host.clone()).or_default();
            sum.add(&rates);
            sum_took.add(&all);
            *count += 1;
            let (initiator, host) = (session.initiator.clone(), session.host.clone());
            sessions.push(SessionRates { id: session.id, initiator, host, portal: session.portal, rates });
        }
        sessions.sort_by(|a, b| b.rates.commands().total_cmp(&a.rates.commands()));
        let host = |(host, (mut rates, took, sessions)): (Option<Name>, (Rates, Histogram, u32))| {
            rates.set_percentiles(&took);
            HostRates { host, rates, sessions }
        };
        let mut hosts: Vec<HostRates> = hosts.into_iter().map(host).collect();
        hosts.sort_by(|a, b| b.rates.commands().total_cmp(&a.rates.commands()));
        (sessions, hosts)
    }

    #[allow(clippy::cast_precision_loss, reason = "of a second of nanoseconds nothing is lost")]
    fn disk(&self, name: &DiskName, now: &DiskCounters, before: Option<&DiskCounters>) -> Option<DiskRates> {
        // Fewer reads than before: the disk was closed and opened again, and its counters restarted.
        let before = before.copied().filter(|before| before.reads <= now.reads).unwrap_or_default();
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let operations =
            since(now.reads, before.reads) + since(now.writes, before.writes) + since(now.flushes, before.flushes);
        let errors = since(now.errors, before.errors);
        if operations == 0 && errors == 0 {
            return None;
        }
        let (busy_ns, waited_ns) = (since(now.busy_ns, before.busy_ns), since(now.waited_ns, before.waited_ns));
        Some(DiskRates {
            disk: name.clone(),
            reads: self.rate(now.reads, before.reads),
            writes: self.rate(now.writes, before.writes),
            read_bytes: self.rate(now.read_bytes, before.read_bytes),
            written_bytes: self.rate(now.written_bytes, before.written_bytes),
            // Total waiting time over operations is the mean latency; over busy time it is the mean queue depth
            // (Little's law).
            mean_us: waited_ns as f64 / 1e3 / operations.max(1) as f64,
            // Timer jitter can make the busy time exceed the interval.
            busy: (busy_ns as f64 / 1e9 / self.0).min(1.0),
            depth: waited_ns as f64 / busy_ns.max(1) as f64,
            errors,
        })
    }
}

fn portals(now: &Activity, rates: &[SessionRates]) -> Vec<PortalRates> {
    // Idle sessions count as well; the rates of busy ones are added below.
    let mut portals: BTreeMap<SocketAddr, PortalRates> = BTreeMap::new();
    for session in &now.sessions {
        let portal = session.portal;
        let none = PortalRates { portal, read_bytes: 0.0, written_bytes: 0.0, commands: 0.0, sessions: 0 };
        portals.entry(portal).or_insert(none).sessions += 1;
    }
    for session in rates {
        if let Some(portal) = portals.get_mut(&session.portal) {
            portal.read_bytes += session.rates.read_bytes;
            portal.written_bytes += session.rates.written_bytes;
            portal.commands += session.rates.commands();
        }
    }
    portals.into_values().collect()
}

fn by<T, K: Ord + Hash>(all: &[T], key: impl Fn(&T) -> K) -> BTreeMap<K, &T> {
    all.iter().map(|one| (key(one), one)).collect()
}
