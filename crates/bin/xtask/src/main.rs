//! Tasks for CI and developers: `cargo xtask tidy`, `conformance`, `differential`, `power-cut`, `links`, `crowd`, `vm`,
//! `instructions`, `package`.
//!
//! Each subcommand ends with one line that states the result, and exits non-zero on failure.

mod client;
mod conformance;
mod crowd;
mod differential;
mod instructions;
mod links;
mod package;
mod power_cut;
mod tidy;
mod vm;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "xtask", about = "What CI and developers run", disable_version_flag = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the rules of the repository: crate edges, unsafe, lengths, names, requirement rows, scripts
    Tidy,
    /// Run libiscsi's test suite against a target and compare with docs/conformance
    Conformance(conformance::Options),
    /// Send the same commands to Blockyard and to tgtd, and require an explanation of each difference
    Differential(differential::Options),
    /// Kill the daemon under load and check every block afterwards
    PowerCut(power_cut::Options),
    /// Fill the target with sessions and units, attack it, and check that well-behaved sessions are served
    Crowd(crowd::Options),
    /// Count the product's instructions per command, and report rows that exceed their limit
    Instructions(instructions::Options),
    /// Take links below portals down and up again, and put NAT before them, between network namespaces
    Links(links::Options),
    /// Build the Debian package and check it
    Package(package::Options),
    /// Boot Debian's kernel and let its initiator use a Blockyard target
    Vm(vm::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            // Distinguishes a task that could not run from one with findings.
            ExitCode::from(2)
        }
    }
}

/// Runs a task; true when it found no fault.
fn run(task: Task) -> Result<bool> {
    match task {
        Task::Conformance(options) => conformance::run(&workspace::root(), &options),
        Task::Differential(options) => differential::run(&workspace::root(), &options),
        Task::PowerCut(options) => power_cut::run(&options),
        Task::Crowd(options) => crowd::run(&options),
        Task::Instructions(options) => instructions::run(&workspace::root(), &options),
        Task::Links(options) => links::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Vm(options) => vm::run(&options),
        Task::Tidy => tidy::run(&workspace::root()),
    }
}
