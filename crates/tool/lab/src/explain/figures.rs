//! Figures of a sample that the rules of the bottleneck analysis use.

use super::{Limit, SLACK};
use crate::peer::CLIENT_CORE;
use crate::point::{Backing, Peer, Point};
use crate::run::Sample;
use crate::seen::{Disk, Readings, Thread};
use model::Level;

/// CPU of other programs, in cores, that exceeds that of an idle machine.
const OTHERS: f64 = 0.25;
/// Share of the time that a thread must run or wait for a core in order to count as CPU-bound.
const RUNNABLE: f64 = 0.85;

/// Utilization of a resource.
pub(super) struct Use {
    pub limit: Limit,
    /// Utilization from 0 to 1.
    pub part: f64,
    /// Utilization as a sentence.
    pub fact: String,
}

/// Share of their busy time that the sockets of one end waited.
pub(super) struct End {
    pub server: bool,
    pub window: f64,
    pub buffer: f64,
}

/// Figures of a sample with commands and meters.
pub(super) struct Figures<'a> {
    pub point: &'a Point,
    pub sample: &'a Sample,
    seen: &'a Readings,
    pub iops: f64,
    /// Mean latency in seconds.
    pub latency: f64,
    /// Mean number of commands in flight.
    pub under_way: f64,
    /// Maximum of commands in flight, if the depth paces the load.
    pub depth: Option<f64>,
    /// Requested commands per second, if the load is paced by a rate or by think time.
    pub asked: Option<f64>,
    /// Share of the time in which the target's command window blocked sessions.
    pub held: f64,
    pub ends: Vec<End>,
    /// Member operations per write, in arrays with parity.
    pub operations_per_write: Option<f64>,
    uses: Vec<Use>,
}

impl Use {
    pub(super) fn is_cpu(&self) -> bool {
        matches!(self.limit, Limit::Initiator | Limit::Thread { .. } | Limit::Core { .. } | Limit::Others)
    }
}

impl<'a> Figures<'a> {
    /// Computes the figures; none if no command succeeded or nothing was metered.
    pub(super) fn of(point: &'a Point, sample: &'a Sample) -> Option<Self> {
        let seen = sample.seen.as_ref()?;
        let (iops, latency) = (sample.iops(), sample.latency().mean()? / 1e9);
        let depth = f64::from(point.depths().iter().sum::<u32>());
        let think = point.think.duration().as_secs_f64();
        // With think time beyond the latency, slots mostly think: the load is then nearly independent of the target.
        let asked = match point.rate {
            0 if think > latency => Some(depth / (think + latency)),
            0 => None,
            rate => Some(rate.into()),
        };
        let closed = point.rate == 0 && think == 0.0;
        let sessions = f64::from(point.own_sessions());
        let ends = seen.sockets.iter().filter(|end| end.busy_seconds > 0.0).map(|end| End {
            server: end.server,
            window: end.window_seconds / end.busy_seconds,
            buffer: end.buffer_seconds / end.busy_seconds,
        });
        Some(Self {
            point,
            sample,
            seen,
            iops,
            latency,
            // Little's law.
            under_way: iops * latency,
            depth: closed.then_some(depth),
            asked,
            // Held time is summed over the sessions.
            held: seen.held_seconds / (sessions * sample.seconds),
            ends: ends.collect(),
            operations_per_write: operations_per_write(point, sample, seen),
            uses: uses(point, sample, seen),
        })
    }

    /// Returns the most utilized resource that `of` holds for.
    pub(super) fn fullest(&self, of: impl Fn(&Use) -> bool) -> Option<&Use> {
        self.uses.iter().filter(|used| of(used)).max_by(|one, other| one.part.total_cmp(&other.part))
    }

    /// Describes the most utilized resource of each kind.
    pub(super) fn nearest(&self) -> Vec<String> {
        // One of each kind, so that every end and the path between them are compared.
        let kinds: [fn(&Use) -> bool; 3] = [
            |used| used.limit == Limit::Initiator,
            |used| used.is_cpu() && used.limit != Limit::Initiator,
            |used| !used.is_cpu(),
        ];
        kinds.iter().filter_map(|kind| self.fullest(kind)).map(|used| used.fact.clone()).collect()
    }

    /// Describes the CPU cost of a command at the saturated end.
    pub(super) fn cost_of(&self, limit: &Limit) -> Option<String> {
        match limit {
            Limit::Initiator => Some(format!("a command costs the initiator {:.1} µs of CPU", self.sample.client_us())),
            Limit::Thread { .. } | Limit::Core { .. } => {
                self.sample.server_us().map(|us| format!("a command costs the target {us:.1} µs of CPU"))
            }
            _ => None,
        }
    }

