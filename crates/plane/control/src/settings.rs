//! The static facts that the daemon is started with.

use model::Name;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What does not change while the daemon runs. Everything else is state, changed through the API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the state is kept.
    pub state_dir: PathBuf,
    /// The Unix socket that the API is served on.
    pub socket: PathBuf,
    /// What this node is called.
    pub node: Name,
    /// What the iSCSI names of targets begin with: `iqn.2026-11.io.blockyard`.
    pub target_base: String,
    /// Where iSCSI is served.
    pub portals: Vec<SocketAddr>,
    /// Folders to look for disks in that are no longer where they were, beside the folders that they were in.
    pub disk_search: Vec<PathBuf>,
}
