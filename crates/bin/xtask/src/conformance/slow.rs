//! Tests that need a slow unit: a SANITIZE that must still be in progress after seconds, with aborts and resets.

use super::outcome::Outcome;
use super::{Bench, run_one};
use crate::workspace;
use anyhow::Result;
use lab::target::product::{IQN, Launch, Product, make_pool};
use lab::target::{Kind, Unit, free_portal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// The test checks four seconds after its start, and then once a minute.
const SLOW: &str = "Sanitize.Reset";
const LIMIT: Duration = Duration::from_secs(180);
const DISKS: usize = 4;

/// True for a test that Blockyard's target must pass on a slow unit.
pub(super) fn wants(target: Kind, name: &str) -> bool {
    target == Kind::Blockyard && name == SLOW
}

/// Runs the tests one after the other on a volume with a bandwidth limit, and returns their outcomes.
pub(super) fn run(names: &BTreeSet<String>, bench: Bench<'_>) -> Result<BTreeMap<String, Outcome>> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let folder = bench.scratch.join("slow");
    fs::create_dir(&folder)?;
    let (portal, iqn) = (free_portal()?, format!("{IQN}:slow"));
    // The suite's client sleeps for a minute without answering pings.
    let config = folder.join("blockyard.toml");
    fs::write(&config, "silence = \"2m\"\n")?;
    let arguments = vec!["--config".to_owned(), config.to_string_lossy().into_owned()];
    let product = Product::launch(Launch {
        build: workspace::product()?,
        folder: folder.clone(),
        portals: vec![portal],
        arguments,
        ..Launch::default()
    })?;
    make_pool(&product, &folder, DISKS, "1GiB")?;
    product.command(&["volume", "create", "tank/slow", "128MiB"])?;
    product.command(&["volume", "set", "tank/slow", "--bandwidth", "16MiB/s"])?;
    product.command(&["host", "add", "anyone", "--any"])?;
    product.command(&["target", "add", "slow", "--iqn", &iqn])?;
    product.command(&["present", "tank/slow", "anyone", "--target", "slow", "--lun", "0"])?;
    let urls = [Unit { portal, iqn, lun: 0 }.to_string()];
    names.iter().map(|name| Ok((name.clone(), run_one(&urls, name, bench, LIMIT)?))).collect()
}
