//! Differential test: sends the same commands to Blockyard and to Debian's tgtd, and requires an explanation of each
//! difference.

mod answer;
pub(crate) mod explained;
mod side;
mod stream;

use answer::{Answer, Aspect};
use anyhow::{Context, Result};
use clap::Args;
use explained::{Case, Explained};
use lab::target::Kind;
use side::Side;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;
use stream::{BLOCKS, Changes, Request, request};

const TABLE: &str = "docs/conformance/differential.toml";
/// Number of commands after which reservations and modes are reset, so that most of the stream is not refused.
const LEVEL_EVERY: u64 = 64;
/// Length of a run that must use every row of the table.
const LONG: u64 = 100_000;

#[derive(Args)]
pub(crate) struct Options {
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds, each on new units
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Number of commands per seed
    #[arg(long, default_value_t = 5000)]
    commands: u64,
    /// Send only this command of the stream
    #[arg(long)]
    only: Option<u64>,
    /// Print every command and both answers
    #[arg(long)]
    trace: bool,
    /// Print the number of uses of each explanation
    #[arg(long)]
    verbose: bool,
}

/// Position of a command in its stream.
#[derive(Clone, Copy)]
struct StreamPosition {
    seed: u64,
    number: u64,
}

/// Results of a run.
struct Tally {
    commands: u64,
    /// Number of differences that each row of the table explained.
    explained: Vec<u64>,
    /// Number of unexplained differences by command and kind.
    unexplained: BTreeMap<(&'static str, Aspect, String, String), u64>,
    unequal_contents: usize,
}

/// Sends the streams and prints the results; true when every difference is explained.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let begin = Instant::now();
    let text = fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    let table = Explained::parse(&text).context(TABLE)?;
    let mut tally =
        Tally { commands: 0, explained: vec![0; table.rows.len()], unexplained: BTreeMap::new(), unequal_contents: 0 };
    for seed in options.seed..options.seed + options.seeds {
        let scratch = tempfile::tempdir()?;
        let mut sides = Sides::start(scratch.path())?;
        // A command depends on seed and number alone, so that a single one can be repeated.
        let numbers = options.only.map_or(0..options.commands, |number| number..number + 1);
        for number in numbers {
            sides.compare(StreamPosition { seed, number }, &table, &mut tally, options.trace)?;
        }
        // A reservation that is left over would refuse the reads of the comparison.
        sides.level()?;
        tally.unequal_contents += usize::from(!sides.contents_are_equal(seed)?);
    }
    println!("{} commands in {:.0} s", tally.commands, begin.elapsed().as_secs_f32());
    Ok(tally.report(&table, options.verbose))
}

impl Tally {
    /// Counts a difference, and prints the first of each kind without an explanation.
    fn note(&mut self, aspect: Aspect, place: StreamPosition, table: &Explained, case: &Case<'_>) {
        if let Some(row) = table.explain(case, aspect) {
            self.explained[row] += 1;
            return;
        }
        let way = (case.request.name, aspect, case.ours.end.clone(), case.theirs.end.clone());
        let times = self.unexplained.entry(way).or_default();
        *times += 1;
        if *times == 1 {
            show(&format!("FAILED {aspect:?} not explained: "), place, case);
        }
    }

    fn report(&self, table: &Explained, verbose: bool) -> bool {
        let rows = || table.rows.iter().zip(&self.explained);
        if verbose {
            rows().for_each(|(row, times)| println!("{times:7} {}", row.id));
        }
        let mut stale = 0;
        // A short run does not reach every row, so only a long one can show that a row is stale.
        for (row, _) in rows().filter(|&(_, &times)| times == 0 && self.commands >= LONG) {
            println!("FAILED `{}` in {TABLE} explains nothing", row.id);
            stale += 1;
        }
        for ((name, aspect, ours, theirs), times) in &self.unexplained {
            println!("FAILED {times:5} times {name}: {aspect:?}, ours {ours}, tgtd's {theirs}");
        }
        println!(
            "{} differences explained by {} rows, {} not explained, {} stale rows, contents of {} seeds unequal",
            self.explained.iter().sum::<u64>(),
            rows().filter(|(_, times)| **times > 0).count(),
            self.unexplained.values().sum::<u64>(),
            stale,
            self.unequal_contents
        );
        self.unexplained.is_empty() && self.unequal_contents + stale == 0
    }
}

/// Both targets.
struct Sides {
    ours: Side,
    theirs: Side,
}

impl Sides {
    fn start(scratch: &Path) -> Result<Self> {
        let start = |kind, name: &str| {
            let folder = scratch.join(name);
            fs::create_dir(&folder)?;
            Side::start(kind, &folder)
        };
        Ok(Self { ours: start(Kind::Blockyard, "ours")?, theirs: start(Kind::Tgt, "theirs")? })
    }

