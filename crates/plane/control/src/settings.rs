//! Static settings of the daemon.

use model::Name;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings that do not change while the daemon runs. Everything else is state, changed through the API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the state.
    pub state_dir: PathBuf,
    /// The Unix socket that the API is served on.
    pub socket: PathBuf,
    /// Name of this node.
    pub node: Name,
    /// Prefix of the iSCSI names of targets: `iqn.2026-11.io.blockyard`.
    pub target_base: String,
    /// Addresses of the iSCSI portals in the configuration file.
    pub portals: Vec<SocketAddr>,
    /// Folders searched for disks that have moved, in addition to the folders of known disks.
    pub disk_search: Vec<PathBuf>,
}
