//! Arguments of `blockyard serve …`.

use crate::tune::Cpus;
use clap::{Args, ValueEnum};
use model::{Name, PortalAddress, Refusal, Size, code};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use uring::FilesLike;

/// Default port of HTTPS.
pub(crate) const WEB_PORT: u16 = 8443;

/// Options of the daemon; each overrides the same setting in the configuration file.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// File with the configuration [default: built-in defaults]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set the number of cores to use [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: Option<u16>,
    /// Pin shards to these cores, such as 2-5, in order; without --shards there is one shard per core of the list
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<Cpus>,
    /// Set the folder of the state [default: /var/lib/blockyard]
    #[arg(long, value_name = "FOLDER")]
    pub state_dir: Option<PathBuf>,
    /// Set the file with the key of the stored secrets [default: node.key in the state folder]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Start even if the key of the stored secrets is lost: hosts with credentials cannot log in until these are set
    /// again
    #[arg(long)]
    pub forget_secrets: bool,
    /// Start an empty array even if a key or an audit log in the state folder shows that there was one
    #[arg(long)]
    pub new: bool,
    /// Serve iSCSI at this address, with or without a port, [::] for all of IPv6 and IPv4; may be repeated [default:
    /// 0.0.0.0:3260]
    #[arg(long = "portal", value_name = "ADDRESS")]
    pub portals: Vec<PortalAddress>,
    /// Serve the console and the API over HTTPS at this address and port; may be repeated [default: 127.0.0.1:8443]
    #[arg(long = "web", value_name = "ADDRESS")]
    pub web: Vec<WebListen>,
    /// Serve neither console nor API over the network; the local socket remains
    #[arg(long, conflicts_with = "web")]
    pub no_web: bool,
    /// Set the I/O back end for disks and sockets [default: auto]
    #[arg(long, value_enum, value_name = "HOW")]
    pub io: Option<IoChoice>,
    /// Poll for work a little longer before sleeping: lower latency at low queue depth, more CPU time
    #[arg(long)]
    pub busy_poll: bool,
    /// Set the size of the read cache over all cores, reduced to fit the memory limit [default: a quarter of the limit]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<Size>,
    /// Delay I/O on files below the folder like disks of the medium (sas15k, sata, ssd, nvme), for measurements; may be
    /// repeated
    #[arg(long, value_name = "FOLDER=MEDIUM[,STROKE]", value_parser = files_like, hide = true)]
    pub disks_like: Vec<FilesLike>,
    /// Set the name of this node [default: the machine's host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<Name>,
    /// Serve in one process with all of its privileges, for debugging
    #[arg(long)]
    pub no_sandbox: bool,
    /// Process ID of the helper that started this process as its daemon
    #[arg(long, value_name = "PID", hide = true)]
    pub under: Option<u32>,
    /// Attempt to escape the sandbox instead of serving, and print the attempts that succeeded, for tests
    #[cfg(debug_assertions)]
    #[arg(long, hide = true)]
    pub probe: bool,
    /// Set the log level: error, warn, info, debug, trace, or a filter such as info,engine=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
    /// Set the format of log lines: text, or json, one object per line with named fields [default: text]
    #[arg(long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub log_form: Option<LogForm>,
}

/// Format of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogForm {
    /// Text for people.
    #[default]
    Text,
    /// JSON for programs, one object per line.
    Json,
}

/// Address and port that HTTPS listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct WebListen(pub SocketAddr);

impl FromStr for WebListen {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let alone = || text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| SocketAddr::new(ip, WEB_PORT));
        text.parse().or_else(|_| alone()).map(Self).map_err(|_| {
            let message = format!("\"{text}\" is not an address for the console");
            Refusal::new(code::ADDRESS_INVALID, message, "write 10.0.0.1, 10.0.0.1:8443 or [fd00::1]:8443")
        })
    }
}

impl TryFrom<String> for WebListen {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

fn files_like(text: &str) -> Result<FilesLike, String> {
    let (folder, like) = text.rsplit_once('=').ok_or("write FOLDER=MEDIUM")?;
    let (medium, stroke) = like.split_once(',').map_or((like, None), |(medium, stroke)| (medium, Some(stroke)));
    let stroke = stroke.map(|stroke| stroke.parse().map_err(|refusal: Refusal| refusal.to_string())).transpose()?;
    Ok(FilesLike { folder: folder.into(), medium: medium.parse()?, stroke_bytes: stroke.map(Size::bytes) })
}

/// I/O back end for disks and sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IoChoice {
    /// Use io_uring where permitted, otherwise threads.
    #[default]
    Auto,
    /// Use io_uring, or fail to start.
    Uring,
    /// Use threads.
    Threads,
}
