//! Session of the project's initiator over a simulated TCP connection, as a run uses it.

use initiator::{LoginError, SessionError, login};
use iscsi::initiator::{Command, Completion, Config};
use iscsi::pdu::{Lun, TaskFunction, TaskFunctionOutcome};
use iscsi::{CloseReason, TaskId};
use shard::World;
use sim::Sim;
use std::net::SocketAddr;
use std::rc::Rc;

/// Session in full feature phase. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Session(initiator::Session<Sim>);

/// Outcome of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The command ended.
    Completed(Completion),
    /// The task management function ended.
    Managed(TaskFunctionOutcome),
    /// The ping was answered, with this data.
    Pong(Vec<u8>),
    /// Task management aborted the command.
    Aborted,
    /// The session ended first, or the target rejected the request ([`Session::wrong`]).
    Lost,
}

/// Reason for which there is no session.
pub(crate) enum NoSession {
    /// The network failed or nothing listens.
    Unreachable,
    /// Violation by the target, in words: it refuses the login or breaks the protocol.
    Wrong(String),
}

impl Session {
    /// Connects to `portal` and logs in.
    pub(crate) async fn login(world: &Sim, portal: SocketAddr, config: Rc<Config>) -> Result<Self, NoSession> {
        let limit = config.login_timeout;
        let (stream, machine) = login::connect(world, config, portal).await.map_err(no_session)?;
        // One limit for the whole login, not for each of its steps.
        let until = (world.now() + limit, limit);
        match login::enter(world, stream, machine, portal, until).await.map_err(no_session)? {
            Ok(entered) => Ok(Self(initiator::Session::start(world, entered))),
            // The portals of a run redirect nobody.
            Err(elsewhere) => Err(NoSession::Wrong(format!("sent to {elsewhere}"))),
        }
    }

    /// Returns the target's handle of the session.
    pub(crate) fn tsih(&self) -> u16 {
        self.0.negotiated().identity.tsih.0
    }

    /// Sends `command` and waits for its end; passes the task identifier to `named` immediately.
    pub(crate) async fn command(&self, command: Command, named: impl FnOnce(TaskId)) -> Answer {
        answer(self.0.execute_named(command, named).await.map(Answer::Completed))
    }

    /// Sends a task management function and waits for its end.
    pub(crate) async fn manage(&self, function: TaskFunction, lun: Lun, referenced: Option<TaskId>) -> Answer {
        answer(self.0.manage_task(function, lun, referenced).await.map(Answer::Managed))
    }

    /// Pings the target.
    pub(crate) async fn ping(&self, data: &[u8]) -> Answer {
        answer(self.0.echo(data).await.map(Answer::Pong))
    }

    /// Logs out and waits until the connection is closed.
    pub(crate) async fn logout(&self) {
        self.0.log_out().await;
    }

    /// Drops the connection without a logout.
    pub(crate) fn drop_connection(&self) {
        self.0.drop_connection();
    }

    /// Returns the reason for which the session ended, if it did.
    pub(crate) fn ended(&self) -> Option<CloseReason> {
        self.0.ended()
    }

    /// Returns the protocol violation of the target, if any.
    pub(crate) fn wrong(&self) -> Option<String> {
        let rejected = self.0.rejected().map(|reason| format!("the target rejected a PDU: {reason:?}"));
        rejected.or_else(|| match self.ended() {
            Some(CloseReason::Violation(violation)) => Some(format!("the target broke the protocol: {violation}")),
            _ => None,
        })
    }
}

fn answer(ended: Result<Answer, SessionError>) -> Answer {
    ended.unwrap_or_else(|error| match error {
        SessionError::Aborted => Answer::Aborted,
        SessionError::Ended(_) | SessionError::Rejected(_) | SessionError::TimeLimit(_) => Answer::Lost,
    })
}

fn no_session(error: LoginError) -> NoSession {
    match error {
        // A status in the Login Response is the target's decision, unlike a failure of the network.
        LoginError::Refused { reason: CloseReason::LoginRefused(status), .. } => {
            NoSession::Wrong(format!("refused: {status:?}"))
        }
        LoginError::Refused { reason: CloseReason::Violation(violation), .. } => {
            NoSession::Wrong(violation.to_string())
        }
        // The network, or a data plane that is down: neither is a fault of the target.
        _ => NoSession::Unreachable,
    }
}
