//! `blockyard session …`

use clap::Subcommand;

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List all sessions
    #[command(
        visible_alias = "ls",
        after_help = "Example:\n  blockyard session list -o json\n  blockyard session list --no-headers"
    )]
    List,
    /// Show one in all detail: what was negotiated, how it proved itself, how long its commands take
    #[command(after_help = "Example:\n  blockyard session show 1")]
    Show {
        /// Which, by the number in the list
        id: u32,
    },
    /// End one: its initiator is asked to log out, and cut off when it does not in five seconds
    #[command(
        after_help = "What it has under way is done before. Nothing keeps an initiator from logging in again, and most do at once: to
keep it out, take away what it sees with blockyard unpresent.

Example:
  blockyard session kill 1
  blockyard session kill 1 --now"
    )]
    Kill {
        /// Which, by the number in the list
        id: u32,
        /// Do not ask, cut it off
        #[arg(long)]
        now: bool,
    },
}
