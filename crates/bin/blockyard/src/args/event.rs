//! `blockyard event …`

use clap::Subcommand;
use model::{EventSeverity, Refusal, Span, Timestamp};

/// What can be asked of the log.
#[derive(Debug, Subcommand)]
pub(crate) enum EventCommand {
    /// List what has happened, oldest first; an event that came again is one line that says how often
    #[command(
        visible_alias = "ls",
        after_help = "Example:
  blockyard event list --since 24h --severity warning
  blockyard event list --follow"
    )]
    List {
        /// Only what happened since then: a span such as 24h, or a time such as 2026-11-21T10:00:00Z
        #[arg(long, value_name = "TIME")]
        since: Option<Since>,
        /// Only what is as bad or worse: info, warning or critical
        #[arg(long, value_name = "SEVERITY")]
        severity: Option<EventSeverity>,
        /// Only those with this text in one of their words, whatever the case
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// Only so many, the latest; how many are left out is said on stderr
        #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(0..=10_000))]
        limit: u16,
        /// Go on with what happens from now on, until interrupted
        #[arg(long, short)]
        follow: bool,
    },
}

/// A time, or how long ago it was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Since {
    /// So long ago.
    Ago(Span),
    /// Then.
    At(Timestamp),
}

impl std::str::FromStr for Since {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let at = text.parse().map(Self::At);
        at.or_else(|_: Refusal| text.parse().map(Self::Ago)).map_err(|refusal: Refusal| {
            let hint = "write a span such as 24h, or a time in UTC such as 2026-11-21T10:19:59Z";
            Refusal::new(refusal.code, format!("\"{text}\" is neither a span of time nor a time"), hint)
        })
    }
}
