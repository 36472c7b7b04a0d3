//! Fuzz target: pools with damaged or forged metadata blocks and live logs. They are found and open or are refused, and
//! their volumes serve.
//!
//! Decay on one disk of a mirror loses nothing; what one block of a pool without redundancy loses is an error.
#![no_main]

mod disk;
mod image;
mod no_failures;

use block::{BlockDevice, Blocks, Buf, Extent, Lba, Stable, View, Written};
use cluster::Node;
use disk::{Change, Disk, now, pattern, structured};
use image::{BLOCK, Image};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use no_failures::NoFailures;
use raid::{Array, Layout, Level, Options, Shape};
use std::collections::BTreeSet;
use std::rc::Rc;
use volume::{
    CreatePool, AssembledPool, GroupPlan, GroupRecord, GroupRole, Lock, NewDisk, Pool, Provisioning, SnapshotPlan,
    DiskState, ThinPlan, Uuid, VolumePlan, Window, assemble, data_area, probe,
};

const DISK_BLOCKS: u64 = volume::DISK_BYTES_MIN / 4096;
/// Number of blocks that are written of each volume.
const WRITTEN: u64 = 40;
const PLAIN: Uuid = Uuid::from_u128(11);
const THIN: Uuid = Uuid::from_u128(12);
const SNAPSHOT: Uuid = Uuid::from_u128(13);

type Member = Window<Rc<Disk>>;
type OpenPool = Pool<Rc<Disk>, Rc<Array<Member>>>;

#[derive(Arbitrary, Debug)]
struct Input {
    mirrored: bool,
    protected: bool,
    clean: bool,
    changes: Vec<Change>,
}

/// Pool that was used, with the content of its disks.
struct Base {
    images: Vec<(Image, Vec<u64>)>,
    is_mirrored: bool,
}

impl Base {
    fn new(mirrored: bool, protected: bool, clean: bool) -> Self {
        let disks: Vec<Rc<Disk>> = (0..2).map(|_| Disk::new(DISK_BLOCKS, Image::default())).collect();
        let area = data_area(Blocks(DISK_BLOCKS)).expect("a disk of the smallest size has one");
        let (level, code) = if mirrored { (Level::Raid1, 1) } else { (Level::Raid0, 0) };
        let members: Vec<_> = disks.iter().map(|disk| Window::new(disk.clone(), area)).collect();
        let id = Uuid::from_u128(2);
        let array = if protected {
            let shape = Shape::new(id.into_bytes(), level, 2, 64 << 10, area.len);
            now(Array::format(&shape, members, Rc::new(NoFailures), Options::default())).expect("new members")
        } else {
            let layout = Layout::new(level, 2, 64 << 10, area.len).expect("a valid shape");
            Array::new(layout, members.into_iter().map(Some).collect(), Rc::new(NoFailures)).expect("all members")
        };
        let disk = |number: usize| NewDisk { id: Uuid::from_u128(20 + number as u128), device: disks[number].clone() };
        let members = vec![disk(0), disk(1)];
        let group = GroupPlan { id, level: code, protected, chunk_bytes: 64 << 10, member_blocks: area.len, members };
        let plan = CreatePool {
            id: Uuid::from_u128(1),
            name: "tank".to_owned(),
            slab_bytes: 1 << 20,
            groups: vec![group],
            now: 1_700_000_000,
            created_by: "fuzz".to_owned(),
            force: true,
        };
        let array = Rc::new(array);
        let pool = now(Pool::create(plan, vec![array.clone()])).expect("new disks");
        use_it(&pool, array.clone());
        if clean {
            now(pool.drain());
            let _: Stable = now(array.close()).expect("members of memory");
        }
        Self { images: disks.iter().map(|disk| structured(disk.image.take())).collect(), is_mirrored: mirrored }
    }
}

