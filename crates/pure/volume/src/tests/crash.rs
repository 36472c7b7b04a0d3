//! Power loss at every instant of a pool's life: acknowledged changes survive, others survive or not, and
//! nothing else is ever found.

use super::disk::{Bug, Image, PowerCut, Random, block_on};
use super::world::{DISK_BLOCKS, Disk, Opened, SLAB_BLOCKS, TestPool, World, disk_id, labelling, members, volume_id};
use crate::{GroupRole, LogRecord, MemberState, NewDisk, PoolError, PoolPhase, PoolRefusal, VolumePlan, probe, wipe};
use block::{BlockDevice, Blocks, Buf, Extent, Lba};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Expected state, as an operator and the hosts know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ExpectedState {
    live: bool,
    /// Size of each volume in bytes.
    volumes: BTreeMap<u64, u64>,
    /// Last byte with which each block of a volume was filled; the others are zero.
    data: BTreeMap<(u64, u64), u8>,
    /// Participating disks, and those of them that are up to date.
    taking_part: BTreeSet<Uuid>,
    in_service: BTreeSet<Uuid>,
    /// Failed disks.
    given_up: BTreeSet<usize>,
    /// Role and number of slabs of each group.
    groups: Vec<(GroupRole, u32)>,
    log: Option<LogRecord>,
    /// Stored reservations of each volume.
    reserved: BTreeMap<u64, Vec<u8>>,
}

fn groups(opened: &Opened) -> Vec<(GroupRole, u32)> {
    let groups = opened.pool.status().groups.into_iter().map(|group| (group.record.role, group.record.slabs));
    groups.filter(|(role, _)| *role != GroupRole::Removed).collect()
}

/// Life of a pool, with the number of events before each acknowledged step.
struct Script {
    world: World,
    opened: Opened,
    known: ExpectedState,
    acknowledged: Vec<(usize, ExpectedState)>,
}

impl Script {
    fn begin(disks: usize, groups: &[&[usize]], prepare: impl Fn(&Disk)) -> Self {
        let world = World::blank(disks);
        world.disks.iter().for_each(&prepare);
        let opened = world.create(groups).expect("the disks are blank");
        let known = ExpectedState { live: true, ..ExpectedState::default() };
        let mut script = Self { world, opened, known, acknowledged: vec![(0, ExpectedState::default())] };
        script.acknowledge();
        script
    }

    fn acknowledge(&mut self) {
        if self.known.live {
            let members = members(&self.opened.pool);
            let those = |holds: fn(&MemberState) -> bool| {
                members.iter().filter(|(_, state)| holds(state)).map(|(disk, _)| *disk).collect()
            };
            self.known.taking_part = those(|state| state.takes_part());
            self.known.groups = groups(&self.opened);
            self.known.log = self.opened.pool.write_log().record();
            self.known.in_service = those(|state| *state == MemberState::InService);
        }
        let events = self.world.journal.borrow().len();
        self.acknowledged.push((events, self.known.clone()));
    }

    fn create_volume(&mut self, number: u64, size_bytes: u64) {
        let plan = VolumePlan {
            id: volume_id(number),
            name: format!("v{number}"),
            size_bytes,
            block_bytes: 512,
            stripe_unit_bytes: 0,
            created_at: 1,
        };
        block_on(self.opened.pool.create_volume(plan)).expect("there is room");
        self.known.volumes.insert(number, size_bytes);
        self.acknowledge();
    }

    fn resize(&mut self, number: u64, size_bytes: u64) {
        block_on(self.opened.pool.resize_volume(volume_id(number), size_bytes)).expect("there is room");
        self.known.volumes.insert(number, size_bytes);
        self.acknowledge();
    }

    /// Stores reservations of the volume, or removes them.
    fn reserve(&mut self, number: u64, kept: &[u8]) {
        block_on(self.opened.pool.store_reservations(volume_id(number), kept.to_vec())).expect("it is there");
        match kept {
            [] => self.known.reserved.remove(&number),
            _ => self.known.reserved.insert(number, kept.to_vec()),
        };
        self.acknowledge();
    }

