//! Power loss at every instant of a family's life.

use super::rig::*;
use crate::tests::disk::{Image, PowerCut, Random, block_on};
use crate::tests::world::{Opened, World, volume_id};
use crate::{PoolError, Provisioning, ThinPlan};
use block::{BlockDevice, Extent};
use std::collections::{BTreeMap, BTreeSet};

/// Permitted content of the blocks of a volume or snapshot: the last durable one, and everything written since.
type May = BTreeMap<u64, Vec<Stamp>>;

/// Expected state, as an operator and the hosts know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedState {
    /// Size in blocks and permitted block content of each volume; blocks not listed are zero.
    pub(super) volumes: BTreeMap<u64, (u64, May)>,
    pub(super) snapshots: BTreeMap<u64, (u64, May)>,
}

impl ExpectedState {
    fn put(&mut self, volume: u64, block: u64, stamp: Stamp) {
        let may = &mut self.volumes.get_mut(&volume).unwrap().1;
        may.entry(block).or_insert_with(|| vec![0]).push(stamp);
    }

    /// Records that the present content of the volume is durable.
    fn settle(&mut self, volume: u64) {
        let may = &mut self.volumes.get_mut(&volume).unwrap().1;
        may.values_mut().for_each(|stamps| *stamps = vec![*stamps.last().unwrap()]);
        may.retain(|_, stamps| stamps != &[0]);
    }

    pub(super) fn now(&self, volume: u64) -> May {
        let may = &self.volumes[&volume].1;
        let last = may.iter().map(|(&block, stamps)| (block, vec![*stamps.last().unwrap()]));
        last.filter(|(_, stamps)| stamps != &[0]).collect()
    }
}

/// Life of a family, with the number of events before each acknowledged step.
pub(super) struct Script {
    pub(super) world: World,
    pub(super) opened: Opened,
    pub(super) known: ExpectedState,
    pub(super) acknowledged: Vec<(usize, ExpectedState)>,
    stamp: Stamp,
}

impl Script {
    pub(super) fn begin(fresh: bool) -> Self {
        let world = World::blank(2);
        world.disks.iter().for_each(|disk| disk.prefers_fresh.set(fresh));
        let opened = world.create(&[&[0, 1]]).unwrap();
        opened.pool.tune(TUNING);
        world.journal.borrow_mut().clear();
        let known = ExpectedState::default();
        Self { world, opened, acknowledged: vec![(0, known.clone())], known, stamp: 0 }
    }

    fn acknowledge(&mut self) {
        let events = self.world.journal.borrow().len();
        self.acknowledged.push((events, self.known.clone()));
    }

    pub(super) fn create(&mut self, volume: u64, blocks: u64, provisioning: Provisioning) {
        let plan = ThinPlan { provisioning, ..thin_plan(volume, blocks) };
        block_on(self.opened.pool.create_thin_volume(plan)).unwrap();
        self.known.volumes.insert(volume, (blocks, May::new()));
        self.acknowledge();
    }

    pub(super) fn write(&mut self, volume: u64, block: u64, blocks: u64) {
        self.stamp += 1;
        write(&open(&self.opened.pool, volume), block, blocks, self.stamp).unwrap();
        (block..block + blocks).for_each(|block| self.known.put(volume, block, self.stamp));
        self.acknowledge();
    }

    pub(super) fn discard(&mut self, volume: u64, block: u64, blocks: u64) {
        discard(&open(&self.opened.pool, volume), block, blocks);
        (block..block + blocks).for_each(|block| self.known.put(volume, block, 0));
        self.acknowledge();
    }

    pub(super) fn flush(&mut self, volume: u64) {
        flush(&open(&self.opened.pool, volume));
        self.known.settle(volume);
        self.acknowledge();
    }

