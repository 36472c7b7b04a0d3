//! Power-failure test: the daemon is killed under load at random times and restarted, and every block is checked.
//!
//! The project's own initiator writes blocks that contain their address, a sequence number and the run. A block may
//! hold the write acknowledged last or one that was outstanding at the kill; anything else is a fault. Member disks
//! fail before some of the kills, and rebuilds run during others.

mod load;
mod oracle;

use crate::client::Client;
use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lab::random::Random;
use lab::target::product::{self, IQN, Launch, Product};
use lab::target::{Unit, free_portal};
use load::Load;
use oracle::Oracle;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const DISKS: usize = 6;
/// Number of failed members that RAID-6 tolerates.
const FAILED_MAX: usize = 2;

#[derive(Args)]
pub(crate) struct Options {
    /// Number of power failures
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Repeat the choices of an earlier run (its timing only approximately, because the daemon runs in real time)
    #[arg(long)]
    seed: Option<u64>,
    /// Acknowledge the writes from a log device of two disks
    #[arg(long)]
    log: bool,
    /// Further arguments of `blockyard serve`
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    serve: Vec<String>,
}

/// Events on the disks during a round, besides the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// None.
    Quiet,
    /// A member fails during the load.
    FailOne,
    /// All failed members are replaced just before the load, so that the kill interrupts the rebuild.
    Rebuild,
}

/// Runs the rounds; true when no block was lost.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let seed = options.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| u64::from(time.subsec_nanos()))
    });
    println!(
        "power cuts: {} rounds, seed {seed} (cargo xtask power-cut --rounds {} --seed {seed}{})",
        options.rounds,
        options.rounds,
        if options.log { " --log" } else { "" }
    );
    let scratch = tempfile::tempdir()?;
    let mut bench = Bench::new(scratch.path(), seed, options)?;
    for round in 1..=options.rounds {
        let begin = Instant::now();
        let done = bench.round(round);
        let done = done.with_context(|| {
            format!("round {round} of seed {seed}; the daemon said: {}", bench.product.last_words())
        })?;
        println!("round {round:>3}: {done}, {:.1} s", begin.elapsed().as_secs_f32());
        if !bench.faults.is_empty() {
            break;
        }
    }
    for fault in bench.faults.iter().take(20) {
        println!("LOST {fault}");
    }
    let failed = u64::from(!bench.faults.is_empty());
    println!("{} passed, {failed} failed", bench.rounds_held);
    Ok(failed == 0)
}

/// Array under test, and the state of the test.
struct Bench {
    product: Product,
    folder: PathBuf,
    unit: Unit,
    oracle: Oracle,
    random: Random,
    disks_made: usize,
    rounds_held: u64,
    faults: Vec<String>,
}

impl Bench {
    fn new(folder: &Path, seed: u64, options: &Options) -> Result<Self> {
        let portal = free_portal()?;
        let product = Product::launch(Launch {
            build: workspace::product()?,
            folder: folder.to_owned(),
            portals: vec![portal],
            arguments: options.serve.clone(),
            ..Launch::default()
        })?;
        product::make_pool(&product, folder, DISKS, "256MiB")?;
        let iqn = format!("{IQN}:cut");
        product.command(&["volume", "create", "tank/cut", "512MiB"])?;
        if options.log {
            for disk in ["log0", "log1"] {
                product::add_disk(&product, folder, disk, "128MiB")?;
            }
            product.command(&["pool", "add-log", "tank", "log0", "log1"])?;
            // Only with this policy are writes acknowledged from the log device.
            product.command(&["volume", "set", "tank/cut", "--write-policy", "back"])?;
        }
        product.command(&["target", "add", "cut", "--iqn", &iqn])?;
        product.command(&["host", "add", "anyone", "--any"])?;
        product.command(&["present", "tank/cut", "anyone", "--target", "cut", "--lun", "0"])?;
        let unit = Unit { portal, iqn, lun: 0 };
        Ok(Self {
            product,
            folder: folder.to_owned(),
            unit,
            oracle: Oracle::new(seed, load::BLOCKS),
            random: Random::new(seed),
            disks_made: DISKS,
            rounds_held: 0,
            faults: Vec::new(),
        })
    }