    /// Describes the share of a command's latency that its members take.
    pub(super) fn below(&self) -> Option<String> {
        let members: Vec<&Disk> = self.seen.disks.iter().filter(|disk| disk.member && disk.operations() > 0).collect();
        let (operations, waited) = members.iter().fold((0, 0.0), |(operations, waited), disk| {
            (operations + disk.operations(), waited + disk.waited_seconds)
        });
        (operations > 0).then(|| {
            let each = waited / operations as f64;
            format!("an operation of a member disk takes {} of the {}", time(each), time(self.latency))
        })
    }

    /// Describes the member operations of a write.
    pub(super) fn per_write(&self) -> Option<String> {
        self.operations_per_write
            .map(|operations| format!("each write of a host makes {operations:.1} operations of members"))
    }

    /// Returns the mean number of operations in flight on a disk.
    pub(super) fn at_once(&self, name: &str) -> Option<f64> {
        self.seen.disks.iter().find(|disk| disk.name == name).map(Disk::at_once)
    }

    /// Describes the load beside the measured one.
    pub(super) fn beside(&self) -> Option<String> {
        let (beside, iops) = (self.sample.beside.as_ref()?, self.sample.beside_iops()?);
        let latency = beside.latency.mean().map_or(String::new(), |nanos| format!(", {} each", time(nanos / 1e9)));
        Some(format!("another load had {iops:.0} commands a second beside it{latency}"))
    }

    pub(super) fn errors(&self) -> Option<String> {
        let Sample { reads, writes, beside, .. } = self.sample;
        let errors: u64 = [reads, writes].into_iter().chain(beside).map(|tally| tally.errors).sum();
        (errors > 0).then(|| format!("{errors} commands ended otherwise than well, and are not in the figures"))
    }

    /// Describes other programs, if threads waited for a core meanwhile.
    pub(super) fn disturbed(&self) -> Option<String> {
        let others = others(self.seen) / self.sample.seconds;
        let mut threads = self.seen.threads.iter().chain(&self.seen.load);
        let waited = threads.any(|thread| thread.queued_seconds > 0.1 * self.sample.seconds);
        let said =
            format!("programs that are neither target nor client had {others:.1} cores meanwhile, and threads waited");
        // Other programs do no harm as long as no thread of ours waits for a core.
        (waited && others >= OTHERS).then_some(said)
    }

    /// Describes steal time: the hypervisor ran other machines.
    pub(super) fn stolen(&self) -> Option<String> {
        let stolen: f64 = self.seen.cores.iter().map(|core| core.stolen_seconds).fold(0.0, f64::max);
        // The fullest core, since a single stolen core may hold up the whole load.
        let part = stolen / self.sample.seconds;
        (part >= 0.05).then(|| format!("the hypervisor took {:.0} % of a core away meanwhile", part * 100.0))
    }

    /// Returns the factor by which throughput could grow until the most utilized resource is saturated.
    pub(super) fn headroom(&self) -> Option<f64> {
        self.fullest(|_| true)
            .map(|fullest| fullest.part)
            // Below 5 % the factor would be a guess, and near saturation there is none.
            .filter(|part| (0.05..SLACK).contains(part))
            .map(|part| 1.0 / part)
    }
}

/// Describes a thread that hardly ran for lack of a core.
pub(super) fn starved(sample: &Sample) -> Vec<String> {
    let Some(seen) = &sample.seen else { return Vec::new() };
    let mut threads =
        seen.load.iter().chain(&seen.threads).filter(|thread| thread.queued_seconds > 0.5 * sample.seconds);
    let starved = threads.next().map(|thread| {
        let queued = thread.queued_seconds / sample.seconds * 100.0;
        format!("{} waited {queued:.0} % of the time for a core: this machine had other things to do", thread.name)
    });
    starved.into_iter().collect()
}

/// Lists quantities that no meter covers.
pub(super) fn unseen(point: &Point, sample: &Sample) -> Vec<String> {
    let Some(seen) = &sample.seen else { return Vec::new() };
    let mut unseen = Vec::new();
    if sample.server.is_none() && point.peer == Peer::Given {
        unseen.push("the target's CPU and its disks: the lab did not start it".to_owned());
    }
    if polls(point) {
        unseen.push("how much of the target's CPU is work: it looks for work without sleeping".to_owned());
    }
    if point.client_polls {
        unseen.push("how much of the initiator's CPU is work: it looks for answers without sleeping".to_owned());
    }
    if point.backing == Backing::Pool && point.peer == Peer::Blockyard && !seen.disks.iter().any(|disk| disk.member) {
        unseen.push("the members of the pool: the daemon did not tell".to_owned());
    }
    if seen.sockets.is_empty() && point.peer != Peer::Native {
        unseen.push("TCP's windows: the kernel does not tell".to_owned());
    }
    unseen
}

/// Returns true if the target's threads poll, so that their CPU time is no measure of work.
fn polls(point: &Point) -> bool {
    point.peer == Peer::Spdk || point.arguments.iter().any(|argument| argument == "--busy-poll")
}

