//! Listening and connecting.

use super::connection::{Connection, End};
use super::stream::SimStream;
use crate::core::{Core, Node};
use shard::{Listener, StreamOptions};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Timeout of a connection attempt without an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Address of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListenerAddress {
    pub node: usize,
    address: SocketAddr,
}

/// Connections that wait to be accepted.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: VecDeque<SimStreamParts>,
    acceptor: Option<Waker>,
}

#[derive(Debug)]
struct SimStreamParts {
    id: u64,
    local: SocketAddr,
    peer: SocketAddr,
}

/// Listening socket of a simulated machine.
pub struct SimListener {
    core: Rc<Core>,
    place: ListenerAddress,
}

/// Listens on `address`; see [`World::listen`](shard::World::listen).
pub(crate) fn listen(core: &Rc<Core>, node: &Node, mut address: SocketAddr) -> io::Result<SimListener> {
    let ip = address.ip();
    // As bind(2): only addresses of this machine, a loopback address or a wildcard.
    if !ip.is_unspecified() && !ip.is_loopback() && !node.addresses.borrow().contains(&ip) {
        return Err(ErrorKind::AddrNotAvailable.into());
    }
    let mut net = core.net.borrow_mut();
    if address.port() == 0 {
        address.set_port(net.ephemeral_port());
    }
    let is_taken = |place: &ListenerAddress| {
        let other = place.address;
        let same_family = other.is_ipv4() == address.is_ipv4();
        // A wildcard address conflicts with all addresses of its family.
        let meets = other.ip() == ip || (same_family && (other.ip().is_unspecified() || ip.is_unspecified()));
        place.node == node.id && other.port() == address.port() && meets
    };
    if net.listeners.keys().any(is_taken) {
        return Err(ErrorKind::AddrInUse.into());
    }
    let place = ListenerAddress { node: node.id, address };
    net.listeners.insert(place, Backlog::default());
    Ok(SimListener { core: core.clone(), place })
}

/// Connects to `address`; see [`World::connect`](shard::World::connect).
pub(crate) async fn connect(core: &Rc<Core>, node: &Node, address: SocketAddr) -> io::Result<SimStream> {
    // The attempt and its answer take one network delay each.
    let there = core.net.borrow_mut().delay();
    node.timers.sleep_until(core.now.get() + there).await;
    let target = find_node(core, node, address.ip());
    let local_ip = if address.ip().is_loopback() { address.ip() } else { own_address(node, address)? };
    // A machine that is down, a cut path and an unknown address look alike: no answer.
    let is_silent = match &target {
        Some(target) => !target.is_up.get() || core.net.borrow().is_cut(local_ip, address.ip()),
        None => true,
    };
    let Some(target) = target.filter(|_| !is_silent) else {
        node.timers.sleep_until(core.now.get() + CONNECT_TIMEOUT).await;
        return Err(ErrorKind::TimedOut.into());
    };
    // Before the way back: the target may accept the connection while its answer travels.
    let stream = establish(core, node, &target, local_ip, address);
    let back = core.net.borrow_mut().delay();
    node.timers.sleep_until(core.now.get() + back).await;
    stream
}

fn establish(core: &Rc<Core>, from: &Node, to: &Node, local_ip: IpAddr, address: SocketAddr) -> io::Result<SimStream> {
    let net = &mut *core.net.borrow_mut();
    if net.random.chance(net.faults.refuse_per_million) {
        net.counts.refusals += 1;
        return Err(ErrorKind::ConnectionRefused.into());
    }
    let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    // The exact address first, then the wildcard of the family, then `[::]`, which accepts IPv4 as well.
    let exact = ListenerAddress { node: to.id, address };
    let wild = ListenerAddress { node: to.id, address: SocketAddr::new(any, address.port()) };
    let every = ListenerAddress { node: to.id, address: SocketAddr::new([0; 16].into(), address.port()) };
    let place = [exact, wild, every].into_iter().find(|place| net.listeners.contains_key(place));
    // A closed port answers immediately with a reset, unlike a machine that is down.
    let Some(place) = place else { return Err(ErrorKind::ConnectionRefused.into()) };
    let local = SocketAddr::new(local_ip, net.ephemeral_port());
    net.next_id += 1;
    let id = net.next_id;
    let connection = Connection::new([End::new(from.id, local), End::new(to.id, address)]);
    net.connections.insert(id, connection);
    net.counts.connections += 1;
    core.record("connect", id, u64::from(address.port()));
    let backlog = net.listeners.get_mut(&place).expect("it was found above");
    // The connection is open before it is accepted: the peer may send into its buffer already.
    backlog.waiting.push_back(SimStreamParts { id, local: address, peer: local });
    if let Some(acceptor) = backlog.acceptor.take() {
        acceptor.wake();
    }
    Ok(SimStream::new(core, id, 0, local, address))
}

fn find_node(core: &Core, own: &Node, ip: IpAddr) -> Option<Rc<Node>> {
    let nodes = core.nodes.borrow();
    if ip.is_loopback() {
        return nodes.get(own.id).cloned();
    }
    nodes.iter().find(|node| node.addresses.borrow().contains(&ip)).cloned()
}

fn own_address(node: &Node, towards: SocketAddr) -> io::Result<IpAddr> {
    let addresses = node.addresses.borrow();
    let same_family = addresses.iter().find(|own| own.is_ipv4() == towards.is_ipv4());
    same_family.copied().ok_or_else(|| ErrorKind::NetworkUnreachable.into())
}

impl Listener for SimListener {
    type Stream = SimStream;

    async fn accept(&self, _options: &StreamOptions) -> io::Result<SimStream> {
        poll_fn(|cx| {
            let mut net = self.core.net.borrow_mut();
            let Some(backlog) = net.listeners.get_mut(&self.place) else {
                return Poll::Ready(Err(ErrorKind::NotConnected.into()));
            };
            match backlog.waiting.pop_front() {
                Some(SimStreamParts { id, local, peer }) => {
                    self.core.record("accept", id, 0);
                    Poll::Ready(Ok(SimStream::new(&self.core, id, 1, local, peer)))
                }
                None => {
                    backlog.acceptor = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn local_address(&self) -> SocketAddr {
        self.place.address
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        // The borrow ends with the statement: closing the streams below borrows the network again.
        let backlog = self.core.net.borrow_mut().listeners.remove(&self.place);
        for parts in backlog.into_iter().flat_map(|backlog| backlog.waiting) {
            // Closed like an accepted stream, so that the connecting peer learns of it.
            drop(SimStream::new(&self.core, parts.id, 1, parts.local, parts.peer));
        }
    }
}
