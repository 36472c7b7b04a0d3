//! What every list takes.

use clap::Args;

/// Which part of a list.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ListOptions {
    /// Only those with this text in one of their words, whatever the case
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Only so many, the first; how many are left out is said on stderr
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub limit: Option<u16>,
}
