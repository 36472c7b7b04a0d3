//! Injectable network faults, and counters of those that occurred.

use super::connection;
use crate::core::Core;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

/// Fault profile of the network. Can be changed at any time; the default is a quiet LAN that still splits and merges as
/// TCP may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkFaults {
    /// Latency of a segment. Segments of one direction never overtake each other.
    pub delay: RangeInclusive<Duration>,
    /// Bytes that one direction can hold, sent and not yet read; writing waits beyond that.
    pub buffer_bytes: usize,
    /// Rate of writes that are split into segments with different delays (per million).
    pub split_per_million: u32,
    /// Rate of writes and reads that are shorter than possible (per million).
    pub short_per_million: u32,
    /// Rate of segments that are answered by a reset of the connection instead of arriving (per million).
    pub reset_per_million: u32,
    /// Rate of stalls of a direction (per million); nothing is lost.
    pub stall_per_million: u32,
    /// Duration of a stall.
    pub stall: RangeInclusive<Duration>,
    /// Rate of connection attempts that are refused although there is a listener (per million).
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

/// Counters of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Connections established.
    pub connections: u64,
    /// Segments delivered.
    pub segments: u64,
    /// Writes that were split into several segments.
    pub splits: u64,
    /// Reads and writes that were shorter than possible.
    pub shorts: u64,
    /// Reads that returned bytes of several segments.
    pub merges: u64,
    /// Connections reset by the profile.
    pub resets: u64,
    /// Directions that stalled.
    pub stalls: u64,
    /// Attempts refused by the profile.
    pub refusals: u64,
}

/// Handle with which a test controls the network.
#[derive(Clone)]
pub struct Network(Rc<Core>);

impl Network {
    pub(crate) fn new(core: Rc<Core>) -> Self {
        Self(core)
    }

    /// Sets the fault profile.
    pub fn set_faults(&self, faults: NetworkFaults) {
        self.0.net.borrow_mut().faults = faults;
    }

    /// Counters so far.
    #[must_use]
    pub fn counts(&self) -> NetworkCounts {
        self.0.net.borrow().counts
    }

    /// Cuts the path between two addresses, silently.
    pub fn cut(&self, one: IpAddr, other: IpAddr) {
        self.0.record("cut", 0, 0);
        self.0.net.borrow_mut().cuts.extend([(one, other), (other, one)]);
    }

    /// Repairs all cuts; held segments arrive now.
    pub fn heal(&self) {
        self.0.record("heal", 0, 0);
        let mut net = self.0.net.borrow_mut();
        net.cuts.clear();
        net.revive(&self.0);
    }

    /// Resets every connection at both ends.
    pub fn reset_all(&self) {
        let ids: Vec<u64> = self.0.net.borrow().connections.keys().copied().collect();
        for id in ids {
            connection::reset(&self.0, id, 0);
            connection::reset(&self.0, id, 1);
        }
    }
}
