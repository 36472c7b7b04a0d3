//! A listening address: accepts connections on the conductor and deals them to all shards in turn.

use crate::registry::LoginPlace;
use crate::seat::{Letter, Seat};
use shard::mailbox::{self, Receiver, Sender};
use shard::{Listener, Stream, World};
use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// How long we wait before we accept again when the system is short of something.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// A portal that listens until it is dropped.
pub struct OpenPortal {
    /// Where it listens, with its real port.
    pub address: SocketAddr,
    /// True when hosts of IPv4 reach it though its address is one of IPv6.
    pub also_ipv4: bool,
    _open: Sender<()>,
}

impl OpenPortal {
    /// Listens on `address`; connections are dealt to the shards from now on.
    ///
    /// *Errors*: what the operating system says.
    pub fn open<W: World>(seat: &Rc<Seat<W>>, address: SocketAddr, next: Rc<Cell<usize>>) -> std::io::Result<Self> {
        let listener = seat.world.listen(address)?;
        let address = listener.local_address();
        let also_ipv4 = address.is_ipv6() && listener.takes_ipv4();
        let (open, closed) = mailbox::channel();
        seat.world.spawn(accept_until_closed(seat.clone(), listener, closed, next));
        Ok(Self { address, also_ipv4, _open: open })
    }
}

async fn accept_until_closed<W: World>(
    seat: Rc<Seat<W>>,
    listener: W::Listener,
    closed: Receiver<()>,
    next: Rc<Cell<usize>>,
) {
    loop {
        let mut accept = pin!(listener.accept(&seat.stream_options));
        let accepted = poll_fn(|cx| match closed.poll_receive(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => accept.as_mut().poll(cx).map(Some),
        });
        match accepted.await {
            None => return,
            Some(Ok(stream)) => match seat.registry.begin_login(stream.peer_address().ip(), seat.world.now()) {
                Some(place) => deal(&seat, stream, place, &next),
                // Dropped: the peer sees a reset, and a place is free again when another login ends.
                None => tracing::warn!(peer = %stream.peer_address(), "too many logins under way; connection closed"),
            },
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                seat.world.sleep(SHORTAGE_PAUSE).await;
            }
        }
    }
}

fn deal<W: World>(seat: &Rc<Seat<W>>, stream: W::Stream, place: LoginPlace, next: &Cell<usize>) {
    let home = next.get() % seat.limits.shards;
    next.set(next.get().wrapping_add(1));
    if home == seat.index {
        seat.world.spawn(crate::connection::serve(seat.clone(), stream, place));
    } else {
        let handle = stream.into_handle();
        seat.post(
            home,
            Letter::Run(Box::new(move |seat: Rc<Seat<W>>| match seat.world.adopt_stream(handle) {
                Ok(stream) => seat.world.spawn(crate::connection::serve(seat.clone(), stream, place)),
                Err(error) => tracing::warn!(%error, "a connection could not be taken over"),
            })),
        );
    }
}
