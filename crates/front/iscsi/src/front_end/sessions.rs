//! One session: how it is, and its end.

use super::{IscsiFront, questions};
use crate::nexus::SessionId;
use crate::recording::{Scope, Tape};
use crate::registry::{Entry, Notice};
use futures_util::future::{Either, select};
use model::{CommandWindow, Recordable, Recordings, Refusal, SessionDetail, SessionEnd, code};
use shard::World;
use shard::mailbox;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long a session may take to say how it is.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// How long an initiator may take to log out when it is asked to by an operator.
const LOGOUT_TIME: Duration = Duration::from_secs(5);
/// How much sooner we cut it off than its connection would by itself, to know which it was.
const SOONER: Duration = Duration::from_millis(100);
/// How often we look whether it has.
const LOOK: Duration = Duration::from_millis(50);

impl<W: World> IscsiFront<W> {
    pub(super) async fn session_detail(&self, id: u32) -> Result<SessionDetail, Refusal> {
        let (_, entry) = self.session(id)?;
        let (tell, told) = mailbox::channel();
        // A session that is just ending says nothing.
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

    /// The session is over when this returns, and nothing of it runs any more.
    pub(super) async fn end_session(&self, id: u32, now: bool) -> Result<SessionEnd, Refusal> {
        let (key, entry) = self.session(id)?;
        if !now {
            let until = self.shard.world.now() + (LOGOUT_TIME - SOONER);
            let _ = entry.notices.send(Notice::MoveAway { within: LOGOUT_TIME });
            while self.shard.world.now() < until {
                self.shard.world.sleep(LOOK).await;
                if !self.shard.registry.is_here(key) {
                    return Ok(SessionEnd::LoggedOut);
                }
            }
        }
        let (gone, is_gone) = mailbox::channel();
        let _ = entry.notices.send(Notice::Close { gone });
        is_gone.receive().await;
        tracing::info!(initiator = entry.nexus.initiator, "a session was ended by an operator");
        Ok(SessionEnd::CutOff)
    }

    /// The connection is over when this returns.
    pub(super) async fn end_connection(&self, id: u32, cid: u16) -> Result<(), Refusal> {
        let (_, entry) = self.session(id)?;
        if !entry.connections.iter().any(|connection| connection.cid == cid) {
            let message = format!("session {id} has no connection {cid}");
            return Err(Refusal::new(code::CONNECTION_UNKNOWN, message, format!("see blockyard session show {id}")));
        }
        let (cut, is_cut) = mailbox::channel();
        // A session that is just ending has no connection any more.
        let _ = entry.notices.send(Notice::Cut { cid, cut });
        is_cut.receive().await;
        tracing::info!(initiator = entry.nexus.initiator, cid, "a connection was ended by an operator");
        Ok(())
    }

    /// What goes over the wire is recorded from now on; the number of the recording.
    pub(super) fn record(&self, what: Recordable, time: Duration) -> Result<u64, Refusal> {
        let scope = match what {
            Recordable::Session(id) => Scope::Session(self.session(id)?.0),
            Recordable::From(network) => Scope::From(network),
        };
        let tape = Tape::new(scope, self.shard.limits.recording_bytes_max, time, &self.shard.world);
        let number = self.shard.recordings.begin(tape.clone()).ok_or_else(|| {
            let message = format!("{} recordings run already", self.shard.limits.recordings_max);
            Refusal::new(code::LIMIT_REACHED, message, "wait until one has ended, or end one")
        })?;
        for (_, entry) in self.shard.registry.sessions() {
            // A session that is just ending is not recorded.
            let _ = entry.notices.send(Notice::Record(tape.clone()));
        }
        Ok(number)
    }

    /// What was recorded since this was asked last, as soon as there is something; nothing of one that does not run.
    pub(super) async fn next_recorded(&self, number: u64) -> Recordings {
        match self.shard.recordings.find(number) {
            Some(tape) => {
                let until = self.shard.world.sleep_until(tape.until());
                if let Either::Left((told, _)) = select(pin!(tape.next()), pin!(until)).await {
                    return told;
                }
                tape.end();
                tape.next().await
            }
            None => Recordings { is_over: true, ..Recordings::default() },
        }
    }

    /// Nothing more is recorded; what was not asked for.
    pub(super) async fn stop_recording(&self, number: u64) -> Recordings {
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
            Refusal::new(code::SESSION_UNKNOWN, format!("there is no session {id}"), "see blockyard session list")
        })
    }
}