    fn delete(&mut self, number: u64) {
        block_on(self.opened.pool.delete_volume(volume_id(number))).expect("it is there");
        self.known.volumes.remove(&number);
        self.known.reserved.remove(&number);
        self.known.data.retain(|&(volume, _), _| volume != number);
        self.acknowledge();
    }

    fn write(&mut self, number: u64, block: u64, fill: u8) {
        let mut data = Buf::zeroed(4096);
        data.fill(fill);
        block_on(async {
            let volume = self.opened.pool.open_volume(volume_id(number)).await.unwrap();
            let written = volume.write(Lba(block), data.freeze()).await.unwrap();
            let _ = volume.flush(written).await.unwrap();
        });
        self.known.data.insert((number, block), fill);
        self.acknowledge();
    }

    fn fail(&mut self, disk: usize, group: usize, position: usize) {
        self.opened.groups[group].drop_member(position);
        self.known.given_up.insert(disk);
        block_on(self.opened.pool.members().set_state(disk_id(disk), MemberState::Failed)).unwrap();
        self.acknowledge();
    }

    /// Lets a disk fail; only the next commit notices it.
    fn die(&mut self, disk: usize, group: usize, position: usize) {
        self.opened.groups[group].drop_member(position);
        self.world.disks[disk].dead.set(true);
        self.known.given_up.insert(disk);
    }

    fn replace(&mut self, lost: usize, by: usize) {
        let new = NewDisk { id: disk_id(by), device: self.world.disks[by].clone() };
        block_on(self.opened.pool.members().replace(disk_id(lost), new, 2, "test", false)).expect("it is blank");
        self.acknowledge();
        let front = Blocks(3 * SLAB_BLOCKS);
        let state = MemberState::Rebuilding { front };
        block_on(self.opened.pool.members().set_state(disk_id(by), state)).unwrap();
        self.acknowledge();
    }

    /// Copies the part of the data area that the script uses, and puts the disk into service.
    fn fill(&mut self, disk: usize, from: usize, slabs: u64) {
        block_on(async {
            let (source, target) = (&self.world.disks[from], &self.world.disks[disk]);
            for slab in 0..slabs {
                let extent = Extent::new(crate::layout::DATA_START + slab * SLAB_BLOCKS, SLAB_BLOCKS);
                let data = source.read(extent).await.unwrap().into_view();
                let written = target.write(extent.start, data).await.unwrap();
                let _ = target.flush(written).await.unwrap();
            }
            self.opened.pool.members().set_state(disk_id(disk), MemberState::InService).await.unwrap();
        });
        self.acknowledge();
    }

    /// Adds a group of `blocks` of its disks.
    fn add_group(&mut self, number: u128, disks: &[usize], blocks: Blocks) {
        let (mut plan, device) = self.world.group(number, disks);
        device.show(blocks);
        plan.member_blocks = blocks;
        self.opened.groups.push(device.clone());
        block_on(self.opened.pool.add_group(plan, device, labelling())).expect("the disks are blank");
        self.acknowledge();
    }

    /// Grows the group over the rest of its disks.
    fn grow_group(&mut self, group: u16) {
        let blocks = crate::data_area(Blocks(DISK_BLOCKS)).unwrap().len;
        self.opened.groups[usize::from(group)].show(blocks);
        assert!(block_on(self.opened.pool.grow_group(group, blocks)).unwrap() > 0);
        self.acknowledge();
    }

    /// Adds a member that must be rebuilt.
    fn add_member(&mut self, group: u16, disk: usize) {
        let new = NewDisk { id: disk_id(disk), device: self.world.disks[disk].clone() };
        let state = MemberState::Rebuilding { front: Blocks(0) };
        block_on(self.opened.pool.members().add(group, new, state, labelling())).expect("the disk is blank");
        self.acknowledge();
    }

    fn take_back(&mut self, disk: usize) {
        block_on(self.opened.pool.members().remove_last(disk_id(disk))).expect("it is the last");
        self.acknowledge();
    }