fn use_it(pool: &OpenPool, array: Rc<Array<Member>>) {
    let node = Node { id: Uuid::from_u128(3), name: "n1".to_owned(), boot_instance: Uuid::from_u128(4), machine: None };
    now(pool.ownership().claim(&node, 1_700_000_000)).expect("nobody else has it");
    let plan = VolumePlan {
        id: PLAIN,
        name: "plain".to_owned(),
        size_bytes: 2 << 20,
        block_bytes: 4096,
        stripe_unit_bytes: 0,
        created_at: 0,
    };
    let plain = now(pool.create_volume(plan)).expect("there is room");
    let plan = ThinPlan {
        id: THIN,
        name: "thin".to_owned(),
        size_bytes: 4 << 20,
        block_bytes: 4096,
        granule_bytes: 16 << 10,
        provisioning: Provisioning::Thin,
        zero_detection: false,
        encryption: None,
        created_at: 0,
    };
    let thin = now(pool.create_thin_volume(plan)).expect("there is room");
    now(pool.store_reservations(THIN, vec![1; 40])).expect("it is kept");
    for version in 1..=2 {
        for block in 0..WRITTEN {
            let data = Buf::copy_of(&pattern(block, version)).freeze();
            let _: Written = now(plain.write(Lba(block), data.clone())).expect("members of memory");
            let _: Written = now(thin.write(Lba(block * 3), data)).expect("members of memory");
        }
        let _: Stable = now(plain.flush(Written::attest())).expect("members of memory");
        let _: Stable = now(thin.flush(Written::attest())).expect("members of memory");
        if version == 1 {
            let plan =
                SnapshotPlan { id: SNAPSHOT, volume: THIN, name: "s".to_owned(), lock: Lock::Open, created_at: 0 };
            now(pool.create_snapshots(&[plan])).expect("there is room");
            let _: Stable = now(array.checkpoint()).expect("members of memory");
        }
    }
}

thread_local! {
    static BASES: Vec<Base> = (0..8).map(|bits| Base::new(bits & 1 == 1, bits & 2 == 2, bits & 4 == 4)).collect();
}

fuzz_target!(|input: Input| {
    let number = usize::from(input.mirrored) | usize::from(input.protected) << 1 | usize::from(input.clean) << 2;
    BASES.with(|bases| play(&input, &bases[number]));
});

/// Loss that the changes may cause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Price {
    Nothing,
    Errors,
    Anything,
}

fn play(input: &Input, base: &Base) {
    let disks: Vec<Rc<Disk>> = base.images.iter().map(|(image, _)| Disk::new(DISK_BLOCKS, image.clone())).collect();
    let changes = &input.changes[..input.changes.len().min(8)];
    let struck: BTreeSet<usize> = changes.iter().map(|change| change.strike(&disks, &base.images)).collect();
    let decays = changes.iter().all(|change| change.kind.is_decay());
    // Without checksums a mirror cannot tell which of its members is correct.
    let price = match decays {
        true if changes.is_empty() || struck.len() <= 1 && base.is_mirrored && input.protected => Price::Nothing,
        true if changes.len() == 1 && input.protected => Price::Errors,
        _ => Price::Anything,
    };
    let probes: Vec<_> = disks.iter().map(|disk| now(probe(disk))).collect();
    let survey = assemble(&probes);
    assert!(price != Price::Nothing || survey.pools.len() == 1, "a pool that is whole is not found");
    for found in &survey.pools {
        let Some(pool) = open(found, &disks) else {
            assert!(price != Price::Nothing, "a pool that is whole is refused");
            continue;
        };
        look_at(&pool, price);
    }
}

fn survives(record: &GroupRecord, present: &[bool]) -> bool {
    let Some(level) = level_of(record.level) else { return false };
    let layout = Layout::new(level, present.len(), record.chunk_bytes, record.member_blocks);
    let lost = (0..).zip(present).filter(|(_, present)| !**present).map(|(member, _)| member).collect();
    layout.is_ok_and(|layout| layout.survives(lost))
}