    /// Runs the load, kills and restarts the daemon, and checks all blocks; returns a summary.
    fn round(&mut self, round: u64) -> Result<String> {
        let plan = self.choose(round)?;
        if plan == Plan::Rebuild {
            self.replace_failed()?;
        }
        let victim = if plan == Plan::FailOne { Some(self.choose_member()?) } else { None };
        let span = Duration::from_millis(30 + self.random.below(500));
        let mut load = Load { random: Random::new(self.random.next()), span, victim: victim.as_deref() };
        let wrote = load.run(&mut self.product, &self.unit, &mut self.oracle)?;
        // The load has ended with the kill of the daemon.
        self.product.restart()?;
        self.judge("after the cut")?;
        // The fourth round always probes, so that the default number of rounds covers it.
        let probes = round == 4 || (round > 4 && self.random.one_in(3));
        if self.faults.is_empty() && probes {
            self.probe()?;
            if self.random.one_in(2) {
                self.replace_failed()?;
                self.product.command(&["pool", "show", "tank", "--wait"])?;
            }
        }
        self.rounds_held += u64::from(self.faults.is_empty());
        let failed = DISKS - self.members("in_sync")?.len();
        Ok(format!(
            "{plan:?}, cut after {span:?} and {wrote} acknowledged writes, then {failed} of {DISKS} members not in sync"
        ))
    }

    fn choose(&mut self, round: u64) -> Result<Plan> {
        // Members that are rebuilding hold no redundancy yet, so they count against the limit as well.
        let (failed, out) = (self.members("failed")?.len(), DISKS - self.members("in_sync")?.len());
        // The first rounds cover every plan; later ones are random.
        let may_rebuild = failed > 0 && (round == 3 || self.random.one_in(2));
        let may_fail = out < FAILED_MAX && (round == 2 || self.random.one_in(2));
        Ok(match round {
            1 => Plan::Quiet,
            _ if may_rebuild => Plan::Rebuild,
            _ if may_fail => Plan::FailOne,
            _ => Plan::Quiet,
        })
    }

    /// Fails healthy members until RAID-6 has no redundancy left, and checks again: all data must be recoverable from
    /// the remaining members.
    fn probe(&mut self) -> Result<()> {
        // Exits with 1 when the pool is degraded after its rebuilds, which is allowed here.
        self.product.attempt(&["pool", "show", "tank", "--wait"])?;
        // Gives the resync of the stripes that were being written at the kill time to finish.
        std::thread::sleep(Duration::from_secs(2));
        // Only as many as the level tolerates, since the data must survive.
        while DISKS - self.members("in_sync")?.len() < FAILED_MAX {
            let victim = self.choose_member()?;
            self.product.command(&["disk", "fail", &victim])?;
        }
        self.judge("with two members out")
    }

    fn judge(&mut self, when: &str) -> Result<()> {
        let mut client = Client::log_in(&self.unit, 1).with_context(|| format!("no login {when}"))?;
        let faults = load::judge(&mut client, &mut self.oracle)?;
        self.faults.extend(faults.into_iter().map(|fault| format!("{when}: {fault}")));
        Ok(())
    }

    /// Replaces every failed member by a new disk; does not wait for the rebuilds.
    fn replace_failed(&mut self) -> Result<()> {
        for failed in self.members("failed")? {
            let spare = format!("d{}", self.disks_made);
            self.disks_made += 1;
            product::add_disk(&self.product, &self.folder, &spare, "256MiB")?;
            self.product.command(&["disk", "replace", &failed, &spare])?;
        }
        Ok(())
    }

    fn choose_member(&mut self) -> Result<String> {
        let healthy = self.members("in_sync")?;
        ensure!(!healthy.is_empty(), "no member is in sync");
        let index = self.random.below(healthy.len() as u64);
        Ok(healthy[usize::try_from(index)?].clone())
    }

    /// Returns the names of the members in `state`; every member that is neither in sync nor rebuilding counts as
    /// "failed".
    fn members(&self, state: &str) -> Result<Vec<String>> {
        let text = self.product.command(&["--output", "json", "pool", "show", "tank"])?;
        let shown: Value = serde_json::from_str(&text).context("pool show prints no JSON")?;
        let members = shown["pool"]["groups"][0]["members"].as_array().context("the pool shows no members")?;
        let mut names = Vec::new();
        for member in members {
            let (Some(name), Some(is)) = (member["disk"].as_str(), member["state"].as_str()) else {
                bail!("a member is shown as {member}");
            };
            let class = if matches!(is, "in_sync" | "rebuilding") { is } else { "failed" };
            if class == state {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}
