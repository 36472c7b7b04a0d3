//! What the network does to its users, and a count of what it did.

use super::connection;
use crate::core::Core;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

/// How bad the network is. Settable at any time during a run; the default is a quiet LAN that still
/// cuts and joins as TCP may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkFaults {
    /// How long a segment is under way. Segments of one direction never overtake each other.
    pub delay: RangeInclusive<Duration>,
    /// Bytes that one direction holds, sent and not yet read; beyond it writing waits.
    pub buffer_bytes: usize,
    /// How often a write is cut into segments that arrive at different times (per million).
    pub split_per_million: u32,
    /// How often a write takes, or a read gives, less than it could (per million).
    pub short_per_million: u32,
    /// How often a segment is answered by a reset of the connection instead of arriving (per million).
    pub reset_per_million: u32,
    /// How often a direction falls silent with a segment (per million), though nothing is lost,
    pub stall_per_million: u32,
    /// and for how long.
    pub stall: RangeInclusive<Duration>,
    /// How often a connection attempt is refused though there is a listener (per million).
    pub refuse_per_million: u32,
}

impl Default for NetworkFaults {
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(5)..=Duration::from_micros(50),
            buffer_bytes: 256 << 10,
            split_per_million: 100_000,
            short_per_million: 50_000,
            reset_per_million: 0,
            stall_per_million: 0,
            stall: Duration::from_secs(1)..=Duration::from_secs(120),
            refuse_per_million: 0,
        }
    }
}

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Connections made.
    pub connections: u64,
    /// Segments that were delivered.
    pub segments: u64,
    /// Writes that were cut into several segments.
    pub splits: u64,
    /// Reads and writes that were shorter than they could be.
    pub shorts: u64,
    /// Reads that gave bytes of several segments.
    pub merges: u64,
    /// Connections reset by the profile.
    pub resets: u64,
    /// Directions that fell silent.
    pub stalls: u64,
    /// Attempts refused by the profile.
    pub refusals: u64,
}

/// The network, as a test handles it.
#[derive(Clone)]
pub struct Network(Rc<Core>);

impl Network {
    pub(crate) fn new(core: Rc<Core>) -> Self {
        Self(core)
    }

    /// From now on the network is as bad as `faults` say.
    pub fn set_faults(&self, faults: NetworkFaults) {
        self.0.net.borrow_mut().faults = faults;
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> NetworkCounts {
        self.0.net.borrow().counts
    }

    /// Nothing passes between the two addresses any more, and nobody is told.
    pub fn cut(&self, one: IpAddr, other: IpAddr) {
        self.0.record("cut", 0, 0);
        self.0.net.borrow_mut().cuts.extend([(one, other), (other, one)]);
    }

    /// All cuts are mended; what waited arrives now.
    pub fn heal(&self) {
        self.0.record("heal", 0, 0);
        let mut net = self.0.net.borrow_mut();
        net.cuts.clear();
        net.revive(&self.0);
    }

    /// Every connection is reset, at both ends.
    pub fn reset_all(&self) {
        let ids: Vec<u64> = self.0.net.borrow().connections.keys().copied().collect();
        for id in ids {
            connection::reset(&self.0, id, 0);
            connection::reset(&self.0, id, 1);
        }
    }
}