fn uses(point: &Point, sample: &Sample, seen: &Readings) -> Vec<Use> {
    let seconds = sample.seconds;
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    // A polling client is busy by definition, so its CPU time is left out.
    let mut uses = Vec::new();
    if let Some(load) = seen.load.as_ref().filter(|_| !point.client_polls) {
        let part = load.cpu_seconds / seconds;
        uses.push(Use {
            limit: Limit::Initiator,
            part,
            fact: format!("the initiator's thread ran {} of the time", percent(part)),
        });
    }
    let several = seen.threads.iter().any(|thread| thread.process > 0);
    let name_of = |thread: &Thread| match several {
        true => format!("{} of daemon {}", thread.name, thread.process),
        false => thread.name.clone(),
    };
    // A polling target is busy by definition, too.
    for thread in seen.threads.iter().filter(|_| !polls(point)) {
        let (part, name) = (thread.cpu_seconds / seconds, name_of(thread));
        let fact = format!("{name} of the target ran {} of the time", percent(part));
        uses.push(Use { limit: Limit::Thread { name }, part, fact });
    }
    uses.extend(contended(sample, seen, name_of));
    for disk in &seen.disks {
        // The counter of a disk may run ahead of the clock of the measurement.
        let (name, part) = (disk.name.clone(), disk.busy().min(1.0));
        let fact = format!(
            "disk {name} was busy {} of the time, with {:.1} operations at once of {} each",
            percent(part),
            disk.at_once(),
            time(disk.each())
        );
        uses.push(Use { limit: Limit::Disk { name }, part, fact });
    }
    for line in &seen.lines {
        if let Some(part) = line.used(seconds) {
            let fact = format!("{} carried {} of what it can", line.name, percent(part));
            uses.push(Use { limit: Limit::Nic { name: line.name.clone() }, part, fact });
        }
    }
    uses
}

/// Returns the CPU seconds of programs other than target and client.
fn others(seen: &Readings) -> f64 {
    let ours: f64 = seen.threads.iter().chain(&seen.load).map(|thread| thread.cpu_seconds).sum();
    seen.cores.iter().map(|core| core.busy_seconds).sum::<f64>() - ours
}

/// Returns the saturated core that one of our threads waits for.
fn contended(sample: &Sample, seen: &Readings, name_of: impl Fn(&Thread) -> String) -> Option<Use> {
    let client = seen.load.iter().map(|thread| ("the initiator".to_owned(), thread));
    let target = seen.threads.iter().map(|thread| (name_of(thread), thread));
    let (name, waiting) =
        client.chain(target).max_by(|(_, one), (_, other)| one.queued_seconds.total_cmp(&other.queued_seconds))?;
    // Both together are what the thread would have used if cores had been free.
    let queued = waiting.queued_seconds / sample.seconds;
    let wanted = queued + waiting.cpu_seconds / sample.seconds;
    // Other cores first: the client's own core is expected to be busy.
    let is_clients = |core: &u32| *core as usize == CLIENT_CORE;
    let fullest = seen.cores.iter().max_by(|one, other| {
        let key = |core: &crate::seen::Core| (core.busy_seconds / sample.seconds >= 0.95, !is_clients(&core.core));
        key(one).cmp(&key(other))
    })?;
    let busy = (fullest.busy_seconds + fullest.stolen_seconds) / sample.seconds;
    // Measured choices: waited noticeably, wanted nearly a whole core, and the core was nearly full.
    if queued < 0.15 || wanted < RUNNABLE || busy < 0.9 {
        return None;
    }
    let waited = format!("{name} waited {:.0} % of the time for a core", queued * 100.0);
    let others = others(seen) / sample.seconds;
    let (limit, fact) = if others >= OTHERS {
        (Limit::Others, format!("programs that are neither target nor client had {others:.1} cores, and {waited}"))
    } else {
        (
            Limit::Core { core: fullest.core },
            format!("core {} ran {:.0} % of the time, and {waited}", fullest.core, busy * 100.0),
        )
    };
    Some(Use { limit, part: busy.min(1.0), fact })
}

/// Returns member operations per write beyond the hosts' reads, in arrays with parity.
fn operations_per_write(point: &Point, sample: &Sample, seen: &Readings) -> Option<f64> {
    let parity = point.backing == Backing::Pool && matches!(point.level, Level::Raid5 | Level::Raid6);
    let (reads, writes) = (sample.reads.commands, sample.writes.commands);
    // With few writes, reads would dominate the difference below.
    if !parity || writes * 5 < reads {
        return None;
    }
    let operations: u64 = seen.disks.iter().filter(|disk| disk.member).map(Disk::operations).sum();
    // A read of a host is one operation of a member, as long as no member is missing.
    Some(operations.saturating_sub(reads) as f64 / writes as f64).filter(|per_write| per_write.is_finite())
}

/// Formats a time in its unit.
pub(super) fn time(seconds: f64) -> String {
    if seconds >= 0.001 { format!("{:.2} ms", seconds * 1e3) } else { format!("{:.0} µs", seconds * 1e6) }
}
