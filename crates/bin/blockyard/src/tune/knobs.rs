//! Table of all settings: reason, effect, and the source of the figures.

use serde::Serialize;
use std::fmt;

/// Group of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Disks,
    Network,
    Interfaces,
    Interrupts,
    Processors,
    Memory,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Disks => "disks",
            Self::Network => "network",
            Self::Interfaces => "interfaces",
            Self::Interrupts => "interrupts",
            Self::Processors => "processors",
            Self::Memory => "memory",
        }
    }
}

/// Source of a stated effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// Measured by this project; docs/operate/tuning.md names the conditions.
    Measured,
    /// Measured in a paper; docs/lab.md names it.
    Paper,
    /// Stated by the kernel's documentation or source.
    Documentation,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Measured => "measured",
            Self::Paper => "paper",
            Self::Documentation => "documentation",
        })
    }
}

/// Setting of the operating system.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Knob {
    #[serde(rename = "knob")]
    pub name: &'static str,
    pub kind: Kind,
    /// Reason, as a clause.
    pub why: &'static str,
    /// Effect of the recommended value.
    pub effect: &'static str,
    pub source: Source,
}

const fn disk(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Knob {
    Knob { name, kind: Kind::Disks, why, effect, source }
}

const fn tcp(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Knob {
    Knob { name, kind: Kind::Network, why, effect, source }
}

const fn interface(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Knob {
    Knob { name, kind: Kind::Interfaces, why, effect, source }
}

const fn processor(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Knob {
    Knob { name, kind: Kind::Processors, why, effect, source }
}

const fn memory(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Knob {
    Knob { name, kind: Kind::Memory, why, effect, source }
}

use Source::{Documentation, Measured, Paper};

pub(super) static SCHEDULER: Knob = disk(
    "scheduler",
    "a disk without heads gains nothing from an order of requests, and loses the time for it",
    Measured,
    "mq-deadline has 0.7 and bfq 0.9 of the 4 KiB reads of none, on a disk of memory; S0 runs without one, S4 does on SSDs",
);
pub(super) static SCHEDULER_OF_HEADS: Knob = disk(
    "scheduler",
    "a disk with heads seeks less when requests are sorted by their place",
    Documentation,
    "random reads and writes at depth; not measured by us",
);
pub(super) static NR_REQUESTS: Knob = disk(
    "nr_requests",
    "a scheduler can only put in order what it may hold; without one it is the depth of the hardware",
    Measured,
    "1024 has 1.15 times the reads of 32 at depth 256, on a disk of memory; S0 sets 1024",
);
pub(super) static MAX_SECTORS: Knob = disk(
    "max_sectors_kb",
    "a disk without heads serves the parts of a request that is cut up side by side",
    Measured,
    "no gain from larger ones (0.55 of the 1 MiB reads with 1024), on a disk of memory",
);
pub(super) static MAX_SECTORS_OF_HEADS: Knob = disk(
    "max_sectors_kb",
    "what the array sends as one request is not cut up",
    Paper,
    "S0 sets 1024, with no figure of its own",
);
pub(super) static READ_AHEAD: Knob = disk(
    "read_ahead_kb",
    "the array reads past the kernel's cache and reads ahead by itself, see blockyard volume set",
    Documentation,
    "none on the array's own disks",
);
pub(super) static RQ_AFFINITY: Knob = disk(
    "rq_affinity",
    "a shard wants its answers on its own core",
    Measured,
    "1.1 to 2.2 times the 4 KiB reads, on a disk of memory",
);
pub(super) static NOMERGES: Knob = disk(
    "nomerges",
    "requests for neighboring blocks become one; a disk without heads takes them one by one as well",
    Measured,
    "no difference (0.88 to 1.05) for 4 KiB reads, on a disk of memory",
);
pub(super) static NOMERGES_OF_HEADS: Knob = disk(
    "nomerges",
    "requests for neighboring blocks become one, which is one seek",
    Documentation,
    "sequential reads and writes in small pieces; not measured by us",
);
pub(super) static ADD_RANDOM: Knob = disk(
    "add_random",
    "each request would be stirred into the random numbers",
    Documentation,
    "CPU time of each request",
);
pub(super) static WRITE_CACHE: Knob = disk(
    "write_cache",
    "\"write back\" makes the array flush before it acknowledges; only who knows the disk may say otherwise",
    Documentation,
    "\"write through\" for a cache that loses power loses data",
);
pub(super) static WBT: Knob = disk(
    "wbt_lat_usec",
    "holds back only what the kernel's cache writes late, and the array writes past it",
    Documentation,
    "none on the array's own disks",
);
pub(super) static QUEUE_DEPTH: Knob = disk(
    "queue_depth",
    "a SATA disk that is given one command at a time (no NCQ) cannot choose the shortest way",
    Documentation,
    "random reads of a disk that turns",
);

pub(super) static TCP_RMEM: Knob = tcp(
    "net.ipv4.tcp_rmem",
    "the daemon leaves the size of buffers to the kernel; the largest one bounds what a host may have on its way",
    Measured,
    "writes at a round trip of 6 ms: 99 MB/s with 1 MiB, 510 with 6, 610 with 16",
);
pub(super) static TCP_WMEM: Knob = tcp(
    "net.ipv4.tcp_wmem",
    "the same for what is on its way to a host",
    Measured,
    "reads at a round trip of 6 ms: 135 MB/s with 1 MiB, 500 with 4, 960 with 16",
);
pub(super) static RMEM_MAX: Knob = tcp(
    "net.core.rmem_max",
    "bounds what a program asks for, and the daemon does not ask",
    Documentation,
    "none on the array",
);
pub(super) static WMEM_MAX: Knob = tcp(
    "net.core.wmem_max",
    "bounds what a program asks for, and the daemon does not ask",
    Documentation,
    "none on the array",
);
pub(super) static CONGESTION: Knob = tcp(
    "net.ipv4.tcp_congestion_control",
    "the daemon chooses cubic for each connection, whatever the system's default is",
    Measured,
    "bbr has 0.8 of the 128 KiB reads that cubic has, without a delay",
);
pub(super) static CONGESTION_ALLOWED: Knob = tcp(
    "net.ipv4.tcp_allowed_congestion_control",
    "the daemon is not root, and may choose cubic only where everybody may",
    Measured,
    "without it connections have the system's default; bbr has 0.8 of the 128 KiB reads, without a delay",
);
pub(super) static SLOW_START: Knob = tcp(
    "net.ipv4.tcp_slow_start_after_idle",
    "hosts are idle between bursts, and each burst would begin slowly",
    Measured,
    "1 MiB after a pause takes 0.4 of the time at a round trip of 6 ms, 0.6 without a delay",
);
pub(super) static MTU_PROBING: Knob = tcp(
    "net.ipv4.tcp_mtu_probing",
    "where large packets vanish without a word, connections stand still unless smaller ones are tried",
    Documentation,
    "hosts behind a switch that drops large packets stay connected",
);
pub(super) static SACK: Knob = tcp(
    "net.ipv4.tcp_sack",
    "without it one lost packet costs all that came after it",
    Documentation,
    "any way that loses packets",
);
pub(super) static NETDEV_BUDGET: Knob = tcp(
    "net.core.netdev_budget",
    "the kernel stops taking packets when the budget is used up, and comes back later",
    Documentation,
    "only where /proc/net/softnet_stat counts such stops",
);
pub(super) static NETDEV_BACKLOG: Knob = tcp(
    "net.core.netdev_max_backlog",
    "packets beyond it are dropped before TCP sees them",
    Documentation,
    "only where /proc/net/softnet_stat counts drops",
);
pub(super) static BUSY_READ: Knob = tcp(
    "net.core.busy_read",
    "is for programs that sleep in a socket, and shards sleep in their ring",
    Documentation,
    "none on the array; busy_poll in its own configuration is what there is",
);
pub(super) static SOMAXCONN: Knob = tcp(
    "net.core.somaxconn",
    "after a restart all hosts come at once",
    Documentation,
    "logins beyond it wait a second and try again",
);

pub(super) static MTU: Knob =
    interface("mtu", "large packets are fewer to handle, for both ends", Paper, "S1 has jumbo frames from end to end");
pub(super) static MTU_OF_VIRTUAL: Knob = interface(
    "mtu",
    "a virtual card hands large packets on without cutting them up",
    Measured,
    "no clear gain from 9000 on virtual cards",
);
pub(super) static QUEUES: Knob = interface(
    "queues",
    "each queue (RSS) is a core that can take packets; more than cores near the card bring none",
    Paper,
    "+5 to 10 thousand IOPS below 20 parallel readers, nothing above (S4, ixgbe)",
);
pub(super) static RPS: Knob = interface(
    "rps_cpus",
    "a card with one queue has one core take all packets, unless that core passes them on",
    Measured,
    "loses on two cores: 0.8 of the 4 KiB commands; not tried with more",
);
pub(super) static RX_RING: Knob = interface(
    "rx_ring",
    "packets that find no place in it are lost",
    Documentation,
    "only where the card counts such losses",
);
pub(super) static TSO: Knob = interface(
    "tso",
    "the card cuts large sends into packets; without it cores do",
    Documentation,
    "CPU time of every read",
);
pub(super) static GRO: Knob = interface(
    "gro",
    "packets of a connection are joined before TCP sees them",
    Documentation,
    "CPU time of every write",
);
pub(super) static IRQ_AFFINITY: Knob = Knob {
    name: "irq_affinity",
    kind: Kind::Interrupts,
    why: "each queue has a core near the card to itself",
    effect: "+5 to 10 thousand IOPS below 20 parallel readers, nothing above (S4, ixgbe)",
    source: Paper,
};

pub(super) static GOVERNOR: Knob =
    processor("governor", "a core that slept slowly begins slowly", Documentation, "time of single commands");
pub(super) static HALT_POLL: Knob = processor(
    "guest_halt_poll_ns",
    "a virtual machine gives a core back as soon as it is idle, unless the core looks for work for a moment first",
    Measured,
    "2 to 2.9 times the 4 KiB commands of one session where it takes 30 us to get the core back, for CPU time of the hypervisor's",
);
pub(super) static SHARD_CPUS: Knob = processor(
    "shard_cpus",
    "memory, cards and disks of another socket are further away",
    Paper,
    "+5 to 10 thousand IOPS below 20 parallel readers, nothing above (S4, with IRQs and queues)",
);
pub(super) static ISOLATED: Knob = processor(
    "isolated",
    "cores that are kept from the scheduler serve only who names them",
    Documentation,
    "shards run beside them unless cpus in the array's configuration names them",
);
pub(super) static IO_URING: Knob = processor(
    "kernel.io_uring_disabled",
    "without io_uring the daemon serves with threads",
    Documentation,
    "2 forbids it to all, 1 to all but a group",
);
pub(super) static HUGE_PAGES: Knob = memory(
    "transparent_hugepage",
    "the daemon's buffers live as long as it does",
    Documentation,
    "none known; any value will do",
);
pub(super) static SWAPPINESS: Knob = memory(
    "vm.swappiness",
    "a page of the daemon that was swapped out is a read of a disk before a read of a disk",
    Documentation,
    "only where memory runs short",
);
pub(super) static MEMLOCK: Knob = memory(
    "memlock",
    "kernels before 5.12 count rings as locked memory, and give none beyond the limit",
    Documentation,
    "without rings the daemon serves with threads",
);

/// All settings; docs/operate/tuning.md has a line for each.
#[cfg(test)]
pub(super) static ALL: [&Knob; 42] = [
    &SCHEDULER,
    &SCHEDULER_OF_HEADS,
    &NR_REQUESTS,
    &MAX_SECTORS,
    &MAX_SECTORS_OF_HEADS,
    &READ_AHEAD,
    &RQ_AFFINITY,
    &NOMERGES,
    &NOMERGES_OF_HEADS,
    &ADD_RANDOM,
    &WRITE_CACHE,
    &WBT,
    &QUEUE_DEPTH,
    &TCP_RMEM,
    &TCP_WMEM,
    &RMEM_MAX,
    &WMEM_MAX,
    &CONGESTION,
    &CONGESTION_ALLOWED,
    &SLOW_START,
    &MTU_PROBING,
    &SACK,
    &NETDEV_BUDGET,
    &NETDEV_BACKLOG,
    &BUSY_READ,
    &SOMAXCONN,
    &MTU,
    &MTU_OF_VIRTUAL,
    &QUEUES,
    &RPS,
    &RX_RING,
    &TSO,
    &GRO,
    &IRQ_AFFINITY,
    &GOVERNOR,
    &HALT_POLL,
    &SHARD_CPUS,
    &ISOLATED,
    &IO_URING,
    &HUGE_PAGES,
    &SWAPPINESS,
    &MEMLOCK,
];
