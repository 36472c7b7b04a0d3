//! `blockyard top`.

use clap::{Args, ValueEnum};

/// What to look at, and how often.
#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// Only these: volumes, hosts, sessions, portals or disks [default: an overview on a terminal, volumes in a pipe]
    #[arg(value_enum, value_name = "NOUN", hide_possible_values = true)]
    pub noun: Option<TopNoun>,
    /// Print one second and end
    #[arg(long)]
    pub once: bool,
    /// At most so many lines of each table
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub lines: u16,
}

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopNoun {
    /// Volumes that hosts use, the slowest first.
    Volumes,
    /// Hosts, the busiest first.
    Hosts,
    /// Sessions, the busiest first.
    Sessions,
    /// Portals.
    Portals,
    /// Disks that are used, the slowest first.
    Disks,
}
