//! `blockyard tune …`

use super::System;
use clap::{Args, Subcommand};
use model::Name;
use std::path::PathBuf;

/// What can be done with the system below the array.
#[derive(Debug, Subcommand)]
pub(crate) enum TuneCommand {
    /// Show the settings to change: present value, recommended value, reason, and effect
    #[command(after_help = "Nothing is changed. Run it on the array's own machine; as root it sees everything.
Disks and cards with the same values share a line.

Example:
  blockyard tune show
  blockyard tune show --all
  blockyard tune show --only network eth0/mtu")]
    Show {
        #[command(flatten)]
        which: TuneOptions,
        /// Show also the settings that are well as they are
        #[arg(long)]
        all: bool,
    },
    /// Set what show says is to be changed, now and whenever the machine starts
    #[command(
        after_help = "What somebody has to agree to is set only where --only names the knob. What was so before is kept for revert.
It needs root. Done twice, it changes nothing; what is refused is said, the rest is done, and the exit code is 1.

Example:
  blockyard tune apply --dry-run
  blockyard tune apply --yes
  blockyard tune apply --only eth0/mtu
  blockyard tune apply --print"
    )]
    Apply(TuneApplyOptions),
    /// Print what to set on a host, each with its reason
    #[command(
        after_help = "Nothing is changed anywhere. With a host's name timeouts are those for its paths; how it logs in is what blockyard connect prints.

Example:
  blockyard tune host --os linux
  blockyard tune host web --os windows --ports 2 --cores 16 --threads --queues 4
  blockyard tune host esx1 --os esxi"
    )]
    Host(TuneHostOptions),
    /// Set everything back to what it was before apply, and remove the files that keep it
    #[command(after_help = "Example:\n  blockyard tune revert")]
    Revert {
        /// Where sys, proc, dev and etc of the machine are
        #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
        root: PathBuf,
    },
}

/// Whom to tell.
#[derive(Debug, Args)]
pub(crate) struct TuneHostOptions {
    /// Which host
    pub host: Option<Name>,
    /// What runs on it
    #[arg(long = "os", value_enum, value_name = "SYSTEM")]
    pub system: System,
    /// How many ports of its cards carry iSCSI
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub ports: u16,
    /// How many cores it has
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: u16,
    /// Each of its cores is two processors (hyper-threading)
    #[arg(long)]
    pub threads: bool,
    /// How many queues each port is to have
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub queues: u16,
}

/// How knobs are set.
#[derive(Debug, Args)]
pub(crate) struct TuneApplyOptions {
    #[command(flatten)]
    pub which: TuneOptions,
    /// Only say what would be set
    #[arg(long)]
    pub dry_run: bool,
    /// Only print the files that would set it at each start
    #[arg(long, conflicts_with = "dry_run")]
    pub print: bool,
    /// Set it until the machine starts again, and write no files for later
    #[arg(long, conflicts_with = "print")]
    pub until_restart: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// Which knobs, and of what.
#[derive(Debug, Args)]
pub(crate) struct TuneOptions {
    /// Only these: disks, network, interfaces, interrupts, processors, memory, a disk or an interface, a knob, or sda/scheduler
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub only: Vec<String>,
    /// Where sys, proc, dev and etc of the machine are
    #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
    pub root: PathBuf,
}
