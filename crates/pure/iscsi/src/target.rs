//! The target's side of a connection.

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
mod respond;
mod task;
mod task_management;
mod text;

pub use crate::close::CloseReason;
pub use config::Config;
pub use connection::Connection;
pub use event::{
    Cdb, Command, Event, Gate, OpenGate, Response, SENSE_BYTES_MAX, SendTargets, Sense, TargetRecord, TaskManagement,
    Verdict,
};
