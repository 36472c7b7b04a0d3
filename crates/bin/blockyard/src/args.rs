//! Command line of `blockyard`, parsed by clap: a noun, then a verb.
//!
//! The doc comments of commands and options are the texts of `--help` and of the manual pages.

mod alert;
mod auth;
mod config;
mod conform;
mod connect;
mod debug;
mod disk;
mod event;
mod host;
mod isns;
mod lab;
mod list;
mod operation;
mod patience;
mod pool;
mod portal;
mod serve;
mod session;
mod snapshot;
mod state;
mod support;
mod top;
mod tune;
mod up;
mod user;
mod volume;
mod web;

pub(crate) use alert::{AlertCommand, ReceiverOptions};
pub(crate) use auth::{AuthCommand, ChapOptions};
pub(crate) use config::{ApplyOptions, ConfigCommand, DiffOptions, DisruptionOption, DocumentOptions};
pub(crate) use conform::{ConformOptions, ReadyOptions, TargetOptions, WhoOptions};
pub(crate) use connect::{ConnectOptions, System};
pub(crate) use debug::DebugCommand;
pub(crate) use disk::{DiskCommand, DiskGiven, Light, RemoteOptions, SpareCommand};
pub(crate) use event::{EventCommand, Since};
pub(crate) use host::{GroupCommand, HostCommand, TargetCommand};
pub(crate) use isns::IsnsCommand;
pub(crate) use lab::{CompareOptions, KeepingOptions, LabCommand, LoadOptions, ReplayOptions, ReplayPace, RunOptions};
pub(crate) use list::ListOptions;
pub(crate) use operation::OperationCommand;
pub(crate) use patience::PatienceOptions;
pub(crate) use pool::{PoolCommand, ScrubCommand};
pub(crate) use portal::PortalCommand;
pub(crate) use serve::{IoChoice, LogForm, ServeOptions, WEB_PORT, WebListen};
pub(crate) use session::SessionCommand;
pub(crate) use snapshot::{LockOptions, SnapshotCommand, Until, VolumeAt};
pub(crate) use state::{RecoverOptions, StateCommand};
pub(crate) use support::SupportCommand;
pub(crate) use top::{TopNoun, TopOptions};
pub(crate) use tune::{TuneApplyOptions, TuneCommand, TuneHostOptions, TuneOptions};
pub(crate) use up::UpOptions;
pub(crate) use user::{AuditCommand, TokenCommand, UserCommand};
pub(crate) use volume::{PresentOptions, PresentationCommand, UnpresentOptions, VolumeCommand, VolumeSettingOptions};
pub(crate) use web::WebCommand;

use clap::{Args, Parser, Subcommand, ValueEnum};
use model::{Refusal, code};
use std::path::PathBuf;

/// Manage disks, pools and volumes, and present volumes to hosts over iSCSI.
#[derive(Debug, Parser)]
#[command(name = "blockyard", version, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "Example:
  blockyard serve &
  blockyard disk add /dev/sdb /dev/sdc /dev/sdd /dev/sde
  blockyard pool create tank --level raid6 sdb sdc sdd sde
  blockyard volume create tank/vm1 100GiB
  blockyard host add web --initiator iqn.1993-08.org.debian:01:abc123
  blockyard present tank/vm1 web

Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 refused (nothing was changed), 5 not allowed, 6 no daemon, 7 \
     degraded (status --check), 8 timed out (--wait --timeout, apply --within), 9 stopped with unfinished work \
     (serve), 10 changes pending (diff --exit-code).")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Path of the daemon's socket [default: $BLOCKYARD_SOCKET, or /run/blockyard/blockyard.sock]
    #[arg(long, global = true, help_heading = "Global options", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// URL of a remote array, instead of the socket: https://array1:8443 [or $BLOCKYARD_URL]
    #[arg(long, global = true, help_heading = "Global options", value_name = "URL", conflicts_with = "socket")]
    pub url: Option<String>,
    /// File with the API token for the remote array, or - for standard input [or $BLOCKYARD_TOKEN]
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Pin this certificate key of the remote array, as printed by blockyard web show [or $BLOCKYARD_PIN; default: the
    /// system's trusted CAs]
    #[arg(long, global = true, help_heading = "Global options", value_name = "PIN")]
    pub pin: Option<String>,
    /// Trust the certificate authorities in this file
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE", conflicts_with = "pin")]
    pub ca_file: Option<PathBuf>,
    /// Set the output format: table, json, or name (first column only) [default: a table on a terminal, tab-separated
    /// in a pipe]
    #[arg(
        short,
        long,
        global = true,
        help_heading = "Global options",
        value_enum,
        value_name = "FORM",
        hide_possible_values = true
    )]
    pub output: Option<Form>,
    /// Print tables without the header line
    #[arg(long, global = true, help_heading = "Global options")]
    pub no_headers: bool,
    /// Print only results and errors
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
    /// Repeat a list or show command every second, or every SECONDS; on a terminal, redraw in place
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub every: Option<u64>,
    /// Print each API request to stderr, as method and path below /api/v1
    #[arg(long, global = true, help_heading = "Global options")]
    pub requests: bool,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Columns for people. No column is ever omitted, so `wide` is an alias.
    #[value(alias = "wide")]
    Table,
    /// One JSON object with stable keys; sizes in bytes.
    Json,
    /// Name of each listed object, one per line.
    Name,
}