    /// Takes snapshots of volumes at one instant, each with its number.
    pub(super) fn snapshots(&mut self, of: &[(u64, u64)]) {
        let plans: Vec<_> = of.iter().map(|&(snapshot, volume)| snapshot_plan(snapshot, volume)).collect();
        // Earlier writes are durable after this, but need not be before.
        block_on(self.opened.pool.create_snapshots(&plans)).unwrap();
        for &(snapshot, volume) in of {
            self.known.settle(volume);
            let now = (self.known.volumes[&volume].0, self.known.now(volume));
            self.known.snapshots.insert(snapshot, now);
        }
        self.acknowledge();
    }

    pub(super) fn delete_snapshot(&mut self, snapshot: u64) {
        block_on(self.opened.pool.delete_snapshot(snapshot_id(snapshot), 0)).unwrap();
        self.known.snapshots.remove(&snapshot);
        self.acknowledge();
    }

    /// Volume of a snapshot.
    pub(super) fn owner(&self, snapshot: u64) -> u64 {
        let status = self.opened.pool.status();
        let mut volumes = status.families.iter().flat_map(|family| &family.volumes);
        let owns = |volume: &&crate::ThinStatus| volume.snapshots.iter().any(|one| one.id == snapshot_id(snapshot));
        u64::try_from(volumes.find(owns).unwrap().id.as_u128() - 1000).unwrap()
    }

    pub(super) fn snapshots_of(&self, volume: u64) -> usize {
        let status = self.opened.pool.status();
        let mut volumes = status.families.iter().flat_map(|family| &family.volumes);
        volumes.find(|one| one.id == volume_id(volume)).unwrap().snapshots.len()
    }

    pub(super) fn is_cloned(&self, snapshot: u64) -> bool {
        let status = self.opened.pool.status();
        let volumes = status.families.iter().flat_map(|family| &family.volumes);
        volumes.flat_map(|volume| &volume.snapshots).any(|one| one.id == snapshot_id(snapshot) && one.is_cloned)
    }

    pub(super) fn clone_of(&mut self, volume: u64, snapshot: u64) {
        block_on(self.opened.pool.create_clone(clone_plan(volume, snapshot))).unwrap();
        self.known.volumes.insert(volume, self.known.snapshots[&snapshot].clone());
        self.acknowledge();
    }

    pub(super) fn roll_back(&mut self, volume: u64, snapshot: u64) {
        block_on(self.opened.pool.roll_back(snapshot_id(snapshot))).unwrap();
        self.known.volumes.get_mut(&volume).unwrap().1 = self.known.snapshots[&snapshot].1.clone();
        self.acknowledge();
    }

    pub(super) fn resize(&mut self, volume: u64, blocks: u64) {
        block_on(self.opened.pool.resize_volume(volume_id(volume), blocks * 4096)).unwrap();
        self.known.volumes.get_mut(&volume).unwrap().0 = blocks;
        self.acknowledge();
    }

    pub(super) fn delete(&mut self, volume: u64) {
        block_on(self.opened.pool.delete_volume(volume_id(volume))).unwrap();
        self.known.volumes.remove(&volume);
        self.acknowledge();
    }

    pub(super) fn run_maintenance(&mut self) {
        run_maintenance(&self.opened.pool);
        self.acknowledge();
    }

    pub(super) fn checkpoint(&mut self, volume: u64) {
        let family = self.opened.pool.open_family(volume_id(volume)).unwrap();
        block_on(family.checkpoint()).unwrap();
        self.acknowledge();
    }
}

/// Result of a run of the checker.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) states: u64,
    pub(super) second: u64,
    pub(super) wrong: Vec<String>,
}