fn level_of(code: u8) -> Option<Level> {
    [(0, Level::Raid0), (1, Level::Raid1), (5, Level::Raid5), (6, Level::Raid6), (10, Level::Raid10)]
        .into_iter()
        .find_map(|(of, level)| (of == code).then_some(level))
}

/// Opens the pool over its arrays, as the data plane does.
fn open(found: &AssembledPool, disks: &[Rc<Disk>]) -> Option<OpenPool> {
    found.admit(survives).ok()?;
    let mut arrays = Vec::new();
    let groups = found.catalog.groups.iter().zip(&found.groups);
    for (record, group) in groups.filter(|(record, _)| record.role == GroupRole::Data) {
        let members: Vec<Option<Member>> = group
            .positions
            .iter()
            .map(|position| {
                let disk = position.probe.filter(|_| position.state == DiskState::Current)?;
                let area = data_area(Blocks(DISK_BLOCKS)).filter(|area| area.len >= record.member_blocks)?;
                Some(Window::new(disks[disk].clone(), area))
            })
            .collect();
        let (level, log) = (level_of(record.level)?, Rc::new(NoFailures));
        let count = record.members.len();
        let array = if record.protected {
            let shape = Shape::new(record.id.into_bytes(), level, count, record.chunk_bytes, record.member_blocks);
            now(Array::open(&shape, members, log, Options::default())).ok()?.0
        } else {
            let layout = Layout::new(level, count, record.chunk_bytes, record.member_blocks).ok()?;
            Array::new(layout, members, log).ok()?
        };
        arrays.push(Rc::new(array));
    }
    now(Pool::open(found, |probe| disks[probe].clone(), arrays, survives)).ok()
}

/// Opens, reads and writes every volume, checks the maps, and dumps the pool as text.
fn look_at(pool: &OpenPool, price: Price) {
    let status = pool.status();
    for volume in &status.volumes {
        let opened = now(pool.open_volume(volume.id));
        assert!(opened.is_ok() || price != Price::Nothing, "a volume does not open");
        if let Ok(opened) = opened {
            judge(&*opened, 1, 2, price);
        }
    }
    for family in &status.families {
        for volume in &family.volumes {
            let opened = now(pool.open_thin_volume(volume.id));
            assert!(opened.is_ok() || price != Price::Nothing, "a thin volume does not open");
            if let Ok(opened) = opened {
                judge(&*opened, 3, 2, price);
            }
        }
        for snapshot in family.volumes.iter().flat_map(|volume| &volume.snapshots) {
            let opened = now(pool.open_snapshot(snapshot.id));
            assert!(opened.is_ok() || price != Price::Nothing, "a snapshot does not open");
            if let Ok(opened) = opened {
                judge(&*opened, 3, 1, price);
            }
        }
    }
    let _ = pool.space();
    let checked = now(pool.check());
    assert!(checked.is_ok() || price != Price::Nothing, "the maps cannot be checked");
    let _ = now(pool.dump());
    let _ = now(pool.repair(true));
    now(pool.drain());
}

/// Reads the written data, every `step` blocks in `version`, and then writes if possible.
fn judge(device: &impl BlockDevice, step: u64, version: u8, price: Price) {
    let blocks = device.geometry().blocks.0;
    for block in (0..WRITTEN).filter(|block| block * step < blocks) {
        match now(device.read(Extent::new(block * step, 1))) {
            Ok(data) => {
                let is_right = *data.into_view() == pattern(block, version);
                assert!(is_right || price == Price::Anything, "block {block} is another");
            }
            Err(error) => assert!(price != Price::Nothing, "block {block} is lost: {error}"),
        }
    }
    if blocks > 1 {
        let data: View = Buf::copy_of(&[9; BLOCK]).freeze();
        let written = now(device.write(Lba(blocks - 1), data)).is_ok();
        let flushed = now(device.flush(Written::attest())).is_ok();
        let _ = now(device.discard(Extent::new(0, blocks.min(64))));
        // Version 1 is the snapshot, which is read-only.
        assert!(written && flushed || price != Price::Nothing || version == 1, "it cannot be written");
    }
}
