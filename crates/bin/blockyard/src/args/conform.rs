//! Trying a target.

use clap::Args;
use std::path::PathBuf;

/// Which target is tried, and as whom.
#[derive(Debug, Args)]
pub struct ConformOptions {
    /// The unit that is read: iscsi://HOST[:PORT]/TARGET[/LUN]
    #[arg(value_name = "URL")]
    pub url: String,
    /// Also do what writes to the unit, resets it or reserves it: what is there is lost
    #[arg(long)]
    pub destructive: bool,
    /// The initiator's name [default: iqn.2026-11.io.blockyard:conform]
    #[arg(long, value_name = "IQN")]
    pub initiator: Option<String>,
    /// The name that we prove with CHAP
    #[arg(long, value_name = "NAME")]
    pub chap_user: Option<String>,
    /// The file with the CHAP secret, or - [default: $BLOCKYARD_CHAP_SECRET]
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    pub chap_secret_file: Option<PathBuf>,
    /// Only checks whose name begins so
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub only: String,
}
