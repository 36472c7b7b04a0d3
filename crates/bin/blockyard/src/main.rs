//! The `blockyard` program: the daemon (`serve`) and its command line.

// The future of a SCSI command nests a type for each device layer on its path, beyond the default limit of 128.
#![recursion_limit = "256"]

mod args;
mod budget;
mod client;
mod commands;
mod config;
mod confined;
mod confirm;
mod conform;
mod connect;
mod engine;
mod failure;
mod lab;
mod log;
mod manual;
mod nearest;
mod output;
mod privileged;
mod progress;
mod ready;
mod recover;
mod repeat;
mod secret;
mod serve;
mod stop;
mod systemd;
mod tune;
mod user;

use args::{Cli, Command, StateCommand};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

/// Allocator that zeroes memory when it is freed, so that secrets, states and data of hosts leave no copies.
#[global_allocator]
static WIPING: zeroizing_alloc::ZeroAlloc<std::alloc::System> = zeroizing_alloc::ZeroAlloc(std::alloc::System);

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) => failure::of_usage(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        // These work without a daemon, so no client is created for them.
        Command::Serve(options) => serve::serve(&options, cli.global.socket),
        Command::Completion { shell } => commands::completion(shell),
        Command::Manual { folder } => manual::write(&folder),
        Command::Conform(options) => conform::run(&options, &cli.global),
        Command::State(StateCommand::Recover(options)) => recover::run(&options, &cli.global),
        Command::Lab(command) => lab::run(&command, &cli.global),
        Command::Ready(options) => ready::run(&options, &cli.global),
        command => match cli.global.every {
            Some(seconds) => repeat::repeat_command(seconds, |command| commands::run(command, &cli.global)),
            None => commands::run(command, &cli.global),
        },
    }
}
