//! The command line: noun, then verb.

mod auth;
mod conform;
mod disk;
mod event;
mod host;
mod isns;
mod lab;
mod pool;
mod portal;
mod serve;
mod session;
mod snapshot;
mod volume;

pub use auth::{AuthCommand, ChapOptions};
pub use conform::{AimOptions, ConformOptions, ReadyOptions};
pub use disk::{DiskCommand, Light, SpareCommand};
pub use event::{EventCommand, Since};
pub use host::{GroupCommand, HostCommand, TargetCommand};
pub use isns::IsnsCommand;
pub use lab::{CompareOptions, KeepingOptions, LabCommand, LoadOptions, RunOptions};
pub use pool::{PoolCommand, ScrubCommand};
pub use portal::PortalCommand;
pub use serve::{IoChoice, ServeOptions};
pub use session::SessionCommand;
pub use snapshot::{LockOptions, SnapshotCommand, Until};
pub use volume::{PresentOptions, PresentationCommand, UnpresentOptions, VolumeCommand, VolumeSettingOptions};

use clap::{Args, Parser, Subcommand, ValueEnum};
use model::{Refusal, code};
use std::path::PathBuf;

/// Disks become pools, pools give volumes, volumes are presented to hosts over iSCSI.
#[derive(Debug, Parser)]
#[command(name = "blockyard", version, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "Example:
  blockyard serve &
  blockyard disk add /dev/sdb /dev/sdc /dev/sdd /dev/sde
  blockyard pool create tank --level raid6 sdb sdc sdd sde
  blockyard volume create tank/vm1 100GiB
  blockyard host add web --initiator iqn.1993-08.org.debian:01:abc123
  blockyard present tank/vm1 web

Exit codes: 0 done, 1 refused, 2 usage, 3 no daemon.")]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub struct Global {
    /// The daemon's socket [default: $BLOCKYARD_SOCKET, or /run/blockyard/blockyard.sock]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print as table or json [default: a table on a terminal, tab-separated in a pipe]
    #[arg(short, long, global = true, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub output: Option<Form>,
    /// Print tables without their first line
    #[arg(long, global = true)]
    pub no_headers: bool,
    /// Print nothing but what was asked for and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Columns for people.
    Table,
    /// One object, keys stable, sizes in bytes.
    Json,
}

/// The nouns, and the few verbs that stand alone.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground
    #[command(after_help = "Example:
  blockyard serve --config /etc/blockyard.toml
  blockyard serve --state-dir ./var/state --socket ./var/blockyard.sock --portal 127.0.0.1:3260")]
    Serve(ServeOptions),
    /// Say how everything is: what is so, what it means, what to do
    #[command(after_help = "Example:
  blockyard status
  blockyard status --check --quiet || mail -s 'array needs you' root < /dev/null")]
    Status {
        /// End with exit code 1 unless all is good
        #[arg(long)]
        check: bool,
    },
    /// Disks: list, show, locate, add, remove, fail, replace, spare
    #[command(subcommand, after_help = "Example:\n  blockyard disk list")]
    Disk(DiskCommand),
    /// Pools: create, list, show, set, scrub, export, import, destroy
    #[command(subcommand, after_help = "Example:\n  blockyard pool show tank")]
    Pool(PoolCommand),
    /// Volumes: create, list, show, set, resize, latency, clone, rollback, delete
    #[command(subcommand, after_help = "Example:\n  blockyard volume list")]
    Volume(VolumeCommand),
    /// Snapshots: create, list, lock, delete
    #[command(subcommand, after_help = "Example:\n  blockyard snapshot create tank/vm1 monday")]
    Snapshot(SnapshotCommand),
    /// Hosts: add, list, change, refused, explain, remove
    #[command(subcommand, after_help = "Example:\n  blockyard host list")]
    Host(HostCommand),
    /// Groups of hosts: add, list, join, leave, remove
    #[command(subcommand, after_help = "Example:\n  blockyard group add cluster web db")]
    Group(GroupCommand),
    /// Authentication: show, weakest, discovery
    #[command(subcommand, after_help = "Example:\n  blockyard auth show")]
    Auth(AuthCommand),
    /// Targets: add, list, remove; one is there from the start
    #[command(subcommand, after_help = "Example:\n  blockyard target list")]
    Target(TargetCommand),
    /// Show a volume to a host
    #[command(
        visible_alias = "map",
        after_help = "Example:
  blockyard present tank/vm1 web
  blockyard present tank/images web --lun 7 --read-only
  blockyard present tank/db web --also tank/log --spread 2
  blockyard present tank/scratch --everyone"
    )]
    Present(PresentOptions),
    /// Show a volume to a host no more
    #[command(visible_alias = "unmap", after_help = "Example:\n  blockyard unpresent tank/vm1 web")]
    Unpresent(UnpresentOptions),
    /// Presentations: list
    #[command(subcommand, after_help = "Example:\n  blockyard presentation list")]
    Presentation(PresentationCommand),
    /// Sessions: list, show, record, kill
    #[command(subcommand, after_help = "Example:\n  blockyard session list")]
    Session(SessionCommand),
    /// Portals: list, add, set, drain, resume, remove, balance
    #[command(subcommand, after_help = "Example:\n  blockyard portal list")]
    Portal(PortalCommand),
    /// The iSNS server that targets are registered with: show, set, off
    #[command(subcommand, after_help = "Example:\n  blockyard isns show")]
    Isns(IsnsCommand),
    /// Events: what has happened
    #[command(subcommand, after_help = "Example:\n  blockyard event list --follow")]
    Event(EventCommand),
    /// Try an iSCSI target, this one or any other, against the rules of the protocol
    #[command(after_help = "Example:
  blockyard conform iscsi://10.0.0.5/iqn.2026-11.io.blockyard:target
  blockyard conform iscsi://san/iqn.2003-01.org.linux-iscsi:disk/1 --only recovery

Units are read and nothing is written; sessions of other initiators are not touched. Exit code 1 when a rule is broken.")]
    Conform(ConformOptions),
    /// The benchmark lab: run, load, report, compare, genstream, checkstream
    #[command(
        subcommand,
        after_help = "Example:\n  blockyard lab run lab/scenarios/queue-depth.toml --out queue-depth.json"
    )]
    Lab(LabCommand),
    /// Ask a unit whether it has what a cluster, a hypervisor or a database needs
    #[command(after_help = "Example:
  blockyard ready --for windows-cluster iscsi://10.0.0.5/iqn.2026-11.io.blockyard:target
  blockyard ready --for vmware iscsi://san/iqn.2026-11.io.blockyard:target/3 --initiator iqn.1998-01.com.vmware:esx1

Every line is asked of the running unit, as the host sees it, and nothing is written. Exit code 1 when something is missing.")]
    Ready(ReadyOptions),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  blockyard completion bash > /etc/bash_completion.d/blockyard")]
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// A setting and its value, as `KEY=VALUE`.
fn setting(text: &str) -> Result<(String, String), Refusal> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| {
        let hint = "write it as KEY=VALUE, such as rebuild=fast";
        Refusal::new(code::REQUEST_INVALID, format!("\"{text}\" is no setting"), hint)
    })
}

#[cfg(test)]
mod tests;
