//! Power cuts at any instant: also during the recovery from another cut, with disks lost at the restart, and with
//! disks that cannot read all of the log.

use crate::bench::{Bench, Plan, is_clean};
use crate::disk::{BLOCK, Content, Cut, Dice, Left, Rack};
use crate::oracle::{content, run};
use crate::script::{Becomes, Expected, Failures, Kinds, cuts_of};
use block::{Extent, View};
use raid::geometry::MemberSet;
use raid::{Level, Repair};
use std::cell::RefCell;
use std::rc::Rc;

/// Thoroughness with which cuts are checked.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Bound up to which all combinations are tried.
    pub combinations: u64,
    /// Random combinations beside the systematic ones.
    pub random: u64,
    /// One state in this many is cut again during its recovery.
    pub again: u64,
    /// One cut in this many is checked.
    pub cuts: u64,
}

pub(crate) const QUICK: Effort = Effort { combinations: 4, random: 1, again: 16, cuts: 40 };
pub(crate) const THOROUGH: Effort = Effort { combinations: 64, random: 8, again: 6, cuts: 3 };

/// Block whose content is undecided at a cut.
struct Undecided {
    disk: usize,
    block: u64,
    /// Later versions, beside the durable one and one that is garbage.
    versions: usize,
}

/// Content of each undecided block: 0 for the durable version, then the later ones, then garbage.
type Choice = Vec<usize>;

pub(crate) struct Judge {
    plan: Plan,
    effort: Effort,
    dice: Dice,
    pub states: u64,
}

impl Judge {
    pub(crate) fn new(plan: Plan, effort: Effort, seed: u64) -> Self {
        Self { plan, effort, dice: Dice::new(seed ^ 0xcafe), states: 0 }
    }

    /// Runs a script and checks the states that its cuts can leave.
    pub(crate) fn script(&mut self, kinds: Kinds, seed: u64) -> Result<(), String> {
        for cut in cuts_of(self.plan, kinds, seed) {
            if self.dice.roll(self.effort.cuts) == 0 {
                self.cut(&cut)?;
            }
        }
        Ok(())
    }

    fn cut(&mut self, cut: &Cut<Expected>) -> Result<(), String> {
        let undecided = undecided(&cut.disks);
        for choice in self.choices(&undecided) {
            self.state(&cut.disks, &undecided, &choice, &cut.known, None)?;
        }
        Ok(())
    }

    fn choices(&mut self, undecided: &[Undecided]) -> Vec<Choice> {
        let count = undecided.iter().try_fold(1u64, |count, one| count.checked_mul(one.versions as u64 + 1));
        if let Some(count) = count.filter(|&count| count <= self.effort.combinations) {
            return (0..count).map(|number| spell(number, undecided)).collect();
        }
        let last: Choice = undecided.iter().map(|one| one.versions).collect();
        let none: Choice = undecided.iter().map(|_| 0).collect();
        let mut choices = vec![none.clone(), last.clone()];
        let one_of = |of: &Choice, at: usize, value: usize| {
            let mut choice = of.clone();
            choice[at] = value;
            choice
        };
        let thorough = self.effort.random > 4;
        for at in 0..undecided.len() {
            if thorough || self.dice.roll(undecided.len() as u64) < 2 {
                choices.push(one_of(&last, at, 0));
                choices.push(one_of(&none, at, last[at]));
                choices.push(
                    none.iter().zip(&last).enumerate().map(|(n, (no, yes))| if n < at { *yes } else { *no }).collect(),
                );
            }
        }
        for disk in 0..self.plan.disks() {
            let of_disk = |n: usize| undecided[n].disk == disk;
            choices.push((0..last.len()).map(|n| if of_disk(n) { last[n] } else { 0 }).collect());
            choices.push((0..last.len()).map(|n| if of_disk(n) { 0 } else { last[n] }).collect());
        }
        for _ in 0..self.effort.random {
            choices.push(undecided.iter().map(|one| self.dice.roll(one.versions as u64 + 1) as usize).collect());
        }
        choices
    }

