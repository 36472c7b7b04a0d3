//! Arguments of `blockyard isns …`.

use clap::Subcommand;
use model::IsnsServer;

/// Actions on the registration with an iSNS server.
#[derive(Debug, Subcommand)]
pub(crate) enum IsnsCommand {
    /// Show the server and the targets registered with it
    #[command(after_help = "Example:\n  blockyard isns show")]
    Show,
    /// Set the iSNS server that targets are registered with, so that hosts discover them there
    #[command(
        after_help = "Every target that shows something is registered, with the portals that hosts are told of. Which host hears of which target
is for the server's discovery domains to say; what a host sees after its login is as it is presented here.

Example:
  blockyard isns set 10.0.0.5"
    )]
    Set {
        /// Address of the server [default port: iSNS]
        server: IsnsServer,
    },
    /// Remove all registrations from the server, and register with none
    #[command(after_help = "Example:\n  blockyard isns off")]
    Off,
}
