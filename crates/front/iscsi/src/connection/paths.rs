//! TCP connections of a session: receiving, sending, loss, and transfer of a connection to the session that it joins.

use super::gate::UnitGate;
use super::{Connection, Progress};
use crate::access::canonical;
use crate::iscsi_shard::IscsiShard;
use crate::joining_connection::JoiningConnection;
use crate::recording::{CaptureBuffer, Recorder};
use crate::registry::{Notice, is_at};
use crate::scheduling::Quantum;
use crate::scsi_unit::{Completed, PendingCommand, ScsiUnit};
use crate::session::Endpoints;
use iscsi::target::ConnectionFacts;
use iscsi::{Negotiated, SendSlices, shorten};
use model::{ConnectionReport, ConnectionState, WireEnds};
use shard::{Stream, Time, World};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

/// TCP connection of a session.
pub(super) struct Path<W: World> {
    /// Socket.
    pub(super) stream: W::Stream,
    /// Addresses of the two endpoints.
    pub(super) ends: Endpoints,
    /// Packet captures that include the connection.
    recorders: Vec<Recorder>,
    /// True when received PDUs are left over for the next round.
    has_more: bool,
    /// Packet size reported by the latest MTU event.
    pub(super) told_mtu_bytes: Option<u32>,
}

impl<W: World> Path<W> {
    /// Creates a connection that was just accepted. Captures record it from its first byte on.
    pub(super) fn new(stream: W::Stream, shard: &IscsiShard<W>) -> Self {
        let mut path = Self::of(stream, Vec::new());
        // Before the login the session is unknown, so only captures by address match.
        let tapes = shard.recordings.of(path.ends.peer.ip(), None).into_iter();
        path.recorders =
            tapes.map(|tape| Recorder::from_the_start(tape, path.wire_ends(), shard.world.now())).collect();
        path
    }

    fn of(stream: W::Stream, recorders: Vec<Recorder>) -> Self {
        let ends = Endpoints { peer: stream.peer_address(), portal: stream.local_address() };
        Self { stream, ends, recorders, has_more: false, told_mtu_bytes: None }
    }

