//! Meter readings of a measured point: places where its commands may have waited.

use serde::{Deserialize, Serialize};

/// Activity of both ends and of the path between them during the measurement. Missing meters leave fields empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Readings {
    /// Threads of the target's processes.
    pub threads: Vec<Thread>,
    /// Thread of the load.
    pub load: Option<Thread>,
    /// Cores of the machine.
    pub cores: Vec<Core>,
    /// Disks: members of pools, as counted by their daemon, and those of the machine.
    pub disks: Vec<Disk>,
    /// Network interfaces of the machine, without loopback.
    pub lines: Vec<Line>,
    /// Sockets of both ends, as far as they are on this machine.
    pub sockets: Vec<Sockets>,
    /// Time for which sessions had a command that the target's window did not admit, summed over all sessions.
    pub held_seconds: f64,
}

/// Thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Number of its process among those of the target, from zero.
    pub process: u32,
    /// Name of the thread.
    pub name: String,
    /// CPU time, in user and kernel mode.
    pub cpu_seconds: f64,
    /// Time in a run queue, waiting for a core.
    pub queued_seconds: f64,
}

/// Core of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Core {
    /// Number of the core.
    pub core: u32,
    /// Time in use, including interrupts.
    pub busy_seconds: f64,
    /// Steal time: the hypervisor ran something else.
    pub stolen_seconds: f64,
}

/// Disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Name: of the pool member, with the daemon's number, or of the kernel's device.
    pub name: String,
    /// True for a member of a pool, counted by its daemon.
    pub member: bool,
    /// Duration of the measurement.
    pub seconds: f64,
    /// Time with at least one operation in flight.
    pub busy_seconds: f64,
    /// Sum of the operations' latencies.
    pub waited_seconds: f64,
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
}

/// Network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Name of the interface.
    pub name: String,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Capacity in each direction, if the driver reports it.
    pub bytes_per_second: Option<u64>,
}

/// Sum over one end of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sockets {
    /// True for the target's end.
    pub server: bool,
    /// Number of connections.
    pub count: u32,
    /// Time with data to send or to be acknowledged.
    pub busy_seconds: f64,
    /// Part of it in which the peer's receive window was full.
    pub window_seconds: f64,
    /// Part of it in which the send buffer was too small.
    pub buffer_seconds: f64,
    /// Retransmitted segments.
    pub resent: u64,
}

impl Disk {
    /// Returns the utilization, from 0 to 1.
    #[must_use]
    pub fn busy(&self) -> f64 {
        ratio(self.busy_seconds, self.seconds)
    }

    /// Returns the mean number of operations in flight while the disk was busy.
    #[must_use]
    pub fn at_once(&self) -> f64 {
        ratio(self.waited_seconds, self.busy_seconds)
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.reads + self.writes
    }

    /// Returns the mean latency of an operation in seconds.
    #[must_use]
    pub fn each(&self) -> f64 {
        ratio(self.waited_seconds, self.operations() as f64)
    }
}

impl Line {
    /// Returns the utilization of the busier direction, from 0 to 1; none if the capacity is unknown.
    #[must_use]
    pub fn used(&self, seconds: f64) -> Option<f64> {
        // The directions do not share the capacity (full duplex), so the busier one counts.
        let most = self.received_bytes.max(self.sent_bytes) as f64;
        self.bytes_per_second.map(|carries| ratio(most, carries as f64 * seconds))
    }
}

/// Divides; zero if the divisor is not positive.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
