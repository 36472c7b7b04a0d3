//! `blockyard serve …`

use crate::tune::Cpus;
use clap::{Args, ValueEnum};
use model::{Name, PortalAddress, Refusal, Size, code};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use uring::FilesLike;

/// The port of HTTPS where none is named.
pub(crate) const WEB_PORT: u16 = 8443;

/// What the daemon takes; each goes before the same fact in the configuration file.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// The configuration file; without one the defaults hold
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How many cores to use [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: Option<u16>,
    /// Keep shards on these cores, such as 2-5, the first on the first; without --shards there is one for each
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<Cpus>,
    /// Where the state is kept [default: /var/lib/blockyard]
    #[arg(long, value_name = "FOLDER")]
    pub state_dir: Option<PathBuf>,
    /// Where the key of the stored secrets is [default: node.key in the folder of the state]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Start though the key of the stored secrets is lost: hosts that prove something stay outside until it is set anew
    #[arg(long)]
    pub forget_secrets: bool,
    /// Begin an empty array though a key or an audit in the folder of the state shows that there was one
    #[arg(long)]
    pub new: bool,
    /// Where to serve iSCSI, an address with or without a port, [::] for all of IPv6 and IPv4; may be repeated [default: 0.0.0.0:3260]
    #[arg(long = "portal", value_name = "ADDRESS")]
    pub portals: Vec<PortalAddress>,
    /// Where to serve the console and the API over HTTPS, an address with a port; may be repeated [default: 127.0.0.1:8443]
    #[arg(long = "web", value_name = "ADDRESS")]
    pub web: Vec<WebListen>,
    /// Serve neither console nor API over the network: the socket remains
    #[arg(long, conflicts_with = "web")]
    pub no_web: bool,
    /// How to drive disks and sockets [default: auto]
    #[arg(long, value_enum, value_name = "HOW")]
    pub io: Option<IoChoice>,
    /// Look for work a little longer before sleeping: less latency at low depth, for more CPU time
    #[arg(long)]
    pub busy_poll: bool,
    /// Memory for what was read, over all cores; less where the memory limit has no room for it [default: a quarter of the limit]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<Size>,
    /// Files below the folder take as long as disks of the medium would (sas15k, sata, ssd, nvme): for measurements; may be repeated
    #[arg(long, value_name = "FOLDER=MEDIUM[,STROKE]", value_parser = files_like, hide = true)]
    pub disks_like: Vec<FilesLike>,
    /// What to call this node [default: the machine's name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<Name>,
    /// Serve in one process with all of its privileges: for debugging
    #[arg(long)]
    pub no_sandbox: bool,
    /// The helper that started this process as its daemon
    #[arg(long, value_name = "PID", hide = true)]
    pub under: Option<u32>,
    /// Try to break out instead of serving, and print what succeeded: for tests
    #[cfg(debug_assertions)]
    #[arg(long, hide = true)]
    pub probe: bool,
    /// What to log: error, warn, info, debug, trace, or a filter such as info,engine=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
    /// The form of a line of the log: text, or json, an object with each fact under its name [default: text]
    #[arg(long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub log_form: Option<LogForm>,
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogForm {
    /// For people.
    #[default]
    Text,
    /// For programs: one object in a line.
    Json,
}

/// An address for HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct WebListen(pub SocketAddr);

impl FromStr for WebListen {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let alone = || text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| SocketAddr::new(ip, WEB_PORT));
        text.parse().or_else(|_| alone()).map(Self).map_err(|_| {
            let message = format!("\"{text}\" is not an address to serve the console at");
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

/// How disks and sockets are driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IoChoice {
    /// io_uring where it is allowed, threads elsewhere.
    #[default]
    Auto,
    /// io_uring, or not at all.
    Uring,
    /// Threads.
    Threads,
}
