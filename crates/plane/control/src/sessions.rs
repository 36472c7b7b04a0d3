//! Sessions of hosts: who is logged in, what is under way, and how a session is ended.

use crate::core::Core;
use model::{Order, Refusal, SessionDetail, SessionEnd, SessionReport, TaskReport};
use std::sync::Arc;

/// Sessions of hosts, and their commands.
pub struct Sessions {
    pub(crate) core: Arc<Core>,
}

impl Sessions {
    /// Who is logged in.
    pub async fn list(&self) -> Result<Vec<SessionReport>, Refusal> {
        self.core.engine.sessions(Order::Sessions).await
    }

    /// One session in all detail.
    ///
    /// *Errors*: there is none of this number.
    pub async fn detail(&self, id: u32) -> Result<SessionDetail, Refusal> {
        Ok(*self.core.engine.session(Order::Session { id }).await?)
    }

    /// The session is over: its initiator was asked to log out first, unless `now`.
    ///
    /// *Errors*: there is none of this number.
    pub async fn end(&self, id: u32, now: bool) -> Result<SessionEnd, Refusal> {
        self.core.engine.session_end(Order::EndSession { id, now }).await
    }

    /// One connection of a session is cut off.
    ///
    /// *Errors*: there is none of this number.
    pub async fn end_connection(&self, id: u32, cid: u16) -> Result<SessionEnd, Refusal> {
        self.core.engine.done(Order::EndConnection { id, cid }).await?;
        Ok(SessionEnd::CutOff)
    }

    /// Commands that have no answer yet.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn tasks(&self) -> Result<Vec<TaskReport>, Refusal> {
        self.core.engine.tasks(Order::Tasks).await
    }
}