    /// Checks one state: opens it, verifies it, and sometimes cuts again; `cut_before` says whether blocks were torn
    /// at the previous cut.
    fn state(
        &mut self,
        disks: &[Left],
        undecided: &[Undecided],
        choice: &Choice,
        known: &Expected,
        cut_before: Option<bool>,
    ) -> Result<(), String> {
        self.states += 1;
        let mut lost = self.lost(known);
        let was_torn = cut_before == Some(true);
        let mut torn = was_torn || self.dice.roll(3) == 0;
        if torn && self.is_by_sum() {
            // A checksum-only mirror survives torn blocks, and lost members, but not both in one cut.
            torn = was_torn || known.failed.is_empty();
            lost.clear();
        }
        // Not during a reshape: the bugs planted there need all states with lost members.
        let reads_badly = !self.plan.spare && self.dice.roll(2) == 0;
        let unreadable = if reads_badly { std::mem::take(&mut lost) } else { Vec::new() };
        let rack = Rack::new(Dice::new(self.dice.roll(u64::MAX)));
        for (number, left) in disks.iter().enumerate() {
            let mut content = left.durable.clone();
            for (one, &version) in undecided.iter().zip(choice).filter(|(one, _)| one.disk == number) {
                let (_, later) = left.later.iter().find(|(block, _)| *block == one.block).expect("it is undecided");
                if torn && self.dice.roll(2) == 0 && later.last().is_some_and(|version| version.1 || self.plan.volatile)
                {
                    content.insert(one.block, torn_block(&content, later, one.block, self.dice.roll(3)));
                } else if version > 0 {
                    content.insert(one.block, later[version - 1].0.clone());
                }
            }
            let disk = rack.add(self.plan.disk_blocks(), self.plan.volatile, content);
            if unreadable.contains(&(number as u16)) {
                disk.bad.borrow_mut().extend(self.unreadable_blocks());
            }
        }
        let again: Rc<RefCell<Vec<Vec<Left>>>> = Rc::default();
        let cut_again = cut_before.is_none() && self.dice.roll(self.effort.again) == 0;
        if cut_again {
            let (weak, all) = (Rc::downgrade(&rack), again.clone());
            rack.watch(move || {
                if let Some(rack) = weak.upgrade() {
                    all.borrow_mut().push(rack.cut());
                }
            });
        }
        self.judge(rack, known, &lost, torn).map_err(|error| {
            let area = self.plan.shape().area().expect("a valid shape");
            let describe = |(one, version): (&Undecided, &usize)| {
                let (_, later) =
                    disks[one.disk].later.iter().find(|(block, _)| *block == one.block).expect("it is undecided");
                let flags: String = later.iter().map(|version| if version.1 { '~' } else { '.' }).collect();
                let place = match one.block {
                    block if block < area.ring.start.0 => format!("anchor {block}"),
                    block if block < area.pages_a.start.0 => format!("ring {}", block - area.ring.start.0),
                    block if block < area.data.start.0 => format!("page {}", block - area.pages_a.start.0),
                    block => format!("data {}", block - area.data.start.0),
                };
                format!("{}:{place} {version}/{flags}", one.disk)
            };
            let undecided: Vec<String> = undecided.iter().zip(choice).map(describe).collect();
            format!("{error}; undecided {undecided:?}, cut before {cut_before:?}, not all readable {unreadable:?}")
        })?;
        let cuts = again.take();
        if !cuts.is_empty() {
            for _ in 0..3 {
                let disks = &cuts[self.dice.roll(cuts.len() as u64) as usize];
                let undecided = self::undecided(disks);
                let choice = undecided.iter().map(|one| self.dice.roll(one.versions as u64 + 1) as usize).collect();
                // Disks lost at the first restart are known to be missing; unreadable ones are lost now.
                let mut known = known.clone();
                known.failed.extend(lost.iter().chain(&unreadable));
                self.state(disks, &undecided, &choice, &known, Some(torn))?;
            }
        }
        Ok(())
    }

    /// True for mirrors written one copy after the other, without their content in the log.
    fn is_by_sum(&self) -> bool {
        !self.plan.volatile && self.plan.atomic && matches!(self.plan.level, Level::Raid1 | Level::Raid10)
    }

    /// Chooses members that are missing at the restart, beside failed ones: at most as many as the array survives.
    fn lost(&self, known: &Expected) -> Vec<u16> {
        let shape = raid::Shape { members: self.plan.disks(), ..self.plan.shape() };
        let layout = shape.layout().expect("a valid shape");
        let mut gone: MemberSet = known.failed.iter().copied().collect();
        let mut lost = Vec::new();
        while self.dice.roll(2) == 0 {
            let member = self.dice.roll(u64::from(layout.members())) as u16;
            if gone.contains(member) || !layout.survives(gone.with(member)) {
                break;
            }
            gone = gone.with(member);
            lost.push(member);
        }
        lost
    }

