//! A listening address: accepts connections on the conductor and deals them to all shards in turn.

use crate::iscsi_shard::{IscsiShard, Message};
use crate::registry::LoginPlace;
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
pub(crate) struct OpenPortal {
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
    pub(crate) fn open<W: World>(
        shard: &Rc<IscsiShard<W>>,
        address: SocketAddr,
        next: Rc<Cell<usize>>,
    ) -> std::io::Result<Self> {
        let listener = shard.world.listen(address)?;
        let address = listener.local_address();
        let also_ipv4 = address.is_ipv6() && listener.takes_ipv4();
        let (open, closed) = mailbox::channel();
        shard.world.spawn(accept_until_closed(shard.clone(), listener, closed, next));
        Ok(Self { address, also_ipv4, _open: open })
    }
}

async fn accept_until_closed<W: World>(
    shard: Rc<IscsiShard<W>>,
    listener: W::Listener,
    closed: Receiver<()>,
    next: Rc<Cell<usize>>,
) {
    loop {
        let mut accept = pin!(listener.accept(&shard.stream_options));
        let accepted = poll_fn(|cx| match closed.poll_receive(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => accept.as_mut().poll(cx).map(Some),
        });
        match accepted.await {
            None => return,
            Some(Ok(stream)) => match shard.registry.begin_login(stream.peer_address().ip(), shard.world.now()) {
                Some(place) => deal(&shard, stream, place, &next),
                // Dropped: the peer sees a reset, and a place is free again when another login ends.
                None => tracing::warn!(peer = %stream.peer_address(), "too many logins under way; connection closed"),
            },
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                shard.world.sleep(SHORTAGE_PAUSE).await;
            }
        }
    }
}

fn deal<W: World>(shard: &Rc<IscsiShard<W>>, stream: W::Stream, place: LoginPlace, next: &Cell<usize>) {
    let home = next.get() % shard.limits.shards;
    next.set(next.get().wrapping_add(1));
    if home == shard.index {
        shard.world.spawn(crate::connection::serve(shard.clone(), stream, place));
    } else {
        let handle = stream.into_handle();
        shard.post(
            home,
            Message::Run(Box::new(move |shard: Rc<IscsiShard<W>>| match shard.world.adopt_stream(handle) {
                Ok(stream) => shard.world.spawn(crate::connection::serve(shard.clone(), stream, place)),
                Err(error) => tracing::warn!(%error, "a connection could not be taken over"),
            })),
        );
    }
}