/// Cuts the power after one of `cuts` events of `script`, which began with `base`, and checks what the code
/// under test finds; in one of `every` states also after another cut while it continues from there.
pub(super) fn check_some(script: &Script, base: &[Image], seed: u64, every: u64, cuts: u64) -> Tally {
    let events = script.world.journal.borrow().clone();
    let mut power = PowerCut::of(base.to_vec());
    let mut random = Random(seed);
    let mut tally = Tally::default();
    for cut in 0..=events.len() {
        cut.checked_sub(1).into_iter().for_each(|last| power.push(&events[last]));
        let at = script.acknowledged.iter().rposition(|(count, _)| *count <= cut).unwrap();
        let old = &script.acknowledged[at].1;
        let new = script.acknowledged.get(at + 1).map_or(old, |(_, known)| known);
        let mut choices = Random(random.next());
        if choices.below(cuts) != 0 {
            continue;
        }
        let thorough = choices.below(4) == 0;
        power.each(&mut random, thorough, |images| {
            if tally.wrong.is_empty() {
                let told = guarded(|| judge_state(images, old, new, &mut choices, &mut tally, every));
                tally.wrong.extend(told.err().map(|what| format!("cut {cut} of {}: {what}", events.len())));
            }
        });
        if !tally.wrong.is_empty() {
            break;
        }
    }
    tally
}

/// Runs `judge`; a panic of the code under test counts as a finding.
pub(super) fn guarded(judge: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
    judged.unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        Err(what.or(panic.downcast_ref::<&str>().map(|&what| what.to_owned())).unwrap_or("it panics".to_owned()))
    })
}

fn judge_state(
    images: Vec<Image>,
    old: &ExpectedState,
    new: &ExpectedState,
    random: &mut Random,
    tally: &mut Tally,
    every: u64,
) -> Result<(), String> {
    tally.states += 1;
    let world = World::of(images.clone());
    let opened = world.open().map_err(|refusal| format!("refused: {refusal}"))?;
    opened.pool.tune(TUNING);
    let known = judge(&opened, old, new)?;
    if random.below(every) != 0 {
        return Ok(());
    }
    // The actions from here on are cut as well.
    let first = world.journal.borrow().len();
    go_on(&opened, &known)?;
    let events = world.journal.borrow().clone();
    let mut power = PowerCut::of(images);
    events[..first].iter().for_each(|event| power.push(event));
    let chosen = random.below(4);
    for (at, event) in events[first..].iter().enumerate() {
        power.push(event);
        let mut told = Ok(());
        if at as u64 % 4 != chosen {
            continue;
        }
        power.each(random, false, |images| {
            if told.is_ok() {
                tally.states += 1;
                tally.second += 1;
                let world = World::of(images);
                told = match world.open() {
                    Ok(opened) => {
                        opened.pool.tune(TUNING);
                        judge_after(&opened, &known)
                    }
                    Err(refusal) => Err(format!("refused: {refusal}")),
                };
            }
        });
        told.map_err(|what| format!("cut again: {what}"))?;
    }
    Ok(())
}

/// Stamp of the block of each volume written after a recovery; no other write uses it.
const LATER: Stamp = 1_000_000;

/// Continues after a recovery: a host write, background work and a snapshot.
fn go_on(opened: &Opened, known: &ExpectedState) -> Result<(), String> {
    let told = |error: PoolError| error.to_string();
    for &volume in known.volumes.keys() {
        let device = block_on(opened.pool.open_thin_volume(volume_id(volume))).map_err(told)?;
        write(&device, 2, 1, LATER).map_err(|error| error.to_string())?;
        flush(&device);
    }
    for _ in 0..1000 {
        if !block_on(opened.pool.run_maintenance()).map_err(told)?.more {
            break;
        }
    }
    for &volume in known.volumes.keys() {
        let family = opened.pool.open_family(volume_id(volume)).ok_or("it is open")?;
        block_on(family.checkpoint()).map_err(|error| format!("{error:?}"))?;
    }
    Ok(())
}

/// Checks after a second power loss that everything found after the first is there, and what was done since.
fn judge_after(opened: &Opened, known: &ExpectedState) -> Result<(), String> {
    let mut later = known.clone();
    for (_, may) in later.volumes.values_mut() {
        may.entry(2).or_insert_with(|| vec![0]).push(LATER);
    }
    judge(opened, &later, &later).map(drop)
}

