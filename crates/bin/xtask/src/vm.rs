//! A real Linux initiator: Debian's kernel under QEMU, its root built here, a target of ours outside.
//!
//! The whole runs in a network namespace of its own with a tap, so that the guest sees the target's
//! true addresses. Scripts and results cross on a 9p share.

mod absent;
mod asks;
mod guest;
pub(crate) mod image;
pub(crate) mod mirror;
mod remote;
mod scenario;

use crate::workspace;
use anyhow::{Result, ensure};
use clap::Args;
use lab::child::again_in_own_network;
use lab::target::Kind;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Options {
    /// Which script of tests/initiator-vm the guest runs
    #[arg(default_value = "first-lun")]
    scenario: String,
    /// Which target to start
    #[arg(long, value_enum, default_value = "blockyard")]
    target: Kind,
    /// Give up, and kill the guest, after so many minutes
    #[arg(long, default_value_t = 25)]
    minutes: u64,
    /// Print what the guest says as it comes out
    #[arg(long)]
    verbose: bool,
    /// This process is already in a network namespace of its own
    #[arg(long, hide = true)]
    inside: bool,
}

/// Runs one scenario in a guest and prints its table; true when every check of it held.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.inside {
        return inside(options);
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "a guest with a network of its own needs root: sudo cargo xtask vm (debootstrap, tap)"
    );
    let script = workspace::root().join("tests/initiator-vm").join(&options.scenario);
    ensure!(script.is_file(), "there is no scenario {}", script.display());
    image::build()?;
    again_in_own_network()
}

fn inside(options: &Options) -> Result<bool> {
    guest::make_network()?;
    let image = image::build()?;
    let scratch = tempfile::tempdir()?;
    let limit = Duration::from_secs(options.minutes * 60);
    scenario::run(&options.scenario, options.target, &image, scratch.path(), limit, options.verbose)
}
