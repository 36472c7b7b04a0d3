//! Simulated network of TCP connections between machines.

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
    listeners: BTreeMap<listener::ListenerAddress, listener::Backlog>,
    faults: NetworkFaults,
    counts: NetworkCounts,
    /// Pairs of addresses, in both directions, between which nothing is delivered.
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
            // First port of the dynamic range (RFC 6335 §6).
            next_port: 49_152,
        }
    }

    /// Draws the delay of the next message.
    fn delay(&mut self) -> Duration {
        self.random.duration(&self.faults.delay)
    }

    /// Returns an unused port.
    fn ephemeral_port(&mut self) -> u16 {
        let port = self.next_port;
        // Ports repeat after 16,384 connections without harm: a connection is identified by its number.
        self.next_port = self.next_port.checked_add(1).unwrap_or(49_152);
        port
    }

    fn is_cut(&self, one: IpAddr, other: IpAddr) -> bool {
        self.cuts.contains(&(one, other))
    }

    /// Removes the machine's ends of all connections without notice to the peers.
    pub(crate) fn drop_node(&mut self, node: usize) {
        for connection in self.connections.values_mut() {
            // Only marked: the connection itself goes when the streams of both ends are dropped.
            connection.drop_node(node);
        }
        self.listeners.retain(|place, _| place.node != node);
    }

    /// Attempts the delivery of segments that were held back by a cut or by a receiver that was down.
    pub(crate) fn revive(&mut self, core: &Rc<Core>) {
        let now = core.now.get();
        // Everything that was held back gets another attempt.
        for &id in self.connections.keys() {
            for side in [0, 1] {
                // As an event: `deliver` borrows the network, which is borrowed here.
                core.schedule(now, Box::new(move |core| connection::deliver(core, id, side)));
            }
        }
    }
}
