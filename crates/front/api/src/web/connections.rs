//! Connections that are open, and which of them ends when there are too many.
//!
//! Where an address has as many as it may, its connection that has been idle the longest is closed for the new one: connections that
//! somebody opens and forgets shut nobody out. A connection on which a request is under way is never closed for another.

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::Notify;

/// Connections in all, and from one address. A browser takes six.
const ALL_MAX: usize = 512;
const ONE_MAX: usize = 64;

/// The connections that are open.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    /// Counts admissions and ends of requests: the order of who is idle since when.
    turns: u64,
    all: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    from: IpAddr,
    /// The turn at which it was idle last; none while a request is under way.
    idle_since: Option<u64>,
    end: Arc<Notify>,
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub struct Connection {
    open: Connections,
    number: u64,
    end: Arc<Notify>,
}

/// A request that is under way on a connection, until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<Connection>);

impl Connections {
    /// One more connection from there, which is idle. Another may have been told to [end](Connection::must_end) for it; none where all
    /// that could are busy.
    pub fn admit(&self, from: IpAddr) -> Option<Connection> {
        let mut open = self.open();
        let mut of_each: BTreeMap<IpAddr, usize> = BTreeMap::new();
        open.all.values().for_each(|entry| *of_each.entry(entry.from).or_default() += 1);
        let crowded = match of_each.get(&from) {
            Some(&count) if count >= ONE_MAX => Some(from),
            _ if open.all.len() >= ALL_MAX => of_each.iter().max_by_key(|(_, count)| **count).map(|(of, _)| *of),
            _ => None,
        };
        if let Some(of) = crowded {
            let idle = open.all.iter().filter(|(_, entry)| entry.from == of && entry.idle_since.is_some());
            let number = idle.min_by_key(|(_, entry)| entry.idle_since).map(|(number, _)| *number)?;
            open.all.remove(&number)?.end.notify_one();
        }
        open.turns += 1;
        let (number, end) = (open.turns, Arc::new(Notify::new()));
        open.all.insert(number, Entry { from, idle_since: Some(number), end: end.clone() });
        Some(Connection { open: self.clone(), number, end })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// A request begins.
    pub fn begin(self: &Arc<Self>) -> Busy {
        if let Some(entry) = self.open.open().all.get_mut(&self.number) {
            entry.idle_since = None;
        }
        Busy(self.clone())
    }

    /// Ready when it must end for another.
    pub async fn must_end(&self) {
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
        let mut open = self.0.open.open();
        open.turns += 1;
        let now = open.turns;
        if let Some(entry) = open.all.get_mut(&self.0.number) {
            entry.idle_since = Some(now);
        }
    }
}

/// A body whose request is under way until it has been sent.
pub struct Sent {
    body: Body,
    _busy: Busy,
}

impl Sent {
    /// This one, of that request.
    pub fn new(body: Body, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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

    #[test]
    fn longest_idle_connection_of_an_address_ends_for_its_next_one() {
        let open = Connections::default();
        let held: Vec<Arc<Connection>> =
            (0..ONE_MAX).map(|_| Arc::new(open.admit(address(1)).expect("there is room"))).collect();
        let busy = held[0].begin();
        drop(held[1].begin());
        let next = open.admit(address(1)).expect("an idle one ends for it");
        let ends: Vec<usize> = (0..ONE_MAX).filter(|&at| ended(&held[at])).collect();
        assert_eq!(ends, [2], "the first is busy, the second was busy last");
        drop(busy);
        let busy: Vec<Busy> = held.iter().map(Connection::begin).collect();
        open.admit(address(1)).expect("the one that was admitted last is idle");
        assert!(ended(&next));
        let all = open.0.lock().expect("whole").all.len();
        assert_eq!(all, ONE_MAX - 1, "what has ended for another does not count, and what was dropped neither");
        let _last = Arc::new(open.admit(address(1)).expect("there is room again")).begin();
        assert!(open.admit(address(1)).is_none(), "all are busy");
        assert!(open.admit(address(2)).is_some(), "nobody else is concerned");
        drop((held, busy));
    }

    #[test]
    fn address_with_the_most_connections_gives_one_up_where_all_have_too_many() {
        let open = Connections::default();
        let mut held: Vec<Connection> = (0..ONE_MAX).map(|_| open.admit(address(1)).expect("there is room")).collect();
        held.extend((ONE_MAX..ALL_MAX).map(|at| open.admit(address(2 + at % 100)).expect("there is room")));
        let newest = open.admit(address(200)).expect("one of the first address ends for it");
        let ends: Vec<usize> = (0..ALL_MAX).filter(|&at| ended(&held[at])).collect();
        assert_eq!(ends, [0]);
        drop((held, newest));
        assert_eq!(open.0.lock().expect("whole").all.len(), 0, "nobody is remembered");
    }
}