    /// Chooses some blocks of the log and of the doublewrite area.
    fn unreadable_blocks(&self) -> Vec<u64> {
        let area = self.plan.shape().area().expect("a valid shape");
        let one_of = [2, 8, 32][self.dice.roll(3) as usize];
        (area.ring.start.0..area.pages_a.start.0).filter(|_| self.dice.roll(one_of) == 0).collect()
    }

    fn judge(&self, rack: Rc<Rack>, known: &Expected, lost: &[u16], torn: bool) -> Result<(), String> {
        let context = |what: String| format!("{what} (failed {:?}, lost {lost:?}, torn {torn})", known.failed);
        let opened = Bench::open(self.plan, rack.clone(), &known.failed, lost);
        rack.watch(|| {});
        let (bench, opened) = opened.map_err(|error| context(error.to_string()))?;
        if !opened.rejected.is_empty() {
            return Err(context(format!("{:?} were left out", opened.rejected)));
        }
        let found = self.read_all(&bench, known, torn).map_err(&context)?;
        let scrubbed = bench.scrub(Repair::Report);
        let may_lose = torn && self.plan.level == Level::Raid0 && !self.plan.volatile;
        if !is_clean(&scrubbed) && !may_lose {
            return Err(context(format!("{scrubbed:?} after recovery")));
        }
        let failed: Vec<u16> = known.failed.iter().chain(lost).copied().collect();
        drop(bench);
        let (bench, opened) = Bench::open(self.plan, rack, &failed, &[]).map_err(|error| context(error.to_string()))?;
        if (opened.batches, opened.images) != (0, 0) || self.read_all(&bench, known, torn).map_err(&context)? != found {
            return Err(context(format!("opened again: {opened:?}")));
        }
        if bench.blocks() < known.blocks {
            return Err(context(format!("{} blocks, of which hosts have seen {}", bench.blocks(), known.blocks)));
        }
        if self.plan.spare && self.dice.roll(2) == 0 {
            self.end_reshape(&bench, &failed, opened.not_joined, found).map_err(&context)?;
        }
        if self.dice.roll(4) == 0 { self.go_on(&bench, &failed, opened.not_joined).map_err(context) } else { Ok(()) }
    }

    /// Continues a reshape, and checks all blocks.
    fn end_reshape(
        &self,
        bench: &Bench,
        failed: &[u16],
        not_joined: bool,
        found: Vec<Option<Vec<u8>>>,
    ) -> Result<(), String> {
        if not_joined && failed.is_empty() {
            bench.add_member().map_err(|error| format!("added after recovery: {error}"))?;
        }
        bench.reshape().map_err(|error| format!("reshaped after recovery: {error}"))?;
        let mut all = bench.read(Extent::new(0, bench.blocks())).map_err(|error| format!("reshaped: {error}"))?;
        let mut before = found.into_iter().flatten().next().expect("levels with parity are read at once");
        let rest = all.split_off(before.len().min(all.len()));
        if rest.iter().any(|&byte| byte != 0) {
            return Err("what the array gained does not read as zeros".to_owned());
        }
        before.truncate(all.len());
        let scrubbed = bench.scrub(Repair::Report);
        match all == before && is_clean(&scrubbed) {
            true => Ok(()),
            false => Err(format!("{scrubbed:?} after the reshape, and the content is the same: {}", all == before)),
        }
    }

    /// Checks the content of every block; a torn block of RAID-0 may be reported as lost.
    fn read_all(&self, bench: &Bench, known: &Expected, torn: bool) -> Result<Vec<Option<Vec<u8>>>, String> {
        let may_lose = torn && self.plan.level == Level::Raid0;
        let mut all = Vec::new();
        if !may_lose {
            let found = bench.read(Extent::new(0, bench.blocks())).map_err(|error| error.to_string())?;
            known.oracle.judge(0, &found)?;
            return Ok(vec![Some(found)]);
        }
        for lba in 0..bench.blocks() {
            let found = bench.read(Extent::new(lba, 1)).ok();
            if let Some(found) = &found {
                known.oracle.judge(lba, found)?;
            }
            all.push(found);
        }
        Ok(all)
    }