/// Nouns, and the few verbs without a noun.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    #[command(after_help = "Example:
  blockyard serve --config /etc/blockyard.toml
  blockyard serve --state-dir ./var/state --socket ./var/blockyard.sock --portal 127.0.0.1:3260")]
    Serve(ServeOptions),
    /// Create a pool, a volume, a host and its presentation in one command: everything or nothing
    #[command(after_help = "Example:
  blockyard up tank/vm1 100GiB /dev/sdb /dev/sdc /dev/sdd /dev/sde --initiator iqn.1993-08.org.debian:01:abc123
  blockyard up tank/vm2 50GiB --host web")]
    Up(UpOptions),
    /// Show the state of the array: condition, meaning and next step
    #[command(after_help = "Example:
  blockyard status
  blockyard status --check --quiet || mail -s 'array needs you' root < /dev/null")]
    Status {
        /// Exit with code 7 unless everything is healthy
        #[arg(long)]
        check: bool,
    },
    /// Show current activity: volumes, sessions, disks, the slowest first
    #[command(after_help = "Example:
  blockyard top
  blockyard top disks --lines 5
  blockyard top --once -o json")]
    Top(TopOptions),
    /// Check the array, its host system and its clients for problems and suggest fixes
    #[command(after_help = "Example:
  blockyard doctor
  blockyard doctor --quiet && echo no findings
  blockyard doctor --discover 10.0.0.5 --discover san2.example.com:3260

Read-only: changes nothing. Exit code 1 if a finding is an error.")]
    Doctor {
        /// Search another array's portal by discovery for target names of this array; may be repeated
        #[arg(long, value_name = "HOST[:PORT]")]
        discover: Vec<String>,
    },
    /// Tune the operating system for the array: show, apply, revert, host
    #[command(subcommand, after_help = "Example:\n  blockyard tune show")]
    Tune(TuneCommand),
    /// Print the configuration of the array as a document, without secrets
    #[command(after_help = "Example:
  blockyard export > array.toml")]
    Export,
    /// Show the changes that a document would make, and the hosts affected
    #[command(after_help = "Example:
  blockyard diff -f array.toml
  blockyard diff -f array.toml --prune --exit-code")]
    Diff(DiffOptions),
    /// Apply a document to the array, completely or not at all; applying it again changes nothing
    #[command(after_help = "Example:
  blockyard apply -f array.toml
  blockyard apply -f array.toml --prune --yes --initiator iqn.1993-08.org.debian:01:abc123 --within 90s")]
    Apply(ApplyOptions),
    /// State of the array on this node: show, accept, recover
    #[command(subcommand, after_help = "Example:\n  blockyard state show")]
    State(StateCommand),
    /// Earlier configurations: list, restore
    #[command(subcommand, after_help = "Example:\n  blockyard config list")]
    Config(ConfigCommand),
    /// Debugging of commands that wait: tasks
    #[command(subcommand, after_help = "Example:\n  blockyard debug tasks --older 5s")]
    Debug(DebugCommand),
    /// Print the last lines of the daemon's log, oldest first
    #[command(after_help = "The daemon keeps its last 2,000 lines, up to 512 KiB. They never contain secrets.

Example:
  blockyard log
  blockyard log --limit 20
  blockyard log -o json")]
    Log {
        /// Print only the latest N lines
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=2000))]
        limit: u16,
    },
    /// Support: bundle
    #[command(subcommand, after_help = "Example:\n  blockyard support bundle")]
    Support(SupportCommand),
    /// Disks: list, find, show, locate, add, remove, fail, replace, spare
    #[command(subcommand, after_help = "Example:\n  blockyard disk list")]
    Disk(DiskCommand),
    /// Pools: create, list, show, set, scrub, export, import, destroy
    #[command(subcommand, after_help = "Example:\n  blockyard pool show tank")]
    Pool(PoolCommand),
    /// Volumes: create, list, show, set, resize, latency, trace, clone, copy, rollback, delete
    #[command(subcommand, after_help = "Example:\n  blockyard volume list")]
    Volume(VolumeCommand),
    /// Snapshots: create, list, lock, delete
    #[command(subcommand, after_help = "Example:\n  blockyard snapshot create tank/vm1@monday")]
    Snapshot(SnapshotCommand),
    /// Hosts: add, list, show, change, denied, explain, remove
    #[command(subcommand, after_help = "Example:\n  blockyard host list")]
    Host(HostCommand),
    /// Groups of hosts: add, list, join, leave, remove
    #[command(subcommand, after_help = "Example:\n  blockyard group add cluster web db")]
    Group(GroupCommand),
    /// Authentication: show, weakest, discovery
    #[command(subcommand, after_help = "Example:\n  blockyard auth show")]
    Auth(AuthCommand),
    /// Targets: add, list, remove; one exists from the start
    #[command(subcommand, after_help = "Example:\n  blockyard target list")]
    Target(TargetCommand),
    /// Present (map) a volume to a host
    #[command(
        visible_alias = "map",
        after_help = "Example:
  blockyard present tank/vm1 web
  blockyard present tank/images web --lun 7 --read-only
  blockyard present tank/db web --also tank/log --spread 2
  blockyard present tank/scratch --everyone"
    )]
    Present(PresentOptions),
    /// Unmap a volume from a host
    #[command(visible_alias = "unmap", after_help = "Example:\n  blockyard unpresent tank/vm1 web")]
    Unpresent(UnpresentOptions),
    /// Presentations: list
    #[command(subcommand, after_help = "Example:\n  blockyard presentation list")]
    Presentation(PresentationCommand),
    /// Print the commands that connect a host to the volumes presented to it
    #[command(after_help = "Secrets are never printed.

