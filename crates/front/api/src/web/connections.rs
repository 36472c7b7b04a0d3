//! Limits on open connections, and the choice of the one that is closed when a limit is reached.
//!
//! An address at its limit gives up its longest idle connection for a new one, so connections that are opened and
//! forgotten, or held open on purpose, keep nobody out. A connection is busy, and never closed for another one, from
//! the authentication of its request until the answer has been sent.

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use std::collections::BTreeMap;
use std::io::Result;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// Limits on all connections, and on those from one address. A browser opens six.
const ALL_MAX: usize = 512;
const ONE_MAX: usize = 64;

/// Open connections.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    open: Arc<Mutex<Open>>,
    all_max: usize,
}

#[derive(Debug, Default)]
struct Open {
    /// Counter of admissions and of ends of requests; gives the order in which connections became idle.
    turns: u64,
    all: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    from: IpAddr,
    state: State,
    end: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Idle since this turn.
    Idle(u64),
    /// A request of an authenticated caller is in flight.
    Busy,
    /// The answer is complete but not fully sent.
    Sending,
}

/// One connection; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    open: Connections,
    number: u64,
    end: Arc<Notify>,
}

/// Request in flight on a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Connection>);

impl Connections {
    /// Creates the limits. All connections together use at most a quarter of the process's file descriptors.
    pub(crate) fn new(descriptors: Option<u64>) -> Self {
        // The rest is for disks and for sessions of hosts.
        let quarter = descriptors.and_then(|allowed| usize::try_from(allowed / 4).ok());
        Self { open: Arc::default(), all_max: quarter.map_or(ALL_MAX, |quarter| quarter.clamp(8, ALL_MAX)) }
    }

    /// Admits a connection, which is idle at first. Another one may be told to [end](Connection::must_end) for it.
    /// `None` if all candidates are busy.
    pub(crate) fn admit(&self, from: IpAddr) -> Option<Connection> {
        let from = network(from);
        let mut open = self.open();
        let of_one = open.all.values().filter(|entry| entry.from == from).count();
        let ends = match () {
            // The limit of one address first: an address must not displace connections of others.
            () if of_one >= ONE_MAX => Some(open.longest_idle(|entry| entry.from == from)),
            () if open.all.len() >= self.all_max => Some(open.longest_idle_of_the_most()),
            () => None,
        };
        if let Some(number) = ends {
            // Removed at once: a connection that was told to end does not count any more.
            open.all.remove(&number?)?.end.notify_one();
        }
        // The number of the admission is also the turn since which it is idle.
        let (number, end) = (open.turn(), Arc::new(Notify::new()));
        open.all.insert(number, Entry { from, state: State::Idle(number), end: end.clone() });
        Some(Connection { open: self.clone(), number, end })
    }

