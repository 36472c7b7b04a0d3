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
        after_help = "Every target with mapped volumes is registered with its portals. Which host discovers which \
             target is decided by
the discovery domains of the server; access after the login is decided by the presentations of the array.

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