Example:
  blockyard connect web --os linux
  blockyard connect web | less")]
    Connect(ConnectOptions),
    /// Sessions: list, show, record, kill
    #[command(subcommand, after_help = "Example:\n  blockyard session list")]
    Session(SessionCommand),
    /// Portals: list, add, set, drain, resume, remove, balance
    #[command(subcommand, after_help = "Example:\n  blockyard portal list")]
    Portal(PortalCommand),
    /// iSNS server that targets are registered with: show, set, off
    #[command(subcommand, after_help = "Example:\n  blockyard isns show")]
    Isns(IsnsCommand),
    /// Users of the console: add, list, set, logins, logout, remove
    #[command(subcommand, after_help = "Example:\n  blockyard user add alice --role operator")]
    User(UserCommand),
    /// Tokens for programs that use the API: create, list, revoke
    #[command(subcommand, after_help = "Example:\n  blockyard token create backup --role operator --scope snapshots")]
    Token(TokenCommand),
    /// Audit log of changes: list, verify, export, forward
    #[command(subcommand, after_help = "Example:\n  blockyard audit list --search tank")]
    Audit(AuditCommand),
    /// Console and API over the network: show, link
    #[command(subcommand, after_help = "Example:\n  blockyard web show")]
    Web(WebCommand),
    /// Long-running operations: list, show, cancel
    #[command(subcommand, visible_alias = "job", after_help = "Example:\n  blockyard operation list")]
    Operation(OperationCommand),
    /// Alerts and alert receivers: active, list, add, set, test, silence, remove
    #[command(subcommand, after_help = "Example:\n  blockyard alert active")]
    Alert(AlertCommand),
    /// Events: list
    #[command(subcommand, after_help = "Example:\n  blockyard event list --follow")]
    Event(EventCommand),
    /// Test the protocol conformance of an iSCSI target, this one or any other
    #[command(after_help = "Example:
  blockyard conform iscsi://10.0.0.5/iqn.2026-11.io.blockyard:target
  blockyard conform iscsi://san/iqn.2003-01.org.linux-iscsi:disk/1 --only recovery

Read-only by default; sessions of other initiators are not affected. Exit code 1 if a check fails.")]
    Conform(ConformOptions),
    /// Benchmark lab: run, load, report, compare, explain, replay, genstream, checkstream
    #[command(
        subcommand,
        after_help = "Example:\n  blockyard lab run lab/scenarios/queue-depth.toml --out queue-depth.json"
    )]
    Lab(LabCommand),
    /// Check whether a unit supports the commands that a cluster, a hypervisor or a database needs
    #[command(after_help = "Example:
  blockyard ready --for windows-cluster iscsi://10.0.0.5/iqn.2026-11.io.blockyard:target
  blockyard ready --for vmware iscsi://san/iqn.2026-11.io.blockyard:target/3 --initiator iqn.1998-01.com.vmware:esx1

Each requirement is checked on the running unit as the host sees it. Nothing is changed: the block given with \
     --scratch is
rewritten with its own data. Exit code 1 if a requirement is missing or could not be checked.")]
    Ready(ReadyOptions),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  blockyard completion bash > /etc/bash_completion.d/blockyard")]
    Completion {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder, one per command
    #[command(after_help = "Example:\n  blockyard manual /usr/local/share/man/man1")]
    Manual {
        /// Folder for the pages; it is created if it does not exist
        folder: PathBuf,
    },
}

/// Parses `KEY=VALUE` into a setting and its value; the key must not be empty.
fn setting(text: &str) -> Result<(String, String), Refusal> {
    // At the first `=`, because a value may contain one.
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| {
        let hint = "write KEY=VALUE, for example rebuild=fast";
        Refusal::new(code::SETTING_INVALID, format!("\"{text}\" is not a setting"), hint)
    })
}

#[cfg(test)]
mod tests;
