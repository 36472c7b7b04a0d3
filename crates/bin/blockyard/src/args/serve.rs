//! `blockyard serve …`

use clap::{Args, ValueEnum};
use model::{Name, PortalAddress, Size};
use serde::Deserialize;
use std::path::PathBuf;
use uring::FilesLike;

/// What the daemon takes; each goes before the same fact in the configuration file.
#[derive(Debug, Args)]
pub struct ServeOptions {
    /// The configuration file; without one the defaults hold
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How many cores to use [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: Option<u16>,
    /// Where the state is kept [default: /var/lib/blockyard]
    #[arg(long, value_name = "FOLDER")]
    pub state_dir: Option<PathBuf>,
    /// Where the key of the stored secrets is [default: node.key in the folder of the state]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Start though the key of the stored secrets is lost: hosts that prove something stay outside until it is set anew
    #[arg(long)]
    pub forget_secrets: bool,
    /// Where to serve iSCSI, an address with or without a port; may be repeated [default: 0.0.0.0:3260]
    #[arg(long = "portal", value_name = "ADDRESS")]
    pub portals: Vec<PortalAddress>,
    /// How to drive disks and sockets [default: auto]
    #[arg(long, value_enum, value_name = "HOW")]
    pub io: Option<IoChoice>,
    /// Look for work a little longer before sleeping: less latency at low depth, for more CPU time
    #[arg(long)]
    pub busy_poll: bool,
    /// Memory for what was read, over all cores [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<Size>,
    /// Files below the folder take as long as disks of the medium would (sas15k, sata, ssd, nvme): for measurements; may be repeated
    #[arg(long, value_name = "FOLDER=MEDIUM[,STROKE]", value_parser = files_like, hide = true)]
    pub disks_like: Vec<FilesLike>,
    /// What to call this node [default: the machine's name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<Name>,
    /// What to log: error, warn, info, debug, trace, or a filter such as info,dataplane=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
}

fn files_like(text: &str) -> Result<FilesLike, String> {
    let (folder, like) = text.rsplit_once('=').ok_or("write FOLDER=MEDIUM")?;
    let (medium, stroke) = like.split_once(',').map_or((like, None), |(medium, stroke)| (medium, Some(stroke)));
    let stroke = stroke.map(|stroke| stroke.parse().map_err(|_| format!("\"{stroke}\" is no size"))).transpose()?;
    Ok(FilesLike { folder: folder.into(), medium: medium.parse()?, stroke_bytes: stroke.map(Size::bytes) })
}

/// How disks and sockets are driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoChoice {
    /// io_uring where it is allowed, threads elsewhere.
    #[default]
    Auto,
    /// io_uring, or not at all.
    Uring,
    /// Threads.
    Threads,
}
