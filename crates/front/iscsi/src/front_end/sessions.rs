//! Single session: details, termination and packet captures.

use super::{IscsiFront, questions};
use crate::nexus::SessionId;
use crate::recording::{CaptureBuffer, Scope};
use crate::registry::{Entry, Notice};
use futures_util::future::{Either, select};
use model::{CommandWindow, Recordable, Recordings, Refusal, SessionDetail, SessionEnd, code};
use shard::World;
use shard::mailbox;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Time for a session to report its state.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Time for an initiator to log out after an operator has asked it to.
const LOGOUT_TIME: Duration = Duration::from_secs(5);
/// Margin by which the operator's timeout ends before that of the connection, so that a logout and a forced close can
/// be distinguished.
const SOONER: Duration = Duration::from_millis(100);
/// Poll interval while waiting for the logout.
const LOOK: Duration = Duration::from_millis(50);

impl<W: World> IscsiFront<W> {
    pub(super) async fn session_detail(&self, id: u32) -> Result<SessionDetail, Refusal> {
        let (_, entry) = self.session(id)?;
        let (tell, told) = mailbox::channel();
        // A session that is ending does not report.
        let _ = entry.notices.send(Notice::TellWindow { tell });
        let window: Option<CommandWindow> =
            match select(pin!(told.receive()), pin!(self.shard.world.sleep(ANSWER_TIME))).await {
                Either::Left((window, _)) => window,
                Either::Right(_) => None,
            };
        let roles = self.reservation_roles().await;
        let (view, now) = (self.shard.access.borrow().clone(), self.shard.world.now());
        Ok(SessionDetail {
            session: questions::session_report(&entry, &view, &roles, now),
            window,
            latencies: entry.counters.latencies.report(),
        })
    }

    /// Ends a session. Returns when nothing of it is running any longer.
    pub(super) async fn end_session(&self, id: u32, now: bool) -> Result<SessionEnd, Refusal> {
        let (key, entry) = self.session(id)?;
        // An orderly logout lets the initiator complete its commands, so it is tried first.
        if !now {
            // Ends before the connection's own deadline, so that a forced close is known to be ours.
            let until = self.shard.world.now() + (LOGOUT_TIME - SOONER);
            // A session that is ending needs no request.
            let _ = entry.notices.send(Notice::RequestLogout { within: LOGOUT_TIME });
            while self.shard.world.now() < until {
                self.shard.world.sleep(LOOK).await;
                if !self.shard.registry.is_here(key) {
                    return Ok(SessionEnd::LoggedOut);
                }
            }
        }
        let (gone, is_gone) = mailbox::channel();
        let _ = entry.notices.send(Notice::Close { gone });
        // Returns when the session has dropped the sender, at its very end.
        is_gone.receive().await;
        tracing::info!(initiator = entry.nexus.initiator, "session closed by an operator");
        Ok(SessionEnd::Dropped)
    }

    /// Closes a connection. Returns when it is closed.
    pub(super) async fn end_connection(&self, id: u32, cid: u16) -> Result<(), Refusal> {
        let (_, entry) = self.session(id)?;
        if !entry.connections.iter().any(|connection| connection.cid == cid) {
            let message = format!("session {id} has no connection {cid}");
            return Err(Refusal::new(code::CONNECTION_UNKNOWN, message, format!("see blockyard session show {id}")));
        }
        let (cut, is_cut) = mailbox::channel();
        // A session that is ending has no connections left.
        let _ = entry.notices.send(Notice::CloseConnection { cid, cut });
        is_cut.receive().await;
        tracing::info!(initiator = entry.nexus.initiator, cid, "connection closed by an operator");
        Ok(())
    }

    /// Starts a packet capture and returns its number.
    pub(super) fn record(&self, what: Recordable, time: Duration) -> Result<u64, Refusal> {
        let scope = match what {
            Recordable::Session(id) => Scope::Session(self.session(id)?.0),
            Recordable::From(network) => Scope::From(network),
        };
        let tape = CaptureBuffer::new(scope, self.shard.limits.recording_bytes_max, time, &self.shard.world);
        let number = self.shard.recordings.begin(tape.clone()).ok_or_else(|| {
            let message = format!("the limit of {} recordings is reached", self.shard.limits.recordings_max);
            Refusal::new(code::LIMIT_REACHED, message, "wait until one has finished, or stop one")
        })?;
        for (_, entry) in self.shard.registry.sessions() {
            // A session that is ending is not captured.
            let _ = entry.notices.send(Notice::Record(tape.clone()));
        }
        Ok(number)
    }

    /// Returns the records captured since the previous call, as soon as any exist; an empty, final result if the
    /// capture does not exist.
    pub(super) async fn next_recorded(&self, number: u64) -> Recordings {
        match self.shard.recordings.find(number) {
            Some(tape) => {
                // The capture ends by time here; nothing else watches its duration.
                let until = self.shard.world.sleep_until(tape.until());
                if let Either::Left((told, _)) = select(pin!(tape.next()), pin!(until)).await {
                    return told;
                }
                tape.end();
                // Ready at once, because the capture is over.
                tape.next().await
            }
            None => Recordings { is_over: true, ..Recordings::default() },
        }
    }

    /// Stops a capture and returns the records that were not read yet.
    pub(super) async fn stop_recording(&self, number: u64) -> Recordings {
        // Looked up first, because the end of the capture removes its entry.
        let tape = self.shard.recordings.find(number);
        self.shard.recordings.end(number);
        match tape {
            Some(tape) => tape.next().await,
            None => Recordings { is_over: true, ..Recordings::default() },
        }
    }

    fn session(&self, id: u32) -> Result<(SessionId, Arc<Entry>), Refusal> {
        let mut sessions = self.shard.registry.sessions().into_iter();
        sessions.find(|(_, entry)| u32::from(entry.tsih) == id).ok_or_else(|| {
            Refusal::new(code::SESSION_UNKNOWN, format!("session {id} does not exist"), "see blockyard session list")
        })
    }
}
