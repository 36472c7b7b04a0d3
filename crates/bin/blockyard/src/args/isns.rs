//! `blockyard isns …`

use clap::Subcommand;
use model::IsnsServer;

/// What can be done about iSNS.
#[derive(Debug, Subcommand)]
pub(crate) enum IsnsCommand {
    /// Show the server, and what is registered there
    #[command(after_help = "Example:\n  blockyard isns show")]
    Show,
    /// Register targets with this server, so that hosts which ask there find them
    #[command(
        after_help = "Every target that shows something is registered, with the portals that hosts are told of. Which host hears of which target
is for the server's discovery domains to say; what a host sees after its login is as it is presented here.

Example:
  blockyard isns set 10.0.0.5"
    )]
    Set {
        /// Its address, with iSNS' port when it names none
        server: IsnsServer,
    },
    /// Take everything back from the server, and register with none
    #[command(after_help = "Example:\n  blockyard isns off")]
    Off,
}