    fn add_log(&mut self, number: u128, disks: &[usize]) {
        let (plan, _) = self.world.group(number, disks);
        block_on(self.opened.pool.write_log().add_group(plan, labelling())).expect("the disks are blank");
        self.acknowledge();
    }

    fn log(&mut self, step: impl AsyncFnOnce(&TestPool) -> Result<(), PoolError>) {
        block_on(step(&self.opened.pool)).expect("the log is there");
        self.acknowledge();
    }

    fn mark_clean(&mut self) {
        assert!(block_on(self.opened.pool.mark_clean(0)).unwrap());
        self.acknowledge();
    }

    fn destroy(&mut self) {
        block_on(self.opened.pool.clone().destroy()).expect("it has no volumes");
        self.known = ExpectedState { given_up: self.known.given_up.clone(), ..ExpectedState::default() };
        self.acknowledge();
    }
}

/// Life of three mirrored disks with every change of a catalog.
fn whole_life(prepare: impl Fn(&Disk)) -> Script {
    let mut script = Script::begin(5, &[&[0, 1, 2]], prepare);
    script.create_volume(1, 2 << 20);
    script.write(1, 3, 0x11);
    script.reserve(1, b"HOST may write");
    script.create_volume(2, (1 << 20) + 512);
    script.reserve(2, b"nobody else");
    script.reserve(1, b"OTHER may write, and HOST may not any more");
    script.resize(1, 3 << 20);
    script.write(1, 3, 0x12);
    script.write(1, 600, 0x13);
    script.fail(2, 0, 2);
    script.write(2, 0, 0x21);
    script.mark_clean();
    script.delete(2);
    script.create_volume(3, 1 << 20);
    script.write(3, 9, 0x31);
    script.replace(2, 3);
    script.fill(3, 1, 6);
    script.die(0, 0, 0);
    script.create_volume(4, 1 << 20);
    script.reserve(1, b"");
    script.mark_clean();
    [1, 3, 4].into_iter().for_each(|volume| script.delete(volume));
    script.destroy();
    script
}

/// Result of a run of the checker.
#[derive(Debug, Default)]
struct Tally {
    states: u64,
    recoveries_cut: u64,
    wrong: Vec<String>,
}

/// Cuts the power after every event of `script` and checks what the code under test finds; with `losses` also
/// when disks that the pool can spare are lost on the way.
fn check(script: &Script, losses: bool, seed: u64) -> Tally {
    check_from(0, script, losses, seed)
}

/// Runs `check` from the event `first` on.
fn check_from(first: usize, script: &Script, losses: bool, seed: u64) -> Tally {
    let mut power = PowerCut::of(vec![Image::default(); script.world.disks.len()]);
    let events = script.world.journal.borrow().clone();
    let mut random = Random(seed);
    let mut tally = Tally::default();
    for cut in 0..=events.len() {
        cut.checked_sub(1).into_iter().for_each(|last| power.push(&events[last]));
        if cut < first {
            continue;
        }
        let at = script.acknowledged.iter().rposition(|(count, _)| *count <= cut).expect("the first is at 0");
        let old = &script.acknowledged[at].1;
        let new = script.acknowledged.get(at + 1).map_or(old, |(_, known)| known);
        let mut choices = Random(random.next());
        let judge = Judge { old, new, cut };
        power.each(&mut random, true, |images| {
            let away = judge.must_be_away();
            judge.state(&images, &away, &mut choices, &mut tally);
            let lost: Vec<usize> = (0..images.len()).filter(|_| losses && choices.below(3) == 0).collect();
            if judge.can_do_without(&lost) {
                judge.state(&images, &[lost, away].concat(), &mut choices, &mut tally);
            }
        });
        if !tally.wrong.is_empty() {
            break;
        }
    }
    tally
}

/// Checker of the states after one power loss.
struct Judge<'a> {
    old: &'a ExpectedState,
    new: &'a ExpectedState,
    cut: usize,
}

