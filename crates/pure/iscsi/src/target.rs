//! Target role: sessions and their connections.

mod command;
mod config;
mod connection;
mod data_out;
mod event;
mod fast_path;
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
    Cdb, Command, CompleteCommand, Event, Gate, OpenGate, Response, SENSE_BYTES_MAX, SendTargets, Sense, TargetRecord,
    TaskManagement, Verdict, WaitGuard,
};
pub use session::{ConnectionFacts, Session};
pub use task::{CommandSnapshot, CommandStage};
