//! Golden disks left by an earlier program of this format: of an array as formatted, and of a grown array in the
//! middle of a reshape. Both stopped with batches in the log.

use crate::bench::{Bench, Plan, is_clean};
use crate::disk::{Content, Dice, Rack};
use block::{Buf, Extent, View};
use raid::{Level, Repair};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const FORMATTED: Plan = Plan {
    level: Level::Raid5,
    members: 3,
    chunk_blocks: 2,
    stripes: 8,
    volatile: true,
    atomic: true,
    accepts_loss: false,
    ring_blocks: 32,
    room: 0,
    spare: false,
    page_bytes: 16 << 10,
    behind: false,
};
const GROWN: Plan = Plan { room: 20, spare: true, ..FORMATTED };

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Blocks that identify themselves and compress well.
fn data(extent: Extent, name: u8) -> View {
    let mut buf = Buf::zeroed(extent.len.0 as usize * 4096);
    for (lba, block) in (extent.start.0..).zip(buf.chunks_mut(4096)) {
        block[..8].copy_from_slice(&[name, lba as u8, 0xb1, 0x0c, name, 0, lba as u8, 7]);
    }
    buf.freeze()
}

/// Encoding of a disk: for each block that is not zeros its number (4 bytes), its length without trailing zeros (2),
/// and those bytes.
fn save(rack: &Rack, name: &str) {
    std::fs::create_dir_all(folder(name)).expect("the folder can be made");
    for (number, disk) in rack.disks.borrow().iter().enumerate() {
        let mut file = Vec::new();
        for (block, content) in disk.content() {
            let len = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            if len > 0 {
                file.extend((block as u32).to_le_bytes());
                file.extend((len as u16).to_le_bytes());
                file.extend_from_slice(&content[..len]);
            }
        }
        std::fs::write(folder(name).join(format!("disk-{number}.bin")), file).expect("the file can be written");
    }
}

fn load(plan: Plan, name: &str) -> Rc<Rack> {
    let rack = Rack::new(Dice::new(1));
    for number in 0..plan.disks() {
        let file = std::fs::read(folder(name).join(format!("disk-{number}.bin"))).expect("the golden disk is there");
        let (mut rest, mut content) = (&file[..], Content::new());
        while let Some((head, more)) = rest.split_first_chunk::<6>() {
            let block = u32::from_le_bytes(*head.first_chunk().expect("four of six"));
            let len = usize::from(u16::from_le_bytes([head[4], head[5]]));
            let mut bytes = Buf::zeroed(4096);
            bytes[..len].copy_from_slice(&more[..len]);
            content.insert(u64::from(block), bytes.freeze());
            rest = &more[len..];
        }
        rack.add(plan.disk_blocks(), plan.volatile, content);
    }
    rack
}

/// Content of the array when it stopped.
fn expected() -> Vec<u8> {
    let mut all = data(Extent::new(0, 20), 1).to_vec();
    all.resize(32 * 4096, 0);
    all[5 * 4096..8 * 4096].copy_from_slice(&data(Extent::new(5, 3), 2));
    all[30 * 4096..].copy_from_slice(&data(Extent::new(30, 2), 3));
    all
}

fn write_all(bench: &Bench) {
    let _ = bench.write(0, data(Extent::new(0, 20), 1)).expect("well");
    bench.close();
    let _ = bench.write(5, data(Extent::new(5, 3), 2)).expect("well");
    let _ = bench.write(30, data(Extent::new(30, 2), 3)).expect("well");
}

#[test]
fn golden_array_opens_and_can_grow() {
    let (bench, opened) =
        Bench::open(FORMATTED, load(FORMATTED, "formatted"), &[], &[]).expect("all members are there");
    assert!(opened.batches > 0 && opened.rejected.is_empty());
    assert!(bench.read(Extent::new(0, 32)).expect("well") == expected());
    assert!(is_clean(&bench.scrub(Repair::Report)));
    let _ = bench.write(0, data(Extent::new(0, 1), 1)).expect("well");
    bench.close();
    drop(bench);
    let (bench, opened) = Bench::open(Plan { room: 0, ..GROWN }, with_spare(), &[], &[]).expect("all are there");
    assert!(opened.not_joined);
    bench.add_member().expect("well");
    bench.reshape().expect("well");
    assert!(bench.read(Extent::new(0, 32)).expect("well") == expected());
    assert!(is_clean(&bench.scrub(Repair::Report)));
}

fn with_spare() -> Rc<Rack> {
    let rack = load(FORMATTED, "formatted");
    rack.add(FORMATTED.disk_blocks(), true, Content::new());
    rack
}

#[test]
fn golden_array_in_a_reshape_goes_on_with_it() {
    let (bench, opened) = Bench::open(GROWN, load(GROWN, "grown"), &[], &[]).expect("all members are there");
    assert!(opened.batches > 0 && opened.rejected.is_empty() && !opened.not_joined);
    let progress = bench.array.status().reshape.expect("it had not ended");
    assert!(progress.done > 0 && progress.done < progress.total, "{progress:?}");
    let blocks = bench.blocks();
    assert!(blocks > 32, "it had grown");
    let mut expected = expected();
    expected.resize(blocks as usize * 4096, 0);
    assert!(bench.read(Extent::new(0, blocks)).expect("well") == expected);
    bench.reshape().expect("well");
    expected.resize(bench.blocks() as usize * 4096, 0);
    assert!(bench.read(Extent::new(0, bench.blocks())).expect("well") == expected);
    assert!(is_clean(&bench.scrub(Repair::Report)));
}

/// Regenerates the disks with this program; for a change of the format only.
///
/// Run with `RAID_GOLDEN=1 cargo test -p raid --test protected golden`.
#[test]
fn golden_disks_are_made_when_that_is_asked() {
    if std::env::var("RAID_GOLDEN").is_err() {
        return;
    }
    let bench = Bench::format(FORMATTED, 7);
    write_all(&bench);
    save(&bench.rack, "formatted");
    let bench = Bench::format(GROWN, 7);
    write_all(&bench);
    bench.grow(GROWN.disk_blocks()).expect("there is room");
    bench.add_member().expect("well");
    let array = bench.array.clone();
    let steps = std::cell::Cell::new(0);
    // Stops after a few steps.
    drop(bench.begin(async move {
        let stop = async |_| {
            if steps.replace(steps.get() + 1) == 4 {
                std::future::pending().await
            }
        };
        array.reshape(stop).await
    }));
    bench.settle();
    let _ = bench.write(5, data(Extent::new(5, 3), 2)).expect("well");
    save(&bench.rack, "grown");
}