    /// Writes to the array, replaces its missing members, and checks it.
    fn go_on(&self, bench: &Bench, failed: &[u16], not_joined: bool) -> Result<(), String> {
        bench.reshape().map_err(|error| format!("reshaped after recovery: {error}"))?;
        let is_out = not_joined && bench.array.status().members.len() == self.plan.members;
        let blocks = bench.blocks();
        for lba in 0..blocks {
            let _ =
                bench.write(lba, content(1 << 20, lba)).map_err(|error| format!("write after recovery: {error}"))?;
        }
        for &member in failed.iter().filter(|&&member| !(is_out && usize::from(member) == self.plan.members)) {
            let rebuilt = bench.replace(member);
            if !rebuilt.unreadable.is_empty() {
                return Err(format!("rebuilt after recovery: {rebuilt:?}"));
            }
        }
        let scrubbed = bench.scrub(Repair::Report);
        let found = bench.read(Extent::new(0, blocks)).map_err(|error| error.to_string())?;
        match found == *run(1 << 20, Extent::new(0, blocks)) && is_clean(&scrubbed) {
            true => Ok(()),
            false => Err(format!("{scrubbed:?} after all was written anew")),
        }
    }
}

fn undecided(disks: &[Left]) -> Vec<Undecided> {
    let of = |(disk, left): (usize, &Left)| {
        left.later
            .iter()
            .map(move |(block, later)| Undecided { disk, block: *block, versions: later.len() })
            .collect::<Vec<_>>()
    };
    disks.iter().enumerate().flat_map(of).collect()
}

fn spell(mut number: u64, undecided: &[Undecided]) -> Choice {
    let digit = |one: &Undecided| {
        let base = one.versions as u64 + 1;
        let digit = number % base;
        number /= base;
        digit as usize
    };
    undecided.iter().map(digit).collect()
}

/// Garbage: noise, or sectors of two versions.
fn torn_block(now: &Content, later: &[(View, bool)], block: u64, how: u64) -> View {
    let last = &later.last().expect("a version is in flight").0;
    let zeros = View::zeroed(BLOCK);
    let before = now.get(&block).unwrap_or(&zeros);
    let mut bytes = last.clone().into_buf();
    match how {
        0 => bytes.copy_from_slice(&content(u64::from(u32::MAX), block)),
        1 => bytes[512..].copy_from_slice(&before[512..]),
        _ => bytes[..2048].copy_from_slice(&before[..2048]),
    }
    bytes.freeze()
}

/// Arrays under test: every level, with and without volatile caches.
pub(crate) fn plans() -> Vec<Plan> {
    let of = |level, members| [true, false].map(|volatile| Plan::small(level, members, volatile));
    let mut plans: Vec<Plan> = [
        (Level::Raid0, 3),
        (Level::Raid1, 2),
        (Level::Raid1, 3),
        (Level::Raid5, 3),
        (Level::Raid6, 4),
        (Level::Raid10, 4),
    ]
    .into_iter()
    .flat_map(|(level, members)| of(level, members))
    .collect();
    plans.push(Plan { atomic: false, ..Plan::small(Level::Raid10, 4, false) });
    plans.push(Plan { behind: true, ..Plan::small(Level::Raid10, 4, false) });
    plans.push(Plan { behind: false, ..Plan::small(Level::Raid6, 4, true) });
    plans
}

pub(crate) const KINDS: Kinds = Kinds { failures: Failures::Any, rounds: 7, becomes: Becomes::AsItWas };

pub(crate) fn judged(plan: Plan, kinds: Kinds, effort: Effort, seeds: std::ops::Range<u64>) -> u64 {
    let mut states = 0;
    for seed in seeds {
        let mut judge = Judge::new(plan, effort, seed);
        if let Err(error) = judge.script(kinds, seed) {
            panic!("{plan:?}, seed {seed}, state {}: {error}", judge.states);
        }
        states += judge.states;
    }
    states
}

/// Seeds to check, and their thoroughness.
pub(crate) fn asked() -> (std::ops::Range<u64>, Effort) {
    let asked = std::env::var("RAID_CRASH_SEEDS").ok();
    match asked.as_deref().map(|asked| asked.split_once("..").expect("a range of seeds")) {
        Some((from, to)) => (from.parse().expect("a number")..to.parse().expect("a number"), THOROUGH),
        None => (0..3, QUICK),
    }
}

/// Checks the seeds in `RAID_CRASH_SEEDS`, such as 1000..2000, more thoroughly.
///
/// Run with `cargo test --release -p raid --test protected -- --nocapture any_power_cut`.
#[test]
fn array_after_any_power_cut_holds_old_or_new() {
    let (seeds, look) = asked();
    let mut total = 0;
    for seed in seeds {
        total += plans().into_iter().map(|plan| judged(plan, KINDS, look, seed..seed + 1)).sum::<u64>();
        println!("seed {seed}: {total} states so far");
    }
}
