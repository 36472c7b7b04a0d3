//! Setup of the load test: a daemon with targets, units and hosts, and the assignment of units to callers.

use super::{LOOK, Options, SERVER_CORE};
use crate::client::{Caller, Client};
use crate::workspace;
use anyhow::{Context, Result};
use lab::target::product::{IQN, Launch, Product, make_pool};
use lab::target::{Unit, free_portal};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Number of the initiator with CHAP, and its secret.
pub(super) const GUARDED: u16 = 60_000;
pub(super) const SECRET: &str = "a secret that nobody guesses";
/// Hosts of one group, which accesses one target of the load table, and units of this target.
const HOSTS_OF_TARGET: usize = 4;
const UNITS_OF_TARGET: usize = 8;
/// Number of pool volumes (a pool holds at most 1,024), and the disks of the pool.
const THIN: usize = 1000;
const DISKS: usize = 4;
const DISK_SIZE: &str = "64GiB";

pub(super) struct LoadSetup {
    pub product: Product,
    units: BTreeMap<u16, Unit>,
}

impl LoadSetup {
    /// Starts a daemon with a unit for each of these callers.
    pub(super) fn open(folder: &Path, options: &Options, callers: &[u16]) -> Result<Self> {
        let portal = free_portal()?;
        let product = Product::launch(Launch {
            build: workspace::product()?,
            folder: folder.to_owned(),
            portals: vec![portal],
            cores: vec![SERVER_CORE],
            // A small cache: by default it takes a quarter of the memory limit, which is no cost of the crowd.
            arguments: ["--shards", "1", "--cache", "64MiB"].map(Into::into).into(),
            ..Launch::default()
        })?;
        let mut hall = Self { product, units: BTreeMap::new() };
        let begin = Instant::now();
        if options.many {
            hall.apply(folder, callers)?
        } else if options.table {
            hall.create_load_table(callers)?
        } else {
            hall.create_shared_target(options.units)?
        }
        for (&caller, at) in callers.iter().zip(0..) {
            // The same arithmetic by which the objects are created below.
            let (target, lun) = match (options.table, options.many) {
                (true, _) => (at / HOSTS_OF_TARGET, at % UNITS_OF_TARGET),
                (_, true) => (at / UNITS_OF_TARGET, at % UNITS_OF_TARGET),
                _ => (0, at % usize::from(options.units)),
            };
            hall.units.insert(caller, Unit { portal, iqn: iqn_of(target), lun: u16::try_from(lun)? });
        }
        hall.admit_guarded(folder, options.many)?;
        println!("furnished      in {:.1?}: {}", begin.elapsed(), hall.product.command(&["status"])?.trim());
        Ok(hall)
    }

    /// Returns the unit of this caller.
    pub(super) fn unit(&self, caller: u16) -> Result<&Unit> {
        self.units.get(&caller).with_context(|| format!("nobody awaits caller {caller}"))
    }

    /// Creates one target with `units` units for all initiators.
    fn create_shared_target(&self, units: u16) -> Result<()> {
        self.tell(&["host", "add", "anyone", "--any"])?;
        self.add_target(0)?;
        (0..usize::from(units)).try_for_each(|lun| self.add_unit(0, lun, "anyone"))
    }

    /// Creates the load table: hosts with one initiator each, four to a group, and a target with eight units for each
    /// group.
    fn create_load_table(&self, callers: &[u16]) -> Result<()> {
        for (target, hosts) in callers.chunks(HOSTS_OF_TARGET).enumerate() {
            let group = format!("group{target}");
            let names: Vec<String> = hosts.iter().map(|number| format!("host{number}")).collect();
            for (name, &number) in names.iter().zip(hosts) {
                let initiator = Caller { number, ..Caller::default() }.name();
                self.tell(&["host", "add", name, "--initiator", &initiator])?;
            }
            let members = names.iter().map(String::as_str);
            self.tell(&["group", "add", &group].into_iter().chain(members).collect::<Vec<_>>())?;
            self.add_target(target)?;
            (0..UNITS_OF_TARGET).try_for_each(|lun| self.add_unit(target, lun, &group))?;
        }
        Ok(())
    }

