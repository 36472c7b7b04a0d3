//! Modes of the suite: configurations of target or client for the same tests.

use crate::client::Client;
use anyhow::{Result, ensure};
use clap::ValueEnum;
use lab::target::product::Product;
use lab::target::{self, Backing, Chap, Kind, Setup, Target, Unit};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

/// Address of the second portal.
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// URLs of one unit, one per path.
pub(crate) type Paths = Vec<String>;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// One path, with the target in its default configuration
    Plain,
    /// Two shards, so that connections and units are on different ones
    Shards,
    /// With both digests, as far as the client supports them: libiscsi 1.19 has no data digests
    Digests,
    /// Through a portal that redirects every login
    Redirect,
    /// Over two paths
    Multipath,
    /// On a unit with removable medium: the tests that require one
    Removable,
    /// On a read-only unit: the tests that require one
    Readonly,
    /// On encrypted volumes of a pool: the tests that destroy a key
    Encrypted,
    /// With logical blocks of 4096 bytes
    #[serde(rename = "4kn")]
    #[value(name = "4kn")]
    LargeBlocks,
    /// With one-way CHAP
    Chap,
    /// With mutual CHAP
    MutualChap,
    /// With a CHAP name that looks like a hexadecimal number: the tests that require one
    HexName,
    /// With a CHAP name that looks like base64
    #[serde(rename = "base64-name")]
    #[value(name = "base64-name")]
    Base64Name,
    /// On units of one GiB: the tests for which others are too small
    Large,
}

impl Mode {
    /// Starts the target of this mode; returns it with the paths to each of its units.
    pub(crate) fn start(self, kind: Kind, mut setup: Setup) -> Result<(Box<dyn Target>, Vec<Paths>)> {
        ensure!(kind == Kind::Blockyard || !self.is_for_ours_alone(), "only our own target is run in this mode");
        let other = SocketAddr::from((OTHER, setup.portal.port()));
        match self {
            Self::Shards => setup.arguments = vec!["--shards".into(), "2".into()],
            Self::Redirect | Self::Multipath => setup.more_portals = vec![other],
            // With one shard the target handles the loss of a connection before the next login, as
            // PreventAllow.ITNexusLoss requires; with two, on a busy machine, the host may return before the other
            // shard has noticed the loss.
            Self::Removable => {
                setup.units.fill(Backing::Thin);
                setup.arguments = vec!["--shards".into(), "1".into()];
            }
            Self::Encrypted => setup.units.fill(Backing::Thin),
            Self::LargeBlocks => setup.block_bytes = 4096,
            Self::Chap | Self::HexName | Self::Base64Name => setup.chap = Some((self.host_chap(), None)),
            Self::MutualChap => setup.chap = Some((self.host_chap(), Some(target_chap()))),
            Self::Large => setup.unit_bytes = 1 << 30,
            Self::Plain | Self::Digests | Self::Readonly => {}
        }
        let target: Box<dyn Target> = if kind == Kind::Blockyard {
            let product = Product::start(&setup)?;
            self.prepare(&product, &setup, other)?;
            Box::new(product)
        } else {
            target::start(kind, &setup)?
        };
        let urls = target.units().iter().map(|unit| self.urls(unit, other)).collect();
        Ok((target, urls))
    }

    /// True when the mode can be configured only on Blockyard's own target.
    fn is_for_ours_alone(self) -> bool {
        match self {
            Self::Plain | Self::Digests | Self::LargeBlocks | Self::Large => false,
            Self::Chap | Self::MutualChap | Self::HexName | Self::Base64Name => false,
            Self::Shards | Self::Redirect | Self::Multipath => true,
            Self::Removable | Self::Encrypted | Self::Readonly => true,
        }
    }

    /// True when the mode runs all tests.
    pub(crate) fn is_whole(self) -> bool {
        self.suites().is_empty()
    }

    /// Returns the tests of `names` that the mode runs.
    pub(crate) fn concerned(self, names: &BTreeSet<String>) -> BTreeSet<String> {
        let concerns = |name: &&String| self.suites().iter().any(|suite| name.starts_with(suite));
        names.iter().filter(|name| self.is_whole() || concerns(name)).cloned().collect()
    }