    /// Sends a command of the stream to both sides and compares the answers.
    fn compare(&mut self, place: StreamPosition, table: &Explained, tally: &mut Tally, trace: bool) -> Result<()> {
        let StreamPosition { seed, number } = place;
        if number.is_multiple_of(LEVEL_EVERY) {
            self.level()?;
        }
        let request = request(seed, number);
        let sent =
            |answer: Result<Answer>| answer.with_context(|| format!("seed {seed}, command {number}: {request:02x?}"));
        let (ours, theirs) = (sent(self.ours.send(&request))?, sent(self.theirs.send(&request))?);
        tally.commands += 1;
        let mut differences = ours.differences(&theirs);
        // A side that refused the command has not changed its blocks; `mend` handles that case.
        if ours.end == "good" && theirs.end == "good" && !self.are_alike_after(&request)? {
            differences.push(Aspect::Contents);
        }
        let case = Case { request: &request, ours: &ours, theirs: &theirs };
        if trace {
            show("", place, &case);
        }
        for &aspect in &differences {
            tally.note(aspect, place, table, &case);
        }
        // A command with several extents may have unmapped some of them before it was refused.
        let in_part = ours.end != "good" && request.extents.len() > 1;
        if in_part || differences.iter().any(|aspect| matches!(aspect, Aspect::End | Aspect::Contents)) {
            self.mend(&request, [&ours, &theirs])?;
        }
        Ok(())
    }

    /// True when the blocks that the command may have changed are equal on both sides.
    fn are_alike_after(&mut self, request: &Request) -> Result<bool> {
        if request.changes != Changes::Blocks {
            return Ok(true);
        }
        for (lba, blocks) in request.surroundings() {
            // A read beyond the end would be refused, and would compare nothing.
            let (nexus, blocks) = (request.nexus, u32::try_from(blocks.min(BLOCKS.saturating_sub(lba)))?);
            let (ours, theirs) = (self.ours.read(nexus, lba, blocks)?, self.theirs.read(nexus, lba, blocks)?);
            // A unit attention or a reservation prevents the read on both sides.
            if ours.is_some() && theirs.is_some() && ours != theirs {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes both sides equal again after one of them may have executed a command that the other refused.
    fn mend(&mut self, request: &Request, answers: [&Answer; 2]) -> Result<()> {
        // The session after a lost connection has unit attentions pending.
        if request.changes != Changes::Nothing || answers.iter().any(|answer| answer.is_last()) {
            self.level()?;
        }
        if request.changes == Changes::Blocks {
            for (lba, blocks) in request.surroundings() {
                // A count of zero may mean all blocks up to the end.
                let blocks = if blocks == 0 { BLOCKS } else { blocks };
                self.ours.clear(lba, blocks)?;
                self.theirs.clear(lba, blocks)?;
            }
        }
        Ok(())
    }

    fn level(&mut self) -> Result<()> {
        self.ours.level().context("ours")?;
        self.theirs.level().context("tgtd's")
    }

    fn contents_are_equal(&mut self, seed: u64) -> Result<bool> {
        let (ours, theirs) = (self.ours.contents()?, self.theirs.contents()?);
        let Some(at) = ours.iter().zip(&theirs).position(|(our, their)| our != their) else { return Ok(true) };
        println!("FAILED seed {seed}: in the end, block {} differs", at / stream::BLOCK_BYTES as usize);
        Ok(false)
    }
}

/// Prints a command, its answers, and the options that repeat it.
fn show(what: &str, place: StreamPosition, case: &Case<'_>) {
    let Case { request, ours, theirs } = case;
    let StreamPosition { seed, number } = place;
    println!("{what}{} (--seed {seed} --commands {}, perhaps --only {number})", request.name, number + 1);
    println!("  CDB    {:02x?}", request.cdb);
    let (nexus, moves, expects, blocks) = (request.nexus, request.moves, request.expects(), &request.extents);
    let lun = request.absent_lun.map_or("its own".to_owned(), |lun| lun.to_string());
    println!("  sent   by initiator {nexus}, LUN {lun}, moves {moves}, expects {expects}, blocks {blocks:?}");
    if let Some(data) = &request.data_out {
        println!("  data   {:02x?}", &data[..data.len().min(64)]);
    }
    println!("  ours   {ours}");
    println!("  theirs {theirs}");
    let bytes = ours.differing_bytes(theirs);
    if !bytes.is_empty() {
        println!("  differ {:?}{}", &bytes[..bytes.len().min(32)], if bytes.len() > 32 { " and more" } else { "" });
    }
}
