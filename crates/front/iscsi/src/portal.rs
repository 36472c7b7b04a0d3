//! Portal: accepts TCP connections on the conductor and distributes them over all shards round-robin.

use crate::iscsi_shard::{IscsiShard, Message};
use crate::registry::LoginSlot;
use shard::mailbox::{self, Receiver, Sender};
use shard::{Listener, Stream, World};
use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Back-off before the next accept after the operating system ran out of a resource.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Listening portal. Dropping it closes the socket.
pub(crate) struct OpenPortal {
    /// Address of the listening socket, with its actual port.
    pub address: SocketAddr,
    /// True when an IPv6 socket also accepts IPv4 connections.
    pub also_ipv4: bool,
    _open: Sender<()>,
}

impl OpenPortal {
    /// Listens on `address` and distributes accepted connections over the shards; `next` is the round-robin counter.
    ///
    /// *Errors*: those of the operating system.
    pub(crate) fn open<W: World>(
        shard: &Rc<IscsiShard<W>>,
        address: SocketAddr,
        next: Rc<Cell<usize>>,
    ) -> std::io::Result<Self> {
        let listener = shard.world.listen(address)?;
        let address = listener.local_address();
        // An IPv6 wildcard socket may accept IPv4 connections as well, which reports have to show.
        let also_ipv4 = address.is_ipv6() && listener.takes_ipv4();
        // No message is ever sent on this channel: dropping the sender ends the accept loop.
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
        // The close signal is polled first, so that a closed portal accepts no further connection.
        let accepted = poll_fn(|cx| match closed.poll_receive(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => accept.as_mut().poll(cx).map(Some),
        });
        match accepted.await {
            None => return,
            Some(Ok(stream)) => match shard.registry.begin_login(stream.peer_address().ip(), shard.world.now()) {
                Some(place) => assign_connection(&shard, stream, place, &next),
                // Dropped: the peer sees a reset. A slot becomes free when another login ends.
                None => tracing::warn!(peer = %stream.peer_address(), "too many logins under way; connection closed"),
            },
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Out of file descriptors or memory: the pending connection stays in the backlog, and an immediate
                // retry would spin.
                shard.world.sleep(SHORTAGE_PAUSE).await;
            }
        }
    }
}

fn assign_connection<W: World>(shard: &Rc<IscsiShard<W>>, stream: W::Stream, place: LoginSlot, next: &Cell<usize>) {
    // Round-robin over all portals together, so that the sessions spread evenly.
    let home = next.get() % shard.limits.shards;
    next.set(next.get().wrapping_add(1));
    if home == shard.index {
        shard.world.spawn(crate::connection::serve(shard.clone(), stream, place));
    } else {
        // A stream is bound to the reactor of its shard, so it is detached here and adopted by the other shard.
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
