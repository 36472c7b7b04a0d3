//! What the meters saw while a point was measured: where its commands may have waited.

use serde::{Deserialize, Serialize};

/// What both ends and the way between them did in the time that was measured. What a meter could not see is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// The threads of the processes that serve.
    pub threads: Vec<Thread>,
    /// The thread that makes the load.
    pub load: Option<Thread>,
    /// The machine's cores.
    pub cores: Vec<Core>,
    /// Disks: members of pools, as their daemon counts, and those of the machine.
    pub disks: Vec<Disk>,
    /// The machine's network interfaces, the loopback aside.
    pub lines: Vec<Line>,
    /// The sockets of both ends, as far as they are of this machine.
    pub sockets: Vec<Sockets>,
    /// How long sessions had a command to send and no place in the target's window, all sessions together.
    pub held_seconds: f64,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Which of the processes that serve, from zero.
    pub process: u32,
    /// What it calls itself.
    pub name: String,
    /// CPU time, user's and kernel's.
    pub cpu_seconds: f64,
    /// How long it could have run, and another had the core.
    pub queued_seconds: f64,
}

/// A core of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Core {
    /// Its number.
    pub core: u32,
    /// How long anything ran on it, interrupts too.
    pub busy_seconds: f64,
    /// How long the hypervisor ran something else instead.
    pub stolen_seconds: f64,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Its name: as the pool's member, with the daemon's number, or as the kernel's.
    pub name: String,
    /// True for a member of a pool, counted by its daemon.
    pub member: bool,
    /// How long it was measured.
    pub seconds: f64,
    /// How long at least one operation was under way.
    pub busy_seconds: f64,
    /// How long operations took, all together.
    pub waited_seconds: f64,
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Bytes that came in.
    pub received_bytes: u64,
    /// Bytes that went out.
    pub sent_bytes: u64,
    /// What it carries in each direction, where its driver tells.
    pub bytes_per_second: Option<u64>,
}

/// One end of all connections together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sockets {
    /// True for the target's end.
    pub server: bool,
    /// How many connections.
    pub count: u32,
    /// How long they had something to send or to be acknowledged.
    pub busy_seconds: f64,
    /// Of that, how long the other end's receive window was full.
    pub window_seconds: f64,
    /// Of that, how long the send buffer was too small.
    pub buffer_seconds: f64,
    /// Segments sent again.
    pub resent: u64,
}

impl Disk {
    /// How much of the time it was busy, from 0 to 1.
    #[must_use]
    pub fn busy(&self) -> f64 {
        ratio(self.busy_seconds, self.seconds)
    }

    /// How many operations were under way at once, while it was busy.
    #[must_use]
    pub fn at_once(&self) -> f64 {
        ratio(self.waited_seconds, self.busy_seconds)
    }

    /// How many operations it did.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.reads + self.writes
    }

    /// How long one took, in seconds.
    #[must_use]
    pub fn each(&self) -> f64 {
        ratio(self.waited_seconds, self.operations() as f64)
    }
}

impl Line {
    /// How much of the fuller direction was used, from 0 to 1; nothing where it is not known what it carries.
    #[must_use]
    pub fn used(&self, seconds: f64) -> Option<f64> {
        let most = self.received_bytes.max(self.sent_bytes) as f64;
        self.bytes_per_second.map(|carries| ratio(most, carries as f64 * seconds))
    }
}

/// The first through the second; zero where that says nothing.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
