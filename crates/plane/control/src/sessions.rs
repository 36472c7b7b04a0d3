//! Sessions of hosts: list, detail, commands in flight, and termination.

use crate::core::Core;
use model::{Order, Refusal, SessionDetail, SessionEnd, SessionReport, TaskReport};
use std::sync::Arc;

/// Sessions of hosts and their commands in flight.
pub struct Sessions {
    pub(crate) core: Arc<Core>,
}

impl Sessions {
    /// Lists the sessions.
    pub async fn list(&self) -> Result<Vec<SessionReport>, Refusal> {
        self.core.engine.sessions(Order::Sessions).await
    }

    /// Returns one session in detail.
    ///
    /// *Errors*: there is no such session.
    pub async fn detail(&self, id: u32) -> Result<SessionDetail, Refusal> {
        Ok(*self.core.engine.session(Order::Session { id }).await?)
    }

    /// Ends the session; its initiator is first asked to log out, unless `now`.
    ///
    /// *Errors*: there is no such session.
    pub async fn end(&self, id: u32, now: bool) -> Result<SessionEnd, Refusal> {
        self.core.engine.session_end(Order::EndSession { id, now }).await
    }

    /// Drops one connection of a session.
    ///
    /// *Errors*: there is no such connection.
    pub async fn end_connection(&self, id: u32, cid: u16) -> Result<SessionEnd, Refusal> {
        self.core.engine.done(Order::EndConnection { id, cid }).await?;
        Ok(SessionEnd::Dropped)
    }

    /// Lists the commands in flight.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn tasks(&self) -> Result<Vec<TaskReport>, Refusal> {
        self.core.engine.tasks(Order::Tasks).await
    }
}