impl Judge<'_> {
    /// True when an up-to-date disk remains, whichever way the last step ended.
    fn can_do_without(&self, lost: &[usize]) -> bool {
        let kept =
            |known: &ExpectedState| known.in_service.iter().any(|disk| !lost.iter().any(|&one| disk_id(one) == *disk));
        !lost.is_empty() && (!self.old.live || kept(self.old)) && (!self.new.live || kept(self.new))
    }

    /// Disks that were given up before the pool was destroyed. They do not know about it and form a pool when
    /// found alone.
    fn must_be_away(&self) -> Vec<usize> {
        if self.new.live { Vec::new() } else { self.new.given_up.iter().copied().collect() }
    }

    /// Opens `images` without the disks in `lost`, cuts the power again during the opening, and opens them once
    /// more.
    fn state(&self, images: &[Image], lost: &[usize], random: &mut Random, tally: &mut Tally) {
        let world = World::of(images.to_vec());
        let mut order: Vec<usize> = (0..images.len()).filter(|disk| !lost.contains(disk)).collect();
        let turn = random.below(order.len().max(1) as u64) as usize;
        order.rotate_left(turn);
        tally.states += 1;
        let opened = self.look(&world, &order, lost, tally);
        let events = world.journal.borrow().clone();
        let second = opened.is_some() && world.has_written() && random.below(24) == 0;
        let mut power = PowerCut::of(images.to_vec());
        for event in events.iter().filter(|_| second) {
            power.push(event);
            power.each(random, false, |images| {
                tally.states += 1;
                tally.recoveries_cut += 1;
                self.look(&World::of(images), &order, lost, tally);
            });
        }
        if opened.is_some() && second {
            let again = World::of(world.images());
            self.look(&again, &order, lost, tally);
            if again.has_written() {
                tally.wrong.push(format!("cut {}: to open the pool again writes again", self.cut));
            }
        }
    }

    fn look(&self, world: &World, order: &[usize], lost: &[usize], tally: &mut Tally) -> Option<Opened> {
        match world.open_with(order) {
            Ok(opened) => {
                if let Err(what) = self.judge(&opened) {
                    tally.wrong.push(format!("cut {} without {lost:?}: {what}", self.cut));
                }
                Some(opened)
            }
            Err(refusal) => {
                let gone = matches!(refusal, PoolRefusal::Unfinished(_) | PoolRefusal::Destroyed(_));
                if !gone || (self.old.live && self.new.live) {
                    tally.wrong.push(format!("cut {} without {lost:?}: refused: {refusal}", self.cut));
                }
                // Run rarely, because it costs as much as twenty other checks.
                if tally.states.is_multiple_of(16)
                    && let Err(taken) = self.use_again(world, order)
                {
                    tally
                        .wrong
                        .push(format!("cut {}: there is no pool, but its disks are not free: {taken}", self.cut));
                }
                None
            }
        }
    }

    /// Disks of a pool that was being created or destroyed are free, except those that missed the destruction;
    /// these are wiped by the node that remembers it.
    fn use_again(&self, world: &World, order: &[usize]) -> Result<(), PoolError> {
        let world = World::of(world.images());
        for disk in order.iter().map(|&disk| &world.disks[disk]).filter(|_| self.old.live) {
            let newest = block_on(probe(disk)).member().and_then(|member| member.newest().cloned());
            if newest.is_some_and(|found| found.catalog.phase == PoolPhase::Live) {
                let _ = block_on(wipe(disk)).expect("nothing fails here");
            }
        }
        if order.is_empty() { Ok(()) } else { world.create(&[order]).map(drop) }
    }

    fn judge(&self, opened: &Opened) -> Result<(), String> {
        if !self.old.live && !self.new.live {
            return Err("there is a pool that nobody has".into());
        }
        let status = opened.pool.status();
        let number = |id: Uuid| u64::try_from(id.as_u128()).unwrap() - 1000;
        let volumes: BTreeMap<u64, u64> =
            status.volumes.iter().map(|volume| (number(volume.id), volume.size_bytes)).collect();
        if volumes != self.old.volumes && volumes != self.new.volumes {
            return Err(format!("volumes {volumes:?}, not {:?} or {:?}", self.old.volumes, self.new.volumes));
        }
        let groups = groups(opened);
        if groups != self.old.groups && groups != self.new.groups {
            return Err(format!("groups {groups:?}, not {:?} or {:?}", self.old.groups, self.new.groups));
        }
        let kept = volumes.keys().map(|&volume| (volume, opened.pool.reservations(volume_id(volume))));
        let reserved: BTreeMap<u64, Vec<u8>> = kept.filter(|(_, kept)| !kept.is_empty()).collect();
        if reserved != self.old.reserved && reserved != self.new.reserved {
            return Err(format!("reserved {reserved:?}, not {:?} or {:?}", self.old.reserved, self.new.reserved));
        }
        let log = opened.pool.write_log().record();
        if log != self.old.log && log != self.new.log {
            return Err(format!("log {log:?}, not {:?} or {:?}", self.old.log, self.new.log));
        }
        for (disk, state) in members(&opened.pool) {
            let may = [self.old, self.new].iter().any(|known| known.taking_part.contains(&disk));
            let fresh = !self.old.live;
            if state.takes_part() && !may && !fresh {
                return Err(format!("disk {disk} takes part again"));
            }
        }
        volumes.iter().try_for_each(|(&volume, &bytes)| self.judge_data(opened, volume, bytes))
    }

    /// Checks that every written block, and some others, have a permitted content.
    fn judge_data(&self, opened: &Opened, number: u64, bytes: u64) -> Result<(), String> {
        let volume = block_on(opened.pool.open_volume(volume_id(number))).unwrap();
        let blocks = bytes.div_ceil(4096);
        let written = self.new.data.keys().chain(self.old.data.keys());
        let written = written.filter(|(volume, block)| *volume == number && *block < blocks).map(|(_, block)| *block);
        let places: BTreeSet<u64> = written.chain([0, 1, blocks / 2, blocks - 1]).collect();
        for block in places {
            let data = block_on(volume.read(Extent::new(block, 1))).map_err(|error| error.to_string())?.into_view();
            let [old, new] = [self.old, self.new].map(|known| known.data.get(&(number, block)).copied().unwrap_or(0));
            // A power loss may tear a block; it leaves each of its sectors old or new.
            if !data.iter().all(|&byte| byte == old || byte == new) {
                return Err(format!("block {block} of volume {number} holds {:#x}, not {old:#x} or {new:#x}", data[0]));
            }
        }
        Ok(())
    }
}

