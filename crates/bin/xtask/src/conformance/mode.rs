//! The ways in which the suite is run: each is a target or a client of another kind, for the same tests.

use crate::client::Client;
use crate::target::product::Product;
use crate::target::{self, Backing, Kind, Setup, Target, Unit};
use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::Deserialize;
use std::collections::BTreeSet;
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
    /// A unit whose medium can be ejected: the tests that ask for one
    Removable,
    /// A unit that may not be written: the tests that ask for one
    Readonly,
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
            Self::Removable => setup.units.fill(Backing::Thin),
            Self::Plain | Self::Digests | Self::Readonly => {}
        }
        if kind != Kind::Blockyard {
            let target = target::start(kind, &setup)?;
            let urls = target.units().iter().map(|unit| self.urls(unit, other)).collect();
            return Ok((target, urls));
        }
        let product = Product::start(&setup)?;
        self.prepare(&product, setup.portal, other)?;
        let urls = product.units().iter().map(|unit| self.urls(unit, other)).collect();
        Ok((Box::new(product), urls))
    }

    /// True when all tests are run in this mode.
    pub fn is_whole(self) -> bool {
        self.suites().is_empty()
    }

    /// Those of `names` that are run in this mode.
    pub fn concerned(self, names: &BTreeSet<String>) -> BTreeSet<String> {
        let concerns = |name: &&String| self.suites().iter().any(|suite| name.starts_with(suite));
        names.iter().filter(|name| self.is_whole() || concerns(name)).cloned().collect()
    }

    fn suites(self) -> &'static [&'static str] {
        match self {
            Self::Removable => &["NoMedia.", "PreventAllow.", "StartStopUnit."],
            Self::Readonly => &["ReadOnly."],
            Self::Plain | Self::Shards | Self::Digests | Self::Redirect | Self::Multipath => &[],
        }
    }

    fn prepare(self, product: &Product, portal: SocketAddr, other: SocketAddr) -> Result<()> {
        match self {
            Self::Redirect => {
                product.command(&["portal", "set", &other.to_string(), "role=data"])?;
                product.command(&["portal", "set", &portal.to_string(), "role=front"])?;
                let at = Client::log_in(&product.units()[0], 0)?.portal;
                ensure!(at == other, "a session is at {at}, and was to be sent to {other}");
            }
            Self::Removable => {
                for unit in 0..product.units().len() {
                    product.command(&["volume", "set", &format!("tank/unit{unit}"), "--removable", "yes"])?;
                }
            }
            Self::Readonly => {
                for unit in (0..product.units().len()).map(|unit| format!("unit{unit}")) {
                    product.command(&["unpresent", &unit, "anyone"])?;
                    product.command(&["present", &unit, "anyone", "--target", &unit, "--lun", "0", "--read-only"])?;
                }
            }
            Self::Plain | Self::Shards | Self::Digests | Self::Multipath => {}
        }
        Ok(())
    }

    fn urls(self, unit: &Unit, other: SocketAddr) -> Paths {
        match self {
            // A client without data digests passes over what it does not know.
            Self::Digests => vec![format!("{unit}?header_digest=crc32c&data_digest=crc32c")],
            Self::Plain | Self::Shards | Self::Redirect | Self::Removable | Self::Readonly => vec![unit.to_string()],
            Self::Multipath => vec![unit.to_string(), Unit { portal: other, ..unit.clone() }.to_string()],
        }
    }
}