/// Checks that the state found is `old` or `new` and that the pool check finds nothing; returns the present
/// state.
fn judge(opened: &Opened, old: &ExpectedState, new: &ExpectedState) -> Result<ExpectedState, String> {
    let status = opened.pool.status();
    let mut volumes = BTreeMap::new();
    let mut snapshots = BTreeMap::new();
    let number = |id: crate::Uuid, from: u128| u64::try_from(id.as_u128() - from).unwrap();
    for volume in status.families.iter().flat_map(|family| &family.volumes).filter(|volume| !volume.is_deleting) {
        let device = block_on(opened.pool.open_thin_volume(volume.id)).map_err(|error| error.to_string())?;
        volumes.insert(number(volume.id, 1000), (volume.size_bytes / 4096, device));
        for snapshot in &volume.snapshots {
            let device = block_on(opened.pool.open_snapshot(snapshot.id)).map_err(|error| error.to_string())?;
            snapshots.insert(number(snapshot.id, 5000), device);
        }
    }
    let matches = |known: &ExpectedState| -> Result<ExpectedState, String> {
        let sizes: BTreeMap<u64, u64> = volumes.iter().map(|(&volume, (size, _))| (volume, *size)).collect();
        let expected: BTreeMap<u64, u64> = known.volumes.iter().map(|(&volume, (size, _))| (volume, *size)).collect();
        if sizes != expected || !snapshots.keys().eq(known.snapshots.keys()) {
            return Err(format!("volumes {sizes:?}, not {expected:?}; snapshots {:?}", snapshots.keys()));
        }
        let mut found = known.clone();
        for (volume, (size, device)) in &volumes {
            let seen =
                read_all(device, *size, &known.volumes[volume].1).map_err(|what| format!("volume {volume}: {what}"))?;
            found.volumes.insert(*volume, (*size, seen));
        }
        for (snapshot, device) in &snapshots {
            let size = device.geometry().blocks.0;
            read_all(device, size, &known.snapshots[snapshot].1)
                .map_err(|what| format!("snapshot {snapshot}: {what}"))?;
        }
        Ok(found)
    };
    let found = matches(old).or_else(|first| {
        matches(new).map_err(|second| {
            let report = block_on(opened.pool.check());
            format!("{first}; and {second} {report:?}")
        })
    })?;
    let report = block_on(opened.pool.check()).map_err(|error| error.to_string())?;
    if report.findings.is_empty() { Ok(found) } else { Err(format!("the check finds {:?}", report.findings)) }
}

/// Stamps of a device's blocks, each checked to be permitted; unwritten blocks are zero.
fn read_all(device: &TestVolume, size: u64, may: &May) -> Result<May, String> {
    let mut seen = May::new();
    let mut places: BTreeSet<u64> = may.keys().copied().collect();
    places.extend([0, 1, size / 2, size - 1]);
    let granules: BTreeSet<u64> = places.iter().map(|block| block / GRANULE).collect();
    for granule in granules {
        let extent = Extent::new(granule * GRANULE, GRANULE.min(size.saturating_sub(granule * GRANULE)));
        if extent.is_empty() {
            continue;
        }
        let data = block_on(device.read(extent)).map_err(|error| error.to_string())?.into_view();
        for (block, data) in (extent.start.0..).zip(data.chunks_exact(4096)) {
            let stamps: BTreeSet<Stamp> = stamps_of(block, data)?.into_iter().collect();
            let nothing = vec![0];
            let allowed = may.get(&block).unwrap_or(&nothing);
            // A power loss may tear a block; it leaves each of its sectors old or new.
            if let Some(stamp) = stamps.iter().find(|stamp| !allowed.contains(stamp)) {
                return Err(format!("block {block} holds {stamp}, not {allowed:?}"));
            }
            let stamps: Vec<Stamp> = stamps.into_iter().collect();
            if stamps != [0] {
                seen.insert(block, stamps);
            }
        }
    }
    Ok(seen)
}

