//! What CI and developers run: `cargo xtask tidy`, `conformance`, `differential`, `power-cut`, `links`, `crowd`, `vm`, `instructions`,
//! `package`.
//!
//! Each subcommand ends with one plain line that says how it went, and exits non-zero when it did
//! not go well.

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
    /// Holds the rules of the house: crate edges, unsafe, lengths, names, requirement rows, scripts
    Tidy,
    /// Runs libiscsi's test suite against a target and compares with docs/conformance
    Conformance(conformance::Options),
    /// Sends the same commands to our target and to tgtd, and explains each difference
    Differential(differential::Options),
    /// Kills the daemon under load and judges every block afterwards
    PowerCut(power_cut::Options),
    /// Fills the target with sessions and units, attacks it, and sees whether those who behave are served
    Crowd(crowd::Options),
    /// Counts the product's instructions per command, and finds rows that take more than they did
    Instructions(instructions::Options),
    /// Takes links below portals down and back, and puts NAT before them, between network namespaces
    Links(links::Options),
    /// Packs the Debian package, and judges it
    Package(package::Options),
    /// Boots Debian's kernel and lets its initiator use a target of ours
    Vm(vm::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// True when the task found everything as it should be.
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
