//! Arguments of `blockyard top`.

use clap::{Args, ValueEnum};

/// Options of `blockyard top`.
#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// Show only volumes, hosts, sessions, portals or disks [default: an overview on a terminal, volumes in a pipe]
    #[arg(value_enum, value_name = "NOUN", hide_possible_values = true)]
    pub noun: Option<TopNoun>,
    /// Print the figures of one second and exit
    #[arg(long)]
    pub once: bool,
    /// Set the maximum number of lines of each table
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub lines: u16,
}

/// Objects to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopNoun {
    /// Volumes in use by hosts, the slowest first.
    Volumes,
    /// Hosts, the busiest first.
    Hosts,
    /// Sessions, the busiest first.
    Sessions,
    /// Portals of the node.
    Portals,
    /// Disks in use, the slowest first.
    Disks,
}
