//! Arguments of `blockyard session …`.

use super::ListOptions;
use clap::Subcommand;
use model::{Network, Size, Span};
use std::path::PathBuf;

/// Actions on iSCSI sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List all sessions
    #[command(
        visible_alias = "ls",
        after_help = "Example:\n  blockyard session list -o json\n  blockyard session list --no-headers"
    )]
    List(ListOptions),
    /// Show a session: negotiated parameters, authentication, connections, latency
    #[command(after_help = "A lost connection keeps its tasks until another connection takes them over or a timeout \
             ends (ErrorRecoveryLevel 2).\n\nExample:\n  blockyard session show 1")]
    Show {
        /// Number of the session, as in the list
        id: u32,
    },
    /// Record the traffic of a session, or of all connections from an address, for Wireshark
    #[command(
        after_help = "A session is recorded from its next PDU until it closes; with --from logins are recorded too. \
             The file is
pcapng, readable by its owner only: it contains the data that hosts read and write, but no CHAP responses. \
     Interrupt the command to
stop earlier. Hosts are never slowed down: packets that could not be written in time are dropped and counted.

Example:
  blockyard session record 1 --to web.pcapng
  blockyard session record --from 10.0.0.7 --to login.pcapng --for 5min --max 1GiB
  blockyard session record 1 --to - | wireshark -k -i -"
    )]
    Record {
        /// Number of the session, as in the list
        #[arg(required_unless_present = "from", conflicts_with = "from")]
        id: Option<u32>,
        /// Record all connections from this address or network, with or without a session
        #[arg(long, value_name = "ADDRESS")]
        from: Option<Network>,
        /// File to create; - for standard output
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// Set the duration of the recording [default: 1min]
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Span>,
        /// Set the maximum size of the file [default: 64MiB]
        #[arg(long = "max", value_name = "SIZE")]
        bytes_max: Option<Size>,
    },
    /// End a session: its initiator is asked to log out, and the session is closed after five seconds
    #[command(after_help = "Commands in flight finish first. Most initiators log in again at once: to
prevent that, remove the mappings with blockyard unpresent.

Example:
  blockyard session kill 1
  blockyard session kill 1 --now
  blockyard session kill 1 --connection 2")]
    Kill {
        /// Number of the session, as in the list
        id: u32,
        /// Close the session immediately, without a logout request
        #[arg(long)]
        now: bool,
        /// Close only the connection with this CID; the others continue
        #[arg(long = "connection", value_name = "CID", conflicts_with = "now")]
        cid: Option<u16>,
    },
}