    /// Creates a pool and applies one document with a host and a volume per caller, and a target for every eight of
    /// them.
    fn apply(&self, folder: &Path, callers: &[u16]) -> Result<()> {
        make_pool(&self.product, folder, DISKS, DISK_SIZE)?;
        let mut text = String::from("schema = 1\n");
        for target in 0..callers.len().div_ceil(UNITS_OF_TARGET) {
            writeln!(text, "[target.target{target}]\niqn = \"{}\"", iqn_of(target))?;
        }
        for (at, &number) in callers.iter().enumerate() {
            let (target, lun) = (at / UNITS_OF_TARGET, at % UNITS_OF_TARGET);
            let initiator = Caller { number, ..Caller::default() }.name();
            // A pool holds fewer volumes than the test needs, so the others have no medium.
            let (pool, kind) =
                if at < THIN { ("tank/", "provision = \"thin\"") } else { ("", "backend = { kind = \"null\" }") };
            writeln!(text, "[volume.\"{pool}unit{target}-{lun}\"]\nsize = \"64MiB\"\n{kind}")?;
            writeln!(text, "[host.host{number}]\ninitiators = [\"{initiator}\"]")?;
            writeln!(text, "[[present]]\nvolume = \"{pool}unit{target}-{lun}\"\nhost = \"host{number}\"")?;
            writeln!(text, "target = \"target{target}\"\nlun = {lun}")?;
        }
        let file = folder.join("array.toml");
        std::fs::write(&file, text)?;
        self.tell(&["apply", "-f", &file.to_string_lossy(), "--yes"])
    }

    /// Opens every page of the console over all objects, while `clients` answer the target; false when a page is slow.
    pub(super) fn show_pages(&self, clients: &mut [Client]) -> Result<bool> {
        let mut pages = Command::new(workspace::root().join("tests/browser/run"));
        pages.arg("--against").arg(self.product.socket()).env("BLOCKYARD", workspace::product()?);
        let mut pages = pages.spawn().context("no browser")?;
        let mut ended = None;
        Client::attend(clients, LOOK, || {
            ended = pages.try_wait()?;
            Ok(ended.is_some())
        })?;
        Ok(ended.is_some_and(|ended| ended.success()))
    }

    fn add_target(&self, target: usize) -> Result<()> {
        self.tell(&["target", "add", &format!("target{target}"), "--iqn", &iqn_of(target)])
    }

    fn add_unit(&self, target: usize, lun: usize, host: &str) -> Result<()> {
        let volume = format!("unit{target}-{lun}");
        self.tell(&["volume", "create", &volume, "64MiB", "--null"])?;
        self.tell(&["present", &volume, host, "--target", &format!("target{target}"), "--lun", &lun.to_string()])
    }

    /// Creates a host with CHAP, whose secret the attackers guess.
    fn admit_guarded(&self, folder: &Path, is_many: bool) -> Result<()> {
        let file = folder.join("secret");
        std::fs::write(&file, SECRET)?;
        let initiator = Caller { number: GUARDED, ..Caller::default() }.name();
        self.tell(&[
            "host",
            "add",
            "guarded",
            "--initiator",
            &initiator,
            "--chap-secret-file",
            &file.to_string_lossy(),
        ])?;
        let unit = if is_many { "tank/unit0-0" } else { "unit0-0" };
        self.tell(&["present", unit, "guarded", "--target", "target0", "--lun", "0"])
    }

    fn tell(&self, arguments: &[&str]) -> Result<()> {
        self.product.command(arguments).map(drop)
    }
}

fn iqn_of(target: usize) -> String {
    format!("{IQN}:crowd{target}")
}