fn assert_clean(tally: &Tally, states_min: u64) {
    assert!(tally.wrong.is_empty(), "{:#?}", tally.wrong);
    assert!(tally.states >= states_min, "only {} states were tried", tally.states);
}

#[test]
fn pool_survives_a_power_cut_at_any_instant_of_its_life() {
    let tally = check(&whole_life(|_| {}), true, 1);
    println!("{} states, {} of them cut in recovery", tally.states, tally.recoveries_cut);
    assert_clean(&tally, 3000);
}

#[test]
fn pool_on_disks_that_discard_survives_a_power_cut_at_any_instant() {
    let mut script = Script::begin(2, &[&[0, 1]], |disk| disk.discard_zeroes.set(true));
    script.create_volume(1, 2 << 20);
    script.write(1, 3, 0x11);
    script.mark_clean();
    script.write(1, 3, 0x12);
    assert_clean(&check(&script, true, 2), 200);
}

#[test]
fn pool_of_two_groups_survives_a_power_cut_at_any_instant() {
    let mut script = Script::begin(4, &[&[0, 1], &[2, 3]], |_| {});
    script.create_volume(1, 3 << 20);
    script.write(1, 0, 0x11);
    script.write(1, 20, 0x12);
    script.fail(2, 1, 0);
    script.resize(1, 5 << 20);
    let tally = check(&script, false, 3);
    assert_clean(&tally, 300);
}