    /// Tells the `count` longest idle connections to end.
    pub(crate) fn end_idle(&self, count: usize) {
        let mut open = self.open();
        for _ in 0..count {
            // Busy connections are never ended, so fewer than `count` may be.
            let Some(entry) = open.longest_idle(|_| true).and_then(|number| open.all.remove(&number)) else { return };
            entry.end.notify_one();
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Longest idle connection among those for which `among` is true.
    fn longest_idle(&self, among: impl Fn(&Entry) -> bool) -> Option<u64> {
        let since = |entry: &Entry| if let State::Idle(turn) = entry.state { Some(turn) } else { None };
        let idle = self.all.iter().filter(|(_, entry)| among(entry));
        let idle = idle.filter_map(|(number, entry)| Some((since(entry)?, *number)));
        idle.min().map(|(_, number)| number)
    }

    /// Longest idle connection of the address with the most connections, among addresses with an idle one.
    fn longest_idle_of_the_most(&self) -> Option<u64> {
        let mut of_each: BTreeMap<IpAddr, (usize, bool)> = BTreeMap::new();
        for entry in self.all.values() {
            let (count, has_idle) = of_each.entry(entry.from).or_default();
            *count += 1;
            *has_idle |= matches!(entry.state, State::Idle(_));
        }
        // An address whose connections are all busy has none to give up.
        let (from, _) =
            of_each.into_iter().filter(|(_, (_, has_idle))| *has_idle).max_by_key(|(_, (count, _))| *count)?;
        self.longest_idle(|entry| entry.from == from)
    }
}

/// Address for counting. IPv6 addresses count by their /64 network, because every client has 2^64 of them.
fn network(address: IpAddr) -> IpAddr {
    // A mapped address counts as the IPv4 address that it stands for.
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

impl Connection {
    /// Marks the connection as busy with a request of an authenticated caller.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        // Whatever the state was: an authenticated request is in flight now.
        self.turn_to(|_| State::Busy, |_| true);
        Busy(self.clone())
    }

    /// Notes that everything written was sent.
    fn flushed(&self) {
        // From no other state: a flush in the middle of an answer does not make the connection idle.
        self.turn_to(State::Idle, |state| state == State::Sending);
    }

    /// Changes the state at the next turn, if `from` accepts the present state.
    fn turn_to(&self, next: impl FnOnce(u64) -> State, from: impl FnOnce(State) -> bool) {
        let mut open = self.open.open();
        let turn = open.turn();
        // The connection may have been removed in favor of another one.
        if let Some(entry) = open.all.get_mut(&self.number).filter(|entry| from(entry.state)) {
            entry.state = next(turn);
        }
    }

    /// Waits until the connection must end for another one.
    pub(crate) async fn must_end(&self) {
        // The permit is kept, so an end that was decided before is not missed.
        self.end.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.open().all.remove(&self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Handed over, but not idle before the last byte has left.
        self.0.turn_to(|_| State::Sending, |state| state == State::Busy);
    }
}

/// Body of an answer; its request is in flight until all of it was handed to the connection.
pub(crate) struct Sent {
    body: Body,
    _busy: Option<Arc<Busy>>,
}

impl Sent {
    /// Wraps the body of the answer to that request.
    pub(crate) fn new(body: Body, busy: Option<Arc<Busy>>) -> Self {
        Self { body, _busy: busy }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Stream of a connection that reports when everything written was sent.
pub(crate) struct Watched<S> {
    stream: S,
    connection: Arc<Connection>,
}

impl<S> Watched<S> {
    /// Wraps the stream of that connection.
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        // Only a completed flush proves that the answer has left; until then the connection is not idle.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.connection.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn address(n: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, u8::try_from(n).expect("few")])
    }

    fn ended(connection: &Connection) -> bool {
        connection.must_end().now_or_never().is_some()
    }

    fn many(open: &Connections, of: usize, count: usize) -> Vec<Arc<Connection>> {
        (0..count).map(|_| Arc::new(open.admit(address(of)).expect("there is room"))).collect()
    }

    fn answered(connection: &Arc<Connection>) {
        drop(connection.begin());
        connection.flushed();
    }

    #[test]
    fn longest_idle_connection_of_an_address_ends_for_its_next_one() {
        let open = Connections::new(None);
        let held = many(&open, 1, ONE_MAX);
        let busy = held[0].begin();
        answered(&held[1]);
        drop(held[2].begin());
        let next = open.admit(address(1)).expect("an idle one ends for it");
        let ends: Vec<usize> = (0..ONE_MAX).filter(|&at| ended(&held[at])).collect();
        assert_eq!(
            ends,
            [3],
            "the first is busy, the second was busy last, and the answer of the third is not sent yet"
        );
        held[2].flushed();
        drop(busy);
        let busy: Vec<Busy> = held.iter().map(Connection::begin).collect();
        open.admit(address(1)).expect("the one that was admitted last is idle");
        assert!(ended(&next));
        let all = open.open().all.len();
        assert_eq!(all, ONE_MAX - 1, "what has ended for another does not count, and what was dropped neither");
        let last = Arc::new(open.admit(address(1)).expect("there is room again"));
        let last = last.begin();
        assert!(open.admit(address(1)).is_none(), "all are busy");
        assert!(open.admit(address(2)).is_some(), "nobody else is concerned");
        drop((held, busy, last));
    }

    #[test]
    fn address_with_the_most_connections_gives_up_an_idle_one_where_all_have_too_many() {
        let open = Connections::new(None);
        let first = many(&open, 1, ONE_MAX);
        let second = many(&open, 2, ONE_MAX - 1);
        let others: Vec<_> = (0..ALL_MAX - 2 * ONE_MAX + 1)
            .map(|at| open.admit(address(3 + at % 100)).expect("there is room"))
            .collect();
        let newest = open.admit(address(200)).expect("one of the first address ends for it");
        assert_eq!((0..ONE_MAX).filter(|&at| ended(&first[at])).collect::<Vec<_>>(), [0]);
        let busy: Vec<Busy> = first.iter().map(Connection::begin).collect();
        let next = open.admit(address(201)).expect("all of the first are busy, and one of the second ends for it");
        assert_eq!((0..ONE_MAX - 1).filter(|&at| ended(&second[at])).collect::<Vec<_>>(), [0]);
        drop((first, second, others, busy, newest, next));
        assert_eq!(open.open().all.len(), 0, "nobody is remembered");
    }

    #[test]
    fn addresses_of_one_network_count_together_and_few_descriptors_bound_all() {
        let open = Connections::new(Some(160));
        let of = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!((network(of("2001:db8::1")), network(of("::ffff:10.0.0.1"))), (of("2001:db8::"), of("10.0.0.1")));
        let held: Vec<_> = (1..=41).map(|n| open.admit(address(n)).expect("an idle one ends for it")).collect();
        assert_eq!(held.iter().filter(|connection| ended(connection)).count(), 1, "40 are a quarter of 160");
        open.end_idle(10);
        assert_eq!(held.iter().filter(|connection| ended(connection)).count(), 10);
        assert_eq!(open.open().all.len(), 30);
    }
}
