//! A network of TCP connections between simulated machines.

mod connection;
mod faults;
mod listener;
mod stream;

pub use faults::{Network, NetworkCounts, NetworkFaults};
pub use listener::SimListener;
pub(crate) use listener::{connect, listen};
pub use stream::SimStream;
pub(crate) use stream::adopt;

use crate::core::Core;
use crate::random::Random;
use connection::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// All connections and listeners of a world.
pub(crate) struct Net {
    connections: BTreeMap<u64, Connection>,
    listeners: BTreeMap<listener::Place, listener::Backlog>,
    faults: NetworkFaults,
    counts: NetworkCounts,
    /// Pairs of addresses, both ways, between which nothing passes.
    cuts: BTreeSet<(IpAddr, IpAddr)>,
    random: Random,
    next_id: u64,
    next_port: u16,
}

impl Net {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            connections: BTreeMap::new(),
            listeners: BTreeMap::new(),
            faults: NetworkFaults::default(),
            counts: NetworkCounts::default(),
            cuts: BTreeSet::new(),
            random,
            next_id: 0,
            next_port: 49_152,
        }
    }

    /// How long the next message takes.
    fn delay(&mut self) -> Duration {
        self.random.duration(&self.faults.delay)
    }

    /// An unused port.
    fn ephemeral_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = self.next_port.checked_add(1).unwrap_or(49_152);
        port
    }

    fn is_cut(&self, one: IpAddr, other: IpAddr) -> bool {
        self.cuts.contains(&(one, other))
    }

    /// The machine's ends of all connections are gone without a word.
    pub(crate) fn vanish(&mut self, node: usize) {
        for connection in self.connections.values_mut() {
            connection.vanish(node);
        }
        self.listeners.retain(|place, _| place.node != node);
    }

    /// What waits because its way was cut, or its receiver down, is looked at again.
    pub(crate) fn revive(&mut self, core: &Rc<Core>) {
        let now = core.now.get();
        for &id in self.connections.keys() {
            for side in [0, 1] {
                core.schedule(now, Box::new(move |core| connection::deliver(core, id, side)));
            }
        }
    }
}
