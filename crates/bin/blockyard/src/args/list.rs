//! Options of every list.

use clap::Args;

/// Filter and length of a list.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ListOptions {
    /// List only rows with this text in one of their words, ignoring case
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// List only the first N rows; the number of omitted rows is printed to stderr
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub limit: Option<u16>,
}