    fn suites(self) -> &'static [&'static str] {
        match self {
            Self::Removable => &["NoMedia.", "PreventAllow.", "StartStopUnit."],
            Self::Readonly => &["ReadOnly."],
            Self::Encrypted => &["Sanitize."],
            Self::HexName | Self::Base64Name => &["iSCSICHAP."],
            Self::Large => &["ExtendedCopy.Large"],
            Self::Plain | Self::Shards | Self::Digests | Self::Redirect | Self::Multipath => &[],
            Self::LargeBlocks | Self::Chap | Self::MutualChap => &[],
        }
    }

    fn prepare(self, product: &Product, setup: &Setup, other: SocketAddr) -> Result<()> {
        let portal = setup.portal;
        match self {
            Self::Redirect => {
                // The data portal first: a front portal without one has nowhere to send a login.
                product.command(&["portal", "set", &other.to_string(), "role=data"])?;
                product.command(&["portal", "set", &portal.to_string(), "role=front"])?;
                // Proves that the redirect works before the suite relies on it.
                let at = Client::log_in(&product.units()[0], 0)?.portal;
                ensure!(at == other, "a session is at {at}, and was to be sent to {other}");
            }
            Self::Removable => {
                for unit in 0..product.units().len() {
                    product.command(&["volume", "set", &format!("tank/unit{unit}"), "--removable", "yes"])?;
                }
            }
            Self::Encrypted => {
                let size = format!("{}MiB", setup.unit_bytes >> 20);
                for unit in (0..product.units().len()).map(|unit| format!("unit{unit}")) {
                    let volume = format!("tank/{unit}");
                    // Presented again under the same target and LUN, so that the URLs of the units stay valid.
                    product.command(&["unpresent", &volume, "anyone", "--force"])?;
                    product.command(&["volume", "delete", &volume, "--yes"])?;
                    product.command(&["volume", "create", &volume, &size, "--thin", "--encrypted"])?;
                    product.command(&["present", &volume, "anyone", "--target", &unit, "--lun", "0", "--force"])?;
                }
            }
            Self::Readonly => {
                for unit in (0..product.units().len()).map(|unit| format!("unit{unit}")) {
                    product.command(&["unpresent", &unit, "anyone", "--force"])?;
                    product.command(&["present", &unit, "anyone", "--target", &unit, "--lun", "0", "--read-only"])?;
                }
            }
            Self::LargeBlocks => {
                let block_bytes = Client::log_in(&product.units()[0], 0)?.block_bytes;
                ensure!(block_bytes == 4096, "blocks have {block_bytes} bytes");
            }
            Self::Chap | Self::MutualChap | Self::HexName | Self::Base64Name => {
                // Proves that CHAP is required, so that the suite really authenticates.
                let without = Client::log_in(&product.units()[0], 0);
                ensure!(without.is_err(), "a host that proves nothing is let in");
                if self == Self::MutualChap {
                    product.command(&["host", "change", "anyone", "--mutual", "required"])?;
                }
            }
            Self::Plain | Self::Shards | Self::Digests | Self::Multipath | Self::Large => {}
        }
        Ok(())
    }

    fn urls(self, unit: &Unit, other: SocketAddr) -> Paths {
        match self {
            // A client without data digests ignores the unknown argument.
            Self::Digests => vec![format!("{unit}?header_digest=crc32c&data_digest=crc32c")],
            Self::Plain | Self::Shards | Self::Redirect | Self::Large => vec![unit.to_string()],
            Self::Removable | Self::Encrypted | Self::Readonly | Self::LargeBlocks => vec![unit.to_string()],
            Self::Chap | Self::HexName | Self::Base64Name => vec![self.proving(unit)],
            Self::MutualChap => {
                let Chap { user, secret } = target_chap();
                vec![format!("{}?target_user={user}&target_password={secret}", self.proving(unit))]
            }
            Self::Multipath => vec![unit.to_string(), Unit { portal: other, ..unit.clone() }.to_string()],
        }
    }

    fn host_chap(self) -> Chap {
        let user = match self {
            Self::HexName => "0x5e7",
            Self::Base64Name => "0bSuite",
            _ => "suite",
        };
        Chap { user: user.into(), secret: "what-the-suite-proves".into() }
    }

    /// Returns the URL of the unit with the credentials of the host.
    fn proving(self, unit: &Unit) -> String {
        let Chap { user, secret } = self.host_chap();
        unit.to_string().replacen("://", &format!("://{user}%{secret}@"), 1)
    }
}

fn target_chap() -> Chap {
    Chap { user: "target".into(), secret: "what-the-target-proves".into() }
}
