//! The ways in which the suite is run: each is a target or a client of another kind, for the same tests.

use crate::client::Client;
use crate::target::product::Product;
use crate::target::{self, Kind, Setup, Target, Unit};
use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::Deserialize;
use std::net::{Ipv4Addr, SocketAddr};

/// Where a second portal of the loopback interface listens.
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The URLs of one unit, one for each path to it.
pub type Paths = Vec<String>;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One path, as the target is without being told anything
    Plain,
    /// Two shards, so that connections and units have different ones
    Shards,
    /// With both digests, as far as the client has them: that of 1.19 has no data digests
    Digests,
    /// Through a portal that sends every login to another one
    Redirect,
    /// Over two paths
    Multipath,
}

impl Mode {
    /// The target of this mode, and the paths to each of its units.
    pub fn start(self, kind: Kind, mut setup: Setup) -> Result<(Box<dyn Target>, Vec<Paths>)> {
        ensure!(
            kind == Kind::Blockyard || matches!(self, Self::Plain | Self::Digests),
            "only our own target is run in this mode"
        );
        let other = SocketAddr::from((OTHER, setup.portal.port()));
        match self {
            Self::Shards => setup.arguments = vec!["--shards".into(), "2".into()],
            Self::Redirect | Self::Multipath => setup.more_portals = vec![other],
            Self::Plain | Self::Digests => {}
        }
        let target: Box<dyn Target> = if self == Self::Redirect {
            let product = Product::start(&setup)?;
            product.command(&["portal", "set", &other.to_string(), "role=data"])?;
            product.command(&["portal", "set", &setup.portal.to_string(), "role=front"])?;
            let at = Client::log_in(&product.units()[0], 0)?.portal;
            ensure!(at == other, "a session is at {at}, and was to be sent to {other}");
            Box::new(product)
        } else {
            target::start(kind, &setup)?
        };
        let urls = target.units().iter().map(|unit| self.urls(unit, other)).collect();
        Ok((target, urls))
    }

    fn urls(self, unit: &Unit, other: SocketAddr) -> Paths {
        match self {
            Self::Plain | Self::Shards | Self::Redirect => vec![unit.to_string()],
            // A client without data digests passes over what it does not know.
            Self::Digests => vec![format!("{unit}?header_digest=crc32c&data_digest=crc32c")],
            Self::Multipath => vec![unit.to_string(), Unit { portal: other, ..unit.clone() }.to_string()],
        }
    }
}
