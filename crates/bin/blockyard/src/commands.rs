//! Commands that talk to the daemon: each builds its requests and prints the answer.
//!
//! Called by `main`. Commands must not read the state folder or open disks; everything goes through the API.

mod alerts;
mod audit;
mod auth;
mod config;
mod connect;
mod debug;
mod disks;
mod doctor;
mod events;
mod forward;
mod groups;
mod hosts;
mod isns;
mod latency;
mod log;
mod new_disks;
mod new_file;
mod operations;
mod pools;
mod portals;
mod presentations;
mod sessions;
mod snapshots;
mod state;
mod status;
mod support;
mod top;
mod tune;
mod up;
mod users;
mod volumes;
mod web;

use crate::args::{Cli, Command, Global, PresentationCommand};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::Output;
use clap::CommandFactory;
use model::{Name, Size};

/// Context of a command: the client, and the output settings.
pub(crate) struct CommandContext {
    pub client: Client,
    pub out: Output,
}

/// Runs a command, and prints its answer.
pub(crate) fn run(command: Command, global: &Global) -> Result<(), Failure> {
    let desk = CommandContext { client: Client::new(global)?, out: Output::new(global) };
    match command {
        Command::Disk(command) => disks::run(&desk, command),
        Command::Pool(command) => pools::run(&desk, command),
        Command::Volume(command) => volumes::run(&desk, command),
        Command::Snapshot(command) => snapshots::run(&desk, command),
        Command::Host(command) => hosts::run(&desk, command),
        Command::Group(command) => groups::run(&desk, command),
        Command::Auth(command) => auth::run(&desk, command),
        Command::Target(command) => hosts::run_target(&desk, command),
        Command::Present(options) => presentations::present(&desk, options),
        Command::Unpresent(options) => presentations::unpresent(&desk, &options),
        Command::Connect(options) => connect::connect(&desk, &options),
        Command::Presentation(PresentationCommand::List(options)) => presentations::list(&desk, &options),
        Command::Alert(command) => alerts::run(&desk, command),
        Command::Event(command) => events::run(&desk, command),
        Command::Session(command) => sessions::run(&desk, &command),
        Command::Portal(command) => portals::run(&desk, command),
        Command::Isns(command) => isns::run(&desk, &command),
        Command::Export => config::export(&desk),
        Command::Diff(options) => config::diff(&desk, &options),
        Command::Apply(options) => config::apply(&desk, options),
        Command::Config(command) => config::run(&desk, &command),
        Command::State(command) => state::run(&desk, &command),
        Command::Operation(command) => operations::run(&desk, &command),
        Command::Top(options) => top::run(&desk, &options),
        Command::Up(options) => up::run(&desk, &options),
        Command::Log { limit } => log::run(&desk, limit),
        Command::Support(command) => support::run(&desk, command),
        Command::Debug(command) => debug::run(&desk, &command),
        Command::Doctor { discover } => doctor::run(&desk, &discover),
        Command::Tune(command) => tune::run(&desk, &command),
        Command::Web(command) => web::run(&desk, command),
        Command::User(command) => users::run(&desk, command),
        Command::Token(command) => users::run_token(&desk, command),
        Command::Audit(command) => audit::run(&desk, command),
        Command::Status { check } => status::status(&desk, check),
        Command::Serve(_)
        | Command::Conform(_)
        | Command::Ready(_)
        | Command::Lab(_)
        | Command::Completion { .. }
        // `main::run` has handled them before a client exists.
        | Command::Manual { .. } => unreachable!("these need no daemon and run before"),
    }
}

/// Prints a completion script to stdout.
pub(crate) fn completion(shell: clap_complete::Shell) -> Result<(), Failure> {
    // Buffered, because `clap_complete` panics if the writer fails, as a closed pipe does.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "blockyard", &mut script);
    crate::output::put(&String::from_utf8_lossy(&script))
}

/// Returns the API path of a pool.
pub(crate) fn pool_path(pool: &Name) -> String {
    format!("/pools/{pool}")
}

/// Formats a count with its noun: `1 session`, `2 sessions`.
fn counted(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats a table cell for an optional value.
fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// Formats a table cell for several values.
fn joined(values: &[impl ToString]) -> String {
    if values.is_empty() {
        "-".to_owned()
    } else {
        values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Formats a table cell for a size; zero means unknown.
fn known(size: Size, text: fn(Size) -> String) -> String {
    if size == Size::ZERO { "-".to_owned() } else { text(size) }
}
