//! Initiator role: connections of a session.

mod command;
mod config;
mod connection;
mod data_in;
mod event;
mod full_feature;
mod login;
mod numbering;
mod requests;
mod task;

pub use crate::close::CloseReason;
pub use config::{Config, TASKS_MAX};
pub use connection::Connection;
pub use event::{Command, Completion, DataIn, Event, Sense, Target};
