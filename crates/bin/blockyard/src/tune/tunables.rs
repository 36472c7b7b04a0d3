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
pub(crate) struct Tunable {
    #[serde(rename = "knob")]
    pub name: &'static str,
    pub kind: Kind,
    /// Reason, as a clause.
    pub why: &'static str,
    /// Effect of the recommended value.
    pub effect: &'static str,
    pub source: Source,
}

const fn disk(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Tunable {
    Tunable { name, kind: Kind::Disks, why, effect, source }
}

const fn tcp(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Tunable {
    Tunable { name, kind: Kind::Network, why, effect, source }
}

const fn interface(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Tunable {
    Tunable { name, kind: Kind::Interfaces, why, effect, source }
}

const fn processor(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Tunable {
    Tunable { name, kind: Kind::Processors, why, effect, source }
}

const fn memory(name: &'static str, why: &'static str, source: Source, effect: &'static str) -> Tunable {
    Tunable { name, kind: Kind::Memory, why, effect, source }
}

use Source::{Documentation, Measured, Paper};

pub(super) static SCHEDULER: Tunable = disk(
    "scheduler",
    "an SSD gains nothing from request sorting, which costs CPU time",
    Measured,
    "4 KiB reads on a RAM disk, relative to none: mq-deadline 0.7, bfq 0.9; S0 uses none, S4 uses it on SSDs",
);
pub(super) static SCHEDULER_OF_HEADS: Tunable = disk(
    "scheduler",
    "a hard disk seeks less when requests are sorted by position",
    Documentation,
    "faster random I/O at high queue depth; not measured",
);
pub(super) static NR_REQUESTS: Tunable = disk(
    "nr_requests",
    "the scheduler sorts only requests in its queue; without a scheduler the hardware queue depth applies",
    Measured,
    "1024 gives 1.15 times the reads of 32 at queue depth 256 on a RAM disk; S0 sets 1024",
);
pub(super) static MAX_SECTORS: Tunable = disk(
    "max_sectors_kb",
    "an SSD serves the parts of a split request in parallel",
    Measured,
    "no gain from larger requests (0.55 of the 1 MiB reads with 1024) on a RAM disk",
);
pub(super) static MAX_SECTORS_OF_HEADS: Tunable =
    disk("max_sectors_kb", "one request of the array is not split", Paper, "S0 sets 1024 without a figure");
pub(super) static READ_AHEAD: Tunable = disk(
    "read_ahead_kb",
    "the array uses direct I/O and its own read-ahead, see blockyard volume set",
    Documentation,
    "no effect on disks of the array",
);
pub(super) static RQ_AFFINITY: Tunable = disk(
    "rq_affinity",
    "completions should run on the core of the shard",
    Measured,
    "1.1 to 2.2 times the 4 KiB reads on a RAM disk",
);
pub(super) static NOMERGES: Tunable = disk(
    "nomerges",
    "merging of adjacent requests does not help an SSD",
    Measured,
    "no difference (0.88 to 1.05) for 4 KiB reads on a RAM disk",
);
pub(super) static NOMERGES_OF_HEADS: Tunable = disk(
    "nomerges",
    "adjacent requests are merged, which saves seeks",
    Documentation,
    "faster small sequential I/O; not measured",
);
pub(super) static ADD_RANDOM: Tunable =
    disk("add_random", "each request would feed the entropy pool", Documentation, "CPU time of each request");
pub(super) static WRITE_CACHE: Tunable = disk(
    "write_cache",
    "\"write back\" makes the array flush before it acknowledges; change it only if the disk cache is protected",
    Documentation,
    "\"write through\" with a volatile disk cache loses data at a power failure",
);
pub(super) static WBT: Tunable = disk(
    "wbt_lat_usec",
    "throttles only writeback of the page cache, which the array does not use",
    Documentation,
    "no effect on disks of the array",
);
pub(super) static QUEUE_DEPTH: Tunable = disk(
    "queue_depth",
    "a SATA disk without NCQ cannot reorder commands",
    Documentation,
    "faster random reads of a hard disk",
);

pub(super) static TCP_RMEM: Tunable = tcp(
    "net.ipv4.tcp_rmem",
    "socket buffers are autotuned; the maximum limits the bytes in flight from a host",
    Measured,
    "writes at a round-trip time of 6 ms: 99 MB/s with 1 MiB, 510 with 6, 610 with 16",
);
pub(super) static TCP_WMEM: Tunable = tcp(
    "net.ipv4.tcp_wmem",
    "limits the bytes in flight to a host",
    Measured,
    "reads at a round-trip time of 6 ms: 135 MB/s with 1 MiB, 500 with 4, 960 with 16",
);
pub(super) static RMEM_MAX: Tunable = tcp(
    "net.core.rmem_max",
    "limits explicit socket buffer sizes, which the daemon does not set",
    Documentation,
    "no effect on the array",
);
pub(super) static WMEM_MAX: Tunable = tcp(
    "net.core.wmem_max",
    "limits explicit socket buffer sizes, which the daemon does not set",
    Documentation,
    "no effect on the array",
);
pub(super) static CONGESTION: Tunable = tcp(
    "net.ipv4.tcp_congestion_control",
    "the daemon selects cubic for each connection, independent of the system default",
    Measured,
    "bbr gives 0.8 of the 128 KiB reads of cubic without network delay",
);
pub(super) static CONGESTION_ALLOWED: Tunable = tcp(
    "net.ipv4.tcp_allowed_congestion_control",
    "the daemon is not root and may select cubic only if it is allowed for all users",
    Measured,
    "otherwise the system default applies; bbr gives 0.8 of the 128 KiB reads without network delay",
);
pub(super) static SLOW_START: Tunable = tcp(
    "net.ipv4.tcp_slow_start_after_idle",
    "hosts pause between bursts, and each burst would restart in slow start",
    Measured,
    "1 MiB after a pause takes 0.4 of the time at a round-trip time of 6 ms, 0.6 without delay",
);
pub(super) static MTU_PROBING: Tunable = tcp(
    "net.ipv4.tcp_mtu_probing",
    "where a device drops large packets silently, connections hang unless TCP probes a smaller MTU",
    Documentation,
    "hosts behind such a device stay connected",
);
pub(super) static SACK: Tunable = tcp(
    "net.ipv4.tcp_sack",
    "without SACK one lost packet causes retransmission of all later ones",
    Documentation,
    "faster on links that lose packets",
);
pub(super) static NETDEV_BUDGET: Tunable = tcp(
    "net.core.netdev_budget",
    "the kernel stops receive processing when the budget is used up",
    Documentation,
    "helps only if /proc/net/softnet_stat counts time squeezes",
);
pub(super) static NETDEV_BACKLOG: Tunable = tcp(
    "net.core.netdev_max_backlog",
    "packets beyond it are dropped before TCP sees them",
    Documentation,
    "helps only if /proc/net/softnet_stat counts drops",
);
pub(super) static BUSY_READ: Tunable = tcp(
    "net.core.busy_read",
    "applies to blocking socket calls; shards wait in io_uring",
    Documentation,
    "no effect on the array; use busy_poll in its configuration instead",
);
pub(super) static SOMAXCONN: Tunable = tcp(
    "net.core.somaxconn",
    "after a restart all hosts log in at the same time",
    Documentation,
    "connections beyond it retry after 1 s",
);

pub(super) static MTU: Tunable =
    interface("mtu", "fewer packets for both ends to process", Paper, "S1 uses jumbo frames end to end");
pub(super) static MTU_OF_VIRTUAL: Tunable = interface(
    "mtu",
    "a virtual card passes large packets on without segmentation",
    Measured,
    "no clear gain from an MTU of 9000 on virtual cards",
);
pub(super) static QUEUES: Tunable = interface(
    "queues",
    "each receive queue (RSS) uses one core; one queue for each core of the NUMA node is enough",
    Paper,
    "+5,000 to 10,000 IOPS below 20 parallel readers, nothing above (S4, ixgbe)",
);
pub(super) static RPS: Tunable = interface(
    "rps_cpus",
    "with one queue a single core processes all packets unless RPS distributes them",
    Measured,
    "slower on two cores: 0.8 of the 4 KiB commands; not measured with more",
);
pub(super) static RX_RING: Tunable = interface(
    "rx_ring",
    "packets are dropped when the ring is full",
    Documentation,
    "helps only if the card counts drops",
);
pub(super) static TSO: Tunable =
    interface("tso", "the card segments large sends instead of the CPU", Documentation, "CPU time of every read");
pub(super) static GRO: Tunable = interface(
    "gro",
    "packets of a connection are merged before TCP processing",
    Documentation,
    "CPU time of every write",
);
pub(super) static IRQ_AFFINITY: Tunable = Tunable {
    name: "irq_affinity",
    kind: Kind::Interrupts,
    why: "each queue has its own core on the NUMA node of the card",
    effect: "+5,000 to 10,000 IOPS below 20 parallel readers, nothing above (S4, ixgbe)",
    source: Paper,
};

pub(super) static GOVERNOR: Tunable = processor(
    "governor",
    "a core in a deep sleep state or at a low clock wakes slowly",
    Documentation,
    "lower \
         latency of single commands",
);
pub(super) static HALT_POLL: Tunable = processor(
    "guest_halt_poll_ns",
    "an idle virtual CPU halts at once and is slow to wake, unless it polls first",
    Measured,
    "2 to 2.9 times the 4 KiB commands of one session where a wakeup takes 30 us; costs CPU time of the hypervisor",
);
pub(super) static SHARD_CPUS: Tunable = processor(
    "shard_cpus",
    "access to memory, cards and disks of another socket is slower",
    Paper,
    "+5,000 to 10,000 IOPS below 20 parallel readers, nothing above (S4, with IRQs and queues)",
);
pub(super) static ISOLATED: Tunable = processor(
    "isolated",
    "isolated cores run only processes that are pinned to them",
    Documentation,
    "shards do not use them unless cpus in the configuration lists them",
);
pub(super) static IO_URING: Tunable = processor(
    "kernel.io_uring_disabled",
    "without io_uring the daemon uses threads",
    Documentation,
    "2 disables it for all, 1 for all but one group",
);
pub(super) static HUGE_PAGES: Tunable = memory(
    "transparent_hugepage",
    "the buffers of the daemon are allocated for its whole run time",
    Documentation,
    "none known; any value is good",
);
pub(super) static SWAPPINESS: Tunable = memory(
    "vm.swappiness",
    "a swapped-out page of the daemon adds a disk read to each access",
    Documentation,
    "helps only if memory is low",
);
pub(super) static MEMLOCK: Tunable = memory(
    "memlock",
    "kernels before 5.12 count rings as locked memory and refuse them beyond the limit",
    Documentation,
    "without rings the daemon uses threads",
);

/// All settings; docs/operate/tuning.md has a line for each.
#[cfg(test)]
pub(super) static ALL: [&Tunable; 42] = [
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