/// Life of a volume with every operation.
pub(super) fn whole_life(fresh: bool) -> (Vec<Image>, Script) {
    let mut script = Script::begin(fresh);
    let base = script.world.images();
    script.create(1, 400, Provisioning::Thin);
    script.write(1, 3, 1);
    script.flush(1);
    script.write(1, 0, 64);
    script.write(1, 100, 20);
    script.flush(1);
    script.snapshots(&[(1, 1)]);
    script.write(1, 5, 2);
    script.write(1, 100, 1);
    script.flush(1);
    script.discard(1, 16, 32);
    script.flush(1);
    script.write(1, 40, 3);
    script.snapshots(&[(2, 1)]);
    script.write(1, 0, 64);
    script.checkpoint(1);
    script.write(1, 200, 80);
    script.flush(1);
    script.clone_of(2, 1);
    script.write(2, 7, 1);
    script.discard(2, 100, 20);
    script.flush(2);
    script.roll_back(1, 1);
    script.write(1, 0, 2);
    script.flush(1);
    script.snapshots(&[(3, 1), (4, 2)]);
    script.write(1, 1, 1);
    script.write(2, 1, 1);
    script.flush(2);
    script.flush(1);
    script.delete_snapshot(2);
    script.run_maintenance();
    script.resize(1, 500);
    script.write(1, 490, 10);
    script.flush(1);
    script.delete_snapshot(4);
    script.delete(2);
    script.run_maintenance();
    script.write(1, 0, 128);
    script.flush(1);
    script.delete_snapshot(1);
    script.delete_snapshot(3);
    script.run_maintenance();
    script.discard(1, 0, 500);
    script.flush(1);
    script.run_maintenance();
    script.write(1, 30, 40);
    script.flush(1);
    script.delete(1);
    (base, script)
}

/// Two families that compete for the last slabs, one of them thick.
pub(super) fn two_families() -> (Vec<Image>, Script) {
    let mut script = Script::begin(false);
    let base = script.world.images();
    script.create(1, 64, Provisioning::Thick);
    script.create(2, 1000, Provisioning::Thin);
    for round in 0..6 {
        script.write(2, round * 40, 40);
        script.write(1, round * 8, 10);
        script.flush(2);
        if round == 2 {
            script.snapshots(&[(1, 1), (2, 2)]);
        }
    }
    script.flush(1);
    script.discard(2, 0, 250);
    script.flush(2);
    script.run_maintenance();
    script.write(2, 500, 100);
    script.flush(2);
    script.delete_snapshot(2);
    script.run_maintenance();
    (base, script)
}

pub(super) fn assert_clean(tally: &Tally, states_min: u64) {
    println!("{} states, {} of them cut again", tally.states, tally.second);
    assert!(tally.wrong.is_empty(), "{:#?}", tally.wrong);
    assert!(tally.states >= states_min, "only {} states were tried", tally.states);
}

#[test]
fn family_survives_a_power_cut_at_any_instant_of_its_life() {
    let (base, script) = whole_life(false);
    assert_clean(&check_some(&script, &base, 1, 32, 3), 700);
}

#[test]
fn family_on_groups_that_prefer_fresh_writes_survives_a_power_cut_at_any_instant() {
    let (base, script) = whole_life(true);
    assert_clean(&check_some(&script, &base, 2, 48, 4), 400);
}

#[test]
fn families_that_share_a_pool_survive_a_power_cut_at_any_instant() {
    let (base, script) = two_families();
    assert_clean(&check_some(&script, &base, 3, 48, 4), 300);
}

/// With `FAMILY_CRASHES=all` every event of every life is cut, which takes a few minutes.
#[test]
fn families_survive_a_power_cut_at_every_instant() {
    if std::env::var("FAMILY_CRASHES").is_err() {
        return;
    }
    let mut all = Tally::default();
    for (life, seed) in [whole_life(false), whole_life(true), two_families()].into_iter().zip(10..) {
        let tally = check_some(&life.1, &life.0, seed, 8, 1);
        all.states += tally.states;
        all.second += tally.second;
        all.wrong.extend(tally.wrong);
    }
    assert_clean(&all, 10_000);
}
