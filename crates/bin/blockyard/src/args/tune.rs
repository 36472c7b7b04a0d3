//! Arguments of `blockyard tune …`.

use super::System;
use clap::{Args, Subcommand};
use model::Name;
use std::path::PathBuf;

/// Actions on the settings of the operating system.
#[derive(Debug, Subcommand)]
pub(crate) enum TuneCommand {
    /// Show the settings to change: present value, recommended value, reason, and effect
    #[command(after_help = "Read-only: changes nothing. Run it on the array itself; as root it shows all settings.
Disks and network cards with the same values share a line.

Example:
  blockyard tune show
  blockyard tune show --all
  blockyard tune show --only network eth0/mtu")]
    Show {
        #[command(flatten)]
        which: TuneOptions,
        /// Show also the settings that need no change
        #[arg(long)]
        all: bool,
    },
    /// Apply the recommended settings, now and at every start of the machine
    #[command(
        after_help = "Settings that need consent are applied only if --only names them. The previous values are \
             kept for revert.
Needs root. Idempotent. Refused settings are listed, the others are applied, and the exit code is 1.

Example:
  blockyard tune apply --dry-run
  blockyard tune apply --yes
  blockyard tune apply --only eth0/mtu
  blockyard tune apply --print"
    )]
    Apply(TuneApplyOptions),
    /// Print the recommended settings of a host, each with its reason
    #[command(
        after_help = "Read-only: prints commands. With the name of a host the timeouts fit its paths; blockyard \
             connect prints the login commands.

Example:
  blockyard tune host --os linux
  blockyard tune host web --os windows --ports 2 --cores 16 --threads --queues 4
  blockyard tune host esx1 --os esxi"
    )]
    Host(TuneHostOptions),
    /// Restore the settings from before apply, and remove the files that make them persistent
    #[command(after_help = "Example:\n  blockyard tune revert")]
    Revert {
        /// Root of the machine's sys, proc, dev and etc folders
        #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
        root: PathBuf,
    },
}

/// Options of `blockyard tune host`.
#[derive(Debug, Args)]
pub(crate) struct TuneHostOptions {
    /// Name of the host
    pub host: Option<Name>,
    /// Operating system of the host
    #[arg(long = "os", value_enum, value_name = "SYSTEM")]
    pub system: System,
    /// Number of ports of its cards that carry iSCSI
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub ports: u16,
    /// Number of its cores
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: u16,
    /// Count each core as two processors (hyper-threading)
    #[arg(long)]
    pub threads: bool,
    /// Number of queues of each port
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub queues: u16,
}

/// Options of `blockyard tune apply`.
#[derive(Debug, Args)]
pub(crate) struct TuneApplyOptions {
    #[command(flatten)]
    pub which: TuneOptions,
    /// Show the settings without applying them
    #[arg(long)]
    pub dry_run: bool,
    /// Print the files that apply the settings at every start, without writing them
    #[arg(long, conflicts_with = "dry_run")]
    pub print: bool,
    /// Apply the settings until the next restart, without files that make them persistent
    #[arg(long, conflicts_with = "print")]
    pub until_restart: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
}

/// Selection of settings.
#[derive(Debug, Args)]
pub(crate) struct TuneOptions {
    /// Select settings: disks, network, interfaces, interrupts, processors, memory, a disk or an interface, a setting,
    /// or sda/scheduler
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub only: Vec<String>,
    /// Root of the machine's sys, proc, dev and etc folders
    #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
    pub root: PathBuf,
}