/// Life of a pool that gets a group and a log, loses the log, grows and gets another log.
fn growing_life(prepare: impl Fn(&Disk)) -> Script {
    let id = Uuid::from_u128;
    let mut script = Script::begin(4, &[&[0]], prepare);
    script.create_volume(1, 2 << 20);
    script.add_group(1, &[1, 2], Blocks(8 * SLAB_BLOCKS));
    script.resize(1, 4 << 20);
    script.write(1, 900, 0x11);
    script.grow_group(1);
    script.add_log(2, &[3]);
    script.log(async |pool| pool.write_log().set(id(71)).await);
    script.log(async |pool| pool.write_log().add_volume(id(71), volume_id(1)).await);
    script.log(async |pool| pool.write_log().abort(id(71), vec![volume_id(1)]).await);
    script.log(async |pool| pool.write_log().mark_settled(id(71)).await);
    script.log(async |pool| pool.write_log().remove_group().await.map(drop));
    script
}

#[test]
fn pool_that_gets_groups_and_a_log_survives_a_power_cut_at_any_instant() {
    let tally = check(&growing_life(|_| {}), false, 5);
    println!("{} states, {} of them cut in recovery", tally.states, tally.recoveries_cut);
    assert_clean(&tally, 1000);
}

#[test]
fn checker_finds_a_flush_that_is_left_out_while_a_group_is_added() {
    let script = growing_life(|disk| disk.bug.set(Some(Bug::SkipFlush)));
    let made = script.acknowledged[2].0;
    assert!(!check_from(made, &script, false, 5).wrong.is_empty());
}

/// Life of a mirror that gets a third disk, which is rebuilt, and a fourth, which is taken back.
fn widening_life(prepare: impl Fn(&Disk)) -> Script {
    let mut script = Script::begin(4, &[&[0, 1]], prepare);
    script.create_volume(1, 2 << 20);
    script.write(1, 3, 0x11);
    script.add_member(0, 2);
    script.write(1, 4, 0x12);
    script.fill(2, 0, 3);
    script.add_member(0, 3);
    script.take_back(3);
    script
}

#[test]
fn group_that_gets_a_member_survives_a_power_cut_at_any_instant() {
    let tally = check(&widening_life(|_| {}), true, 6);
    println!("{} states, {} of them cut in recovery", tally.states, tally.recoveries_cut);
    assert_clean(&tally, 1000);
}

#[test]
fn checker_finds_a_flush_that_is_left_out_while_a_member_is_added() {
    let script = widening_life(|disk| disk.bug.set(Some(Bug::SkipFlush)));
    let made = script.acknowledged[3].0;
    assert!(!check_from(made, &script, true, 6).wrong.is_empty());
}

#[test]
fn pool_that_knows_it_is_destroyed_leaves_free_disks_whenever_the_power_goes() {
    let mut script = Script::begin(1, &[&[0]], |_| {});
    script.destroy();
    let (mut power, mut random) = (PowerCut::of(vec![Image::default()]), Random(4));
    let newest = |world: &World| block_on(probe(&world.disks[0])).member().and_then(|member| member.newest().cloned());
    let (made, mut free) = (script.acknowledged[1].0, 0);
    for (cut, event) in script.world.journal.borrow().iter().enumerate() {
        power.push(event);
        power.each(&mut random, cut >= made, |images| {
            let world = World::of(images);
            if cut >= made && newest(&world).is_none_or(|found| found.catalog.phase != PoolPhase::Live) {
                free += 1;
                world.create(&[&[0]]).expect("nobody has the disk");
            }
        });
    }
    assert!(free > 10, "only {free} states");
}

/// Asserts that the checker rejects the life of a pool on disks with `bug`.
fn assert_finds(bug: Bug) {
    let script = whole_life(|disk| disk.bug.set(Some(bug)));
    let made = script.acknowledged[1].0;
    let tally = check_from(made, &script, true, 1);
    assert!(!tally.wrong.is_empty(), "{} states, and none was wrong", tally.states);
}

#[test]
fn checker_finds_a_flush_that_is_left_out() {
    assert_finds(Bug::SkipFlush);
}

#[test]
fn checker_finds_two_slots_written_in_one_flush() {
    assert_finds(Bug::BothSlots);
}

#[test]
fn world_has_disks_of_the_least_size() {
    assert_eq!(DISK_BLOCKS * 4096, crate::DISK_BYTES_MIN);
}