    fn wire_ends(&self) -> WireEnds {
        WireEnds { initiator: canonical(self.ends.peer), portal: canonical(self.ends.portal) }
    }
}

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<ScsiUnit<W>>, PendingCommand) -> F,
    F: Future<Output = Completed>,
{
    /// Receives once from each connection and handles the received bytes.
    pub(super) fn receive(&mut self, turn: &mut Quantum, cx: &mut Context<'_>) -> Progress {
        let mut progress = false;
        for slot in 0..self.paths.len() {
            let Some(path) = &mut self.paths[slot] else { continue };
            // Leftover PDUs are handled before more is received, so that the receive buffer stays bounded.
            if path.has_more {
                self.handle(slot, 0, self.shard.world.now(), turn);
                progress = true;
                continue;
            }
            // A capture that lost data resynchronizes at a PDU boundary, which is known only before the next receive.
            for recorder in &mut path.recorders {
                recorder.resync_receive(self.machine.pdu_progress(slot), self.shard.world.now());
            }
            let space = self.machine.receive_into(slot);
            // The state machine takes no more input while its output is full: TCP flow control reaches the host.
            if space.is_empty() {
                continue;
            }
            match path.stream.poll_read(cx, space) {
                Poll::Pending => continue,
                Poll::Ready(Ok(len)) if len > 0 => {
                    let now = self.shard.world.now();
                    path.recorders.iter_mut().for_each(|recorder| recorder.record_received(&space[..len], now));
                    self.handle(slot, len, now, turn);
                }
                // Zero bytes mean that the peer has closed; an error, that the connection is lost.
                Poll::Ready(end) => self.lose(slot, end.err()),
            }
            progress = true;
        }
        progress
    }

    /// Handles received bytes, up to the PDU limit of the round.
    fn handle(&mut self, slot: usize, len: usize, now: Time, turn: &mut Quantum) {
        let mut gate = UnitGate { session: self.session.as_mut(), shard: &self.shard, moment: now };
        let has_more = self.machine.handle_some(slot, len, turn.take_pdus(), now, &mut gate);
        if let Some(path) = &mut self.paths[slot] {
            path.has_more = has_more;
        }
    }

    /// Sends queued output on each connection, up to the byte limit of the round, and drops closed connections.
    pub(super) fn send(&mut self, turn: Quantum, cx: &mut Context<'_>) -> Progress {
        let mut progress = false;
        // The negative answer to a wrong CHAP response is delayed until the penalty is over.
        if self.answer_delay.is_some() {
            return progress;
        }
        for slot in 0..self.paths.len() {
            progress |= self.send_on(slot, turn.bytes(), cx);
            if self.paths[slot].is_some() && self.machine.is_closed(slot) {
                let now = self.shard.world.now();
                // Dropping the stream closes the socket.
                let path = self.paths[slot].take();
                path.into_iter().flat_map(|path| path.recorders).for_each(|mut recorder| recorder.end_at(now));
                self.note_connections();
                progress = true;
            }
        }
        progress
    }

    /// Sends once: at most `bytes_max` plus the rest of one slice.
    fn send_on(&mut self, slot: usize, bytes_max: usize, cx: &mut Context<'_>) -> Progress {
        let Some(path) = self.paths[slot].as_mut().filter(|_| self.machine.wants_to_send(slot)) else { return false };
        let unsent_bytes = self.machine.unsent_bytes(slot);
        path.recorders.iter_mut().for_each(|recorder| recorder.resync_send(unsent_bytes));
        let mut slices = SendSlices::new();
        self.machine.gather(slot, &mut slices);
        // Truncated to the byte limit of the round; the rest is sent in a later one.
        if unsent_bytes > bytes_max {
            shorten(&mut slices, bytes_max);
        }
        let sent = path.stream.poll_write(cx, &slices);
        // Recorded first: the slices are borrowed from the queue that `handle_transmitted` shortens.
        if let Poll::Ready(Ok(len)) = sent {
            path.recorders.iter_mut().for_each(|recorder| recorder.record_sent(&slices, len, self.shard.world.now()));
        }
        drop(slices);
        match sent {
            Poll::Pending => return false,
            Poll::Ready(Ok(len)) => self.machine.handle_transmitted(slot, len),
            Poll::Ready(Err(error)) => self.lose(slot, Some(error)),
        }
        true
    }

    /// Ends the session, including one that waits for a connection to recover its tasks.
    pub(super) fn close_session(&mut self) {
        self.machine.close();
    }

    /// Closes the connections that were accepted by `portal`. The initiators are notified if the socket accepts the
    /// data at once.
    pub(super) fn leave_portal(&mut self, portal: SocketAddr, cx: &mut Context<'_>) {
        for slot in 0..self.paths.len() {
            if self.paths[slot].as_ref().is_some_and(|path| is_at(path.ends.portal, portal)) {
                // An asynchronous event announces the end; nothing waits for a socket that is full.
                self.machine.announce_end(slot);
                while self.send_on(slot, usize::MAX, cx) {}
                self.machine.handle_peer_closed(slot);
            }
        }
    }

    /// Transfers a connection whose login joins an existing session to the task of that session. If the session no
    /// longer exists, the connection is closed.
    pub(super) fn hand_over(&mut self, facts: &Negotiated) {
        // `None` if bytes arrived behind the login, which the protocol does not permit.
        let joining = self.machine.take_joining();
        // A connection that logs in is the only one, in slot 0.
        let path = self.paths[0].take().map(|path| (path.stream.into_handle(), path.recorders));
        let (Some(joining), Some((stream, recorders)), Some(id)) = (joining, path, self.admitted) else { return };
        tracing::info!(peer = %self.ends.peer, cid = facts.identity.cid.0, "one more connection of a session");
        // Without the session the notice is dropped, and the socket with it.
        self.shard.registry.tell(id, Notice::Join(Box::new(JoiningConnection { joining, stream, recorders })));
    }

    /// Adds a connection that has logged in to this session.
    pub(super) fn add_connection(&mut self, joiner: JoiningConnection) {
        let stream = match self.shard.world.adopt_stream(joiner.stream) {
            Ok(stream) => stream,
            Err(error) => return tracing::warn!(%error, "a connection could not be taken over"),
        };
        // A portal that is closed later notifies the session, which then has this connection among its own.
        if !self.shard.registry.is_open(stream.local_address()) {
            return tracing::info!(peer = %stream.peer_address(), "the portal was closed during the login; connection \
                 closed");
        }
        // The negotiated MaxConnections may be reached by now.
        let Some(slot) = self.machine.join(&joiner.joining, self.shard.world.now()) else {
            return tracing::warn!(peer = %stream.peer_address(), "the session has its maximum of connections; \
                 connection closed");
        };
        // A slot may lie behind the present end of the list; holes stay empty.
        let peer = stream.peer_address();
        self.paths.resize_with(self.paths.len().max(slot + 1), || None);
        self.path_ends.resize(self.paths.len(), self.ends);
        let path = Path::of(stream, joiner.recorders);
        self.path_ends[slot] = path.ends;
        self.paths[slot] = Some(path);
        self.check_path_mtu();
        let session = self.session.as_ref().map(|session| session.id);
        // Captures of this session start here; those by address have recorded the connection since it was accepted.
        for tape in self.shard.recordings.of(peer.ip(), session) {
            self.record_on(slot, &tape);
        }
        self.note_connections();
    }

    /// Records the matching connections of this session into `tape` from now on.
    pub(super) fn record(&mut self, tape: &CaptureBuffer) {
        for slot in 0..self.paths.len() {
            self.record_on(slot, tape);
        }
    }

    fn record_on(&mut self, slot: usize, tape: &CaptureBuffer) {
        let session = self.session.as_ref().map(|session| session.id);
        let Some(path) = &mut self.paths[slot] else { return };
        // Ended captures are removed here, because nothing else visits an idle recorder.
        path.recorders.retain(|recorder| !recorder.is_over());
        if tape.scope().takes(path.ends.peer.ip(), session)
            && !path.recorders.iter().any(|recorder| recorder.tells(tape))
        {
            let (heard, unsent_bytes) = (self.machine.pdu_progress(slot), self.machine.unsent_bytes(slot));
            let now = self.shard.world.now();
            path.recorders.push(Recorder::from_next_pdu(tape.clone(), path.wire_ends(), heard, unsent_bytes, now));
        }
    }

    /// Handles the loss of a connection.
    fn lose(&mut self, slot: usize, error: Option<std::io::Error>) {
        if let (Some(error), Some(path)) = (error, &self.paths[slot]) {
            tracing::debug!(peer = %path.ends.peer, %error, "connection lost");
        }
        self.machine.handle_peer_closed(slot);
    }

    /// Closes the connection with this CID.
    pub(super) fn close_connection(&mut self, cid: u16) {
        let found = self.machine.connections().find(|(_, facts)| facts.cid.0 == cid);
        if let Some((slot, _)) = found {
            self.machine.handle_peer_closed(slot);
        }
    }

    /// Updates the connection list of the session in the registry.
    pub(super) fn note_connections(&self) {
        let Some(session) = &self.session else { return };
        let report = |(slot, facts): (usize, ConnectionFacts)| ConnectionReport {
            cid: facts.cid.0,
            // A lost connection has no path any longer, so `path_ends` is read.
            address: self.path_ends[slot].peer,
            portal: self.path_ends[slot].portal,
            state: if facts.is_lost { ConnectionState::Lost } else { ConnectionState::Open },
            header_digest: facts.header_digest,
            data_digest: facts.data_digest,
        };
        self.shard.registry.note_connections(session.id, self.machine.connections().map(report).collect());
    }
}
