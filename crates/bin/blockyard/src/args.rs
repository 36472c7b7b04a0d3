//! The command line: noun, then verb.

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
pub(crate) use conform::{AimOptions, ConformOptions, ReadyOptions, WhoOptions};
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

Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 refused (nothing was changed), 5 not allowed, 6 no daemon, 7 not all is good (status --check), 8 not in time (--wait --timeout, apply --within), 10 changes pending (diff --exit-code).")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The daemon's socket [default: $BLOCKYARD_SOCKET, or /run/blockyard/blockyard.sock]
    #[arg(long, global = true, help_heading = "Global options", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// An array elsewhere, instead of the socket: https://array1:8443 [or $BLOCKYARD_URL]
    #[arg(long, global = true, help_heading = "Global options", value_name = "URL", conflicts_with = "socket")]
    pub url: Option<String>,
    /// A file that holds the token to prove ourselves with there, or - for standard input [or $BLOCKYARD_TOKEN]
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Believe this key there, as blockyard web show has it [or $BLOCKYARD_PIN; default: the system's authorities]
    #[arg(long, global = true, help_heading = "Global options", value_name = "PIN")]
    pub pin: Option<String>,
    /// Believe whoever the authorities in this file vouch for
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE", conflicts_with = "pin")]
    pub ca_file: Option<PathBuf>,
    /// Print as table, json, or name: the first column alone [default: a table on a terminal, tab-separated in a pipe]
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
    /// Print tables without their first line
    #[arg(long, global = true, help_heading = "Global options")]
    pub no_headers: bool,
    /// Print nothing but what was asked for and errors
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
    /// List or show it again, each second or each so many; on a terminal in place of what stood there
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
    /// Say on stderr what is asked of the daemon, as method and path behind /api/v1
    #[arg(long, global = true, help_heading = "Global options")]
    pub requests: bool,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Columns for people. None is ever left out, so it is the wide one, too.
    #[value(alias = "wide")]
    Table,
    /// One object, keys stable, sizes in bytes.
    Json,
    /// What is listed by its name alone, a line each.
    Name,
}

/// The nouns, and the few verbs that stand alone.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    #[command(after_help = "Example:
  blockyard serve --config /etc/blockyard.toml
  blockyard serve --state-dir ./var/state --socket ./var/blockyard.sock --portal 127.0.0.1:3260")]
    Serve(ServeOptions),
    /// From bare disks to a volume that a host uses, in one command: all of it or nothing
    #[command(after_help = "Example:
  blockyard up tank/vm1 100GiB /dev/sdb /dev/sdc /dev/sdd /dev/sde --initiator iqn.1993-08.org.debian:01:abc123
  blockyard up tank/vm2 50GiB --host web")]
    Up(UpOptions),
    /// Say how everything is: what is so, what it means, what to do
    #[command(after_help = "Example:
  blockyard status
  blockyard status --check --quiet || mail -s 'array needs you' root < /dev/null")]
    Status {
        /// End with exit code 7 unless all is good
        #[arg(long)]
        check: bool,
    },
    /// Show what happens just now: volumes, sessions, disks, the slowest first
    #[command(after_help = "Example:
  blockyard top
  blockyard top disks --lines 5
  blockyard top --once -o json")]
    Top(TopOptions),
    /// Look at the daemon, its machine and its hosts for what will hurt, and say what to do
    #[command(after_help = "Example:
  blockyard doctor
  blockyard doctor --quiet && echo nothing to do
  blockyard doctor --discover 10.0.0.5 --discover san2.example.com:3260

