//! Test with a real Linux initiator: Debian's kernel in QEMU, with a root file system built here, and a Blockyard
//! target outside.
//!
//! The test runs in a network namespace of its own with a tap device, so that the guest uses the real addresses of the
//! target. Scripts and results are exchanged on a 9p share.

mod absent;
mod guest;
pub(crate) mod image;
pub(crate) mod mirror;
mod remote;
mod requests;
mod scenario;

use crate::workspace;
use anyhow::{Result, ensure};
use clap::Args;
use lab::child::again_in_own_network;
use lab::target::Kind;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Options {
    /// Script of tests/initiator-vm that the guest runs
    #[arg(default_value = "first-lun")]
    scenario: String,
    /// Target to start
    #[arg(long, value_enum, default_value = "blockyard")]
    target: Kind,
    /// Kill the guest and fail after this number of minutes
    #[arg(long, default_value_t = 25)]
    minutes: u64,
    /// Print the output of the guest as it arrives
    #[arg(long)]
    verbose: bool,
    /// This process is already in a network namespace of its own
    #[arg(long, hide = true)]
    inside: bool,
}

/// Runs a scenario in a guest and prints its table; true when every check passed.
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
    // Before the namespace, which has no way to the mirror.
    image::build()?;
    again_in_own_network()
}

fn inside(options: &Options) -> Result<bool> {
    guest::make_network()?;
    // The image exists by now, so this only returns its paths.
    let image = image::build()?;
    let scratch = tempfile::tempdir()?;
    let limit = Duration::from_secs(options.minutes * 60);
    scenario::run(&options.scenario, options.target, &image, scratch.path(), limit, options.verbose)
}
