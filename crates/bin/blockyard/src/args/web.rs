//! Arguments of `blockyard web …`.

use clap::Subcommand;
use model::{Name, Role};

/// Actions on the console.
#[derive(Debug, Subcommand)]
pub(crate) enum WebCommand {
    /// Show the addresses of the console and the certificate of the node
    #[command(
        after_help = "A browser that does not trust the certificate shows its fingerprint: compare it with this one.

Example:
  blockyard web show"
    )]
    Show,
    /// Print a one-time login link, valid for 30 minutes, with which a user sets name and password
    #[command(after_help = "Example:
  blockyard web link
  blockyard web link --role viewer
  blockyard web link --user alice    # to reset her password")]
    Link {
        /// Set a new password of this user, instead of adding a user
        #[arg(long, value_name = "NAME", conflicts_with = "role")]
        user: Option<Name>,
        /// Set the role of a new user: viewer, operator or admin [default: admin]
        #[arg(long, value_name = "ROLE")]
        role: Option<Role>,
    },
}