Nothing is changed. Exit code 1 when something is bad.")]
    Doctor {
        /// Look for target names of this array at another array's portal, by discovery; may be repeated
        #[arg(long, value_name = "HOST[:PORT]")]
        discover: Vec<String>,
    },
    /// The system below the array, as fast as it can be: show, apply, revert, host
    #[command(subcommand, after_help = "Example:\n  blockyard tune show")]
    Tune(TuneCommand),
    /// Print the array as a document, without secrets
    #[command(after_help = "Example:
  blockyard export > array.toml")]
    Export,
    /// Say what a document would change, and for whom
    #[command(after_help = "Example:
  blockyard diff -f array.toml
  blockyard diff -f array.toml --prune --exit-code")]
    Diff(DiffOptions),
    /// Make the array what a document says, whole or not at all; the second time changes nothing
    #[command(after_help = "Example:
  blockyard apply -f array.toml
  blockyard apply -f array.toml --prune --yes --initiator iqn.1993-08.org.debian:01:abc123 --within 90s")]
    Apply(ApplyOptions),
    /// The state of the array on this node: show, accept, recover
    #[command(subcommand, after_help = "Example:\n  blockyard state show")]
    State(StateCommand),
    /// Earlier configurations: list, restore
    #[command(subcommand, after_help = "Example:\n  blockyard config list")]
    Config(ConfigCommand),
    /// Why something waits: tasks
    #[command(subcommand, after_help = "Example:\n  blockyard debug tasks --older 5s")]
    Debug(DebugCommand),
    /// Print the last lines of the daemon's log, the oldest first
    #[command(
        after_help = "The daemon keeps its last 2000 lines, and not more than 512 KiB. No secret is ever in them.

Example:
  blockyard log
  blockyard log --limit 20
  blockyard log -o json"
    )]
    Log {
        /// Only so many, the latest
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=2000))]
        limit: u16,
    },
    /// Help for those who help: bundle
    #[command(subcommand, after_help = "Example:\n  blockyard support bundle")]
    Support(SupportCommand),
    /// Disks: list, show, locate, add, remove, fail, replace, spare
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
    /// Hosts: add, list, show, change, refused, explain, remove
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
    /// The iSNS server that targets are registered with: show, set, off
    #[command(subcommand, after_help = "Example:\n  blockyard isns show")]
    Isns(IsnsCommand),
    /// Users, who log in to the console: add, list, set, logins, logout, remove
    #[command(subcommand, after_help = "Example:\n  blockyard user add alice --role operator")]
    User(UserCommand),
    /// Tokens, which programs prove themselves with: create, list, revoke
    #[command(subcommand, after_help = "Example:\n  blockyard token create backup --role operator --scope snapshots")]
    Token(TokenCommand),
    /// The audit, who has changed what: list, verify, export, forward
    #[command(subcommand, after_help = "Example:\n  blockyard audit list --search tank")]
    Audit(AuditCommand),
    /// The console and the API over the network: show, link
    #[command(subcommand, after_help = "Example:\n  blockyard web show")]
    Web(WebCommand),
    /// Long work that is under way: list, show, cancel
    #[command(subcommand, visible_alias = "job", after_help = "Example:\n  blockyard operation list")]
    Operation(OperationCommand),
    /// Alerts, what is wrong now and who is told: active, list, add, set, test, silence, remove
    #[command(subcommand, after_help = "Example:\n  blockyard alert active")]
    Alert(AlertCommand),
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

Every line is asked of the running unit, as the host sees it, and nothing is changed: a block that --scratch names is
overwritten with what it holds. Exit code 1 when something is missing or not known.")]
    Ready(ReadyOptions),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  blockyard completion bash > /etc/bash_completion.d/blockyard")]
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder, one for each command
    #[command(after_help = "Example:\n  blockyard manual /usr/local/share/man/man1")]
    Manual {
        /// Where to; it is made if it is not there
        folder: PathBuf,
    },
}

/// A setting and its value, as `KEY=VALUE`.
fn setting(text: &str) -> Result<(String, String), Refusal> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| {
        let hint = "write it as KEY=VALUE, such as rebuild=fast";
        Refusal::new(code::SETTING_INVALID, format!("\"{text}\" is no setting"), hint)
    })
}

#[cfg(test)]
mod tests;
