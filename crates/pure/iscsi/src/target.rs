//! Target role: sessions and their connections.

mod at_once;
mod command;
mod config;
mod connection;
mod data_out;
mod event;
mod full_feature;
mod link;
mod login;
mod logout;
mod ping;
mod recovery;
mod respond;
mod sent;
mod session;
mod task;
mod task_management;
mod text;

pub use crate::close::CloseReason;
pub use config::Config;
pub use connection::Joining;
pub use event::{
    Cdb, Command, CommandAtOnce, Enrolment, Event, Gate, OpenGate, Response, SENSE_BYTES_MAX, SendTargets, Sense,
    TargetRecord, TaskManagement, Verdict,
};
pub use session::{ConnectionFacts, Session};
pub use task::{CommandSnapshot, Stage};
