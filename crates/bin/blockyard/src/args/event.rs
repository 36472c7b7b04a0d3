//! Arguments of `blockyard event …`.

use clap::Subcommand;
use model::{EventSeverity, Refusal, Span, Timestamp};

/// Queries of the event log.
#[derive(Debug, Subcommand)]
pub(crate) enum EventCommand {
    /// List events, oldest first; a repeated event is one line with its count
    #[command(
        visible_alias = "ls",
        after_help = "Example:
  blockyard event list --since 24h --severity warning
  blockyard event list --follow"
    )]
    List {
        /// List only events since this time: a span such as 24h, or a time such as 2026-11-21T10:00:00Z
        #[arg(long, value_name = "TIME")]
        since: Option<Since>,
        /// List only events of this severity or above: info, warning or critical
        #[arg(long, value_name = "SEVERITY")]
        severity: Option<EventSeverity>,
        /// List only events with this text in one of their words, ignoring case
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// List only the latest N; the number of omitted events is printed to stderr
        #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(0..=10_000))]
        limit: u16,
        /// Continue with new events until interrupted
        #[arg(long, short)]
        follow: bool,
    },
}

/// Start of a query, as an absolute time or as a span before now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Since {
    /// Span before now.
    Ago(Span),
    /// Absolute time.
    At(Timestamp),
}

impl std::str::FromStr for Since {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // No text is both: a time has dashes, and a span has none.
        let at = text.parse().map(Self::At);
        at.or_else(|_: Refusal| text.parse().map(Self::Ago)).map_err(|refusal: Refusal| {
            let hint = "write a duration such as 24h, or a UTC time such as 2026-11-21T10:19:59Z";
            Refusal::new(refusal.code, format!("\"{text}\" is neither a duration nor a time"), hint)
        })
    }
}
