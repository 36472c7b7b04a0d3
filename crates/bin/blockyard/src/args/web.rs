//! `blockyard web …`

use clap::Subcommand;
use model::{Name, Role};

/// What can be asked about the console.
#[derive(Debug, Subcommand)]
pub(crate) enum WebCommand {
    /// Show where the console is served, and what the node proves itself with
    #[command(
        after_help = "A browser that does not know the certificate shows its fingerprint: compare it with this one.

Example:
  blockyard web show"
    )]
    Show,
    /// Print a link that lets one person choose a name and a password, once, within half an hour
    #[command(after_help = "Example:
  blockyard web link
  blockyard web link --role viewer
  blockyard web link --user alice    # who has forgotten her password")]
    Link {
        /// The user whose password it sets, instead of a new one's
        #[arg(long, value_name = "NAME", conflicts_with = "role")]
        user: Option<Name>,
        /// What a new user may do: viewer, operator or admin [default: admin]
        #[arg(long, value_name = "ROLE")]
        role: Option<Role>,
    },
}
