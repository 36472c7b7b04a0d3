//! `blockyard session …`

use super::ListOptions;
use clap::Subcommand;
use model::{Network, Size, Span};
use std::path::PathBuf;

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List all sessions
    #[command(
        visible_alias = "ls",
        after_help = "Example:\n  blockyard session list -o json\n  blockyard session list --no-headers"
    )]
    List(ListOptions),
    /// Show one in all detail: what was negotiated, how it proved itself, its connections, how long its commands take
    #[command(
        after_help = "A connection that is lost keeps its tasks for a while, for another one to take them over (ErrorRecoveryLevel 2).\n\nExample:\n  blockyard session show 1"
    )]
    Show {
        /// Which, by the number in the list
        id: u32,
    },
    /// Record what goes over the wire of one, or of everyone who comes from an address, for Wireshark
    #[command(
        after_help = "A session is recorded from its next PDU on, until it ends; what comes from an address is recorded with its logins. The file is
pcapng, for its owner alone: what hosts read and write is in it, and the digits of CHAP responses are not. Interrupt it to end
it sooner. A host is never slowed down: what could not be written in time is missing, and counted.

Example:
  blockyard session record 1 --to web.pcapng
  blockyard session record --from 10.0.0.7 --to login.pcapng --for 5min --max 1GiB
  blockyard session record 1 --to - | wireshark -k -i -"
    )]
    Record {
        /// Which, by the number in the list
        #[arg(required_unless_present = "from", conflicts_with = "from")]
        id: Option<u32>,
        /// Everyone who comes from this address or network, in sessions or not yet
        #[arg(long, value_name = "ADDRESS")]
        from: Option<Network>,
        /// The new file; - for standard output
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// For how long [default: 1min]
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Span>,
        /// How large the file may become [default: 64MiB]
        #[arg(long = "max", value_name = "SIZE")]
        bytes_max: Option<Size>,
    },
    /// End one: its initiator is asked to log out, and cut off when it does not in five seconds
    #[command(
        after_help = "What it has under way is done before. Nothing keeps an initiator from logging in again, and most do at once: to
keep it out, take away what it sees with blockyard unpresent.

Example:
  blockyard session kill 1
  blockyard session kill 1 --now
  blockyard session kill 1 --connection 2"
    )]
    Kill {
        /// Which, by the number in the list
        id: u32,
        /// Do not ask, cut it off
        #[arg(long)]
        now: bool,
        /// Cut off only one of its connections, by its CID; the others carry on
        #[arg(long = "connection", value_name = "CID", conflicts_with = "now")]
        cid: Option<u16>,
    },
}
