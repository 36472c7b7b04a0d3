//! Concurrent operations: snapshots during host writes, readers while granules move.

use super::rig::*;
use crate::tests::disk::block_on;
use crate::tests::world::Opened;
use block::{BlockDevice, Extent, Lba};
use futures_util::future::{join, join_all};

/// Hosts write the same stamp to the first volume and then to the second, repeatedly; in every snapshot of both
/// the second is at most one stamp behind the first, and never ahead of it.
pub(super) fn snapshots_under_load(opened: &Opened, rounds: u64) -> Result<(), String> {
    let pool = &opened.pool;
    for volume in [1, 2] {
        block_on(pool.create_thin_volume(thin_plan(volume, 400))).unwrap();
    }
    let (one, two) = (open(pool, 1), open(pool, 2));
    let host = async |host: u64| {
        for stamp in 1..60 {
            for volume in [&one, &two] {
                let _ = volume.write(Lba(host * 3), stamped(host * 3, 1, stamp)).await.unwrap();
            }
        }
    };
    let operator = async {
        let mut at_first = Vec::new();
        for round in 0..rounds {
            pool.create_snapshots(&[snapshot_plan(2 * round, 1), snapshot_plan(2 * round + 1, 2)]).await.unwrap();
            for number in [2 * round, 2 * round + 1] {
                let device = pool.open_snapshot(snapshot_id(number)).await.unwrap();
                at_first.push(device.read(Extent::new(0, 36)).await.unwrap().into_view().to_vec());
            }
        }
        at_first
    };
    let ((), at_first) = block_on(join(async { drop(join_all((0..12).map(host)).await) }, operator));
    for (number, at_first) in (0..).zip(at_first) {
        let now = block_on(open_snapshot(pool, number).read(Extent::new(0, 36))).unwrap().into_view();
        if now[..] != at_first[..] {
            return Err(format!("snapshot {number} has changed"));
        }
    }
    for round in 0..rounds {
        let (first, second) = (open_snapshot(pool, 2 * round), open_snapshot(pool, 2 * round + 1));
        for host in 0..12 {
            let stamp = |device: &TestVolume| -> Result<u32, String> {
                let data = block_on(device.read(Extent::new(host * 3, 1))).unwrap().into_view();
                let stamps = stamps_of(host * 3, &data)?;
                if stamps.windows(2).all(|pair| pair[0] == pair[1]) { Ok(stamps[0]) } else { Err("mixed".into()) }
            };
            let (ahead, behind) = (stamp(&first)?, stamp(&second)?);
            if ahead != behind && ahead != behind + 1 {
                return Err(format!("snapshots {round} of host {host} show {ahead} and {behind}"));
            }
        }
    }
    Ok(())
}

#[test]
fn snapshots_of_volumes_that_are_being_written_are_of_one_instant() {
    let (world, opened) = mirror();
    world.disks.iter().for_each(|disk| disk.lag.set(40));
    snapshots_under_load(&opened, 5).unwrap();
    assert_sound(&opened.pool);
    flush(&open(&opened.pool, 1));
    flush(&open(&opened.pool, 2));
    let (_, again) = reopen(&world);
    assert_eq!(contents(&open_snapshot(&again.pool, 6)), contents(&open_snapshot(&opened.pool, 6)));
    assert_sound(&again.pool);
}

#[test]
fn readers_never_see_a_granule_half_copied_or_given_to_another() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let volume = block_on(pool.create_thin_volume(thin_plan(1, 64))).unwrap();
    write(&volume, 0, 64, 1).unwrap();
    let host = async {
        for round in 0..40_u64 {
            pool.create_snapshots(&[snapshot_plan(round, 1)]).await.unwrap();
            let _ = volume.write(Lba(round % 60), stamped(round % 60, 4, 2 + round as u32)).await.unwrap();
            let _ = volume.discard(Extent::new(32, 16)).await.unwrap();
            let _ = volume.write(Lba(32), stamped(32, 16, 2 + round as u32)).await.unwrap();
            pool.delete_snapshot(snapshot_id(round), 0).await.unwrap();
            pool.run_maintenance().await.unwrap();
        }
    };
    let reader = async {
        for _ in 0..400 {
            let data = volume.read(Extent::new(0, 64)).await.unwrap().into_view();
            for (block, data) in (0..).zip(data.chunks_exact(4096)) {
                stamps_of(block, data).unwrap();
                let stamp = stamps_of(block, data).unwrap()[0];
                assert!(stamp != 0 || (32..48).contains(&block), "block {block} is gone");
            }
        }
    };
    block_on(join(host, join_all([reader])));
    assert_sound(pool);
}

#[test]
fn check_finds_nothing_while_hosts_write_and_flush_and_what_is_deleted_is_taken_apart() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    block_on(pool.create_thin_volume(thin_plan(1, 400))).unwrap();
    let volume = open(pool, 1);
    let host = async |host: u64| {
        for stamp in 1..40 {
            let _ =
                volume.write(Lba(host * 24 + u64::from(stamp % 3) * 8), stamped(host * 24, 1, stamp)).await.unwrap();
            let _ = volume.flush(block::Written::attest()).await.unwrap();
        }
    };
    let operator = async {
        for round in 0..12 {
            pool.create_snapshots(&[snapshot_plan(round, 1)]).await.unwrap();
            let report = pool.check().await.unwrap();
            assert!(report.findings.is_empty(), "round {round}: {:?}", report.findings);
            pool.delete_snapshot(snapshot_id(round), 0).await.unwrap();
            pool.run_maintenance().await.unwrap();
        }
    };
    let tending = async {
        for _ in 0..60 {
            pool.run_maintenance().await.unwrap();
        }
    };
    block_on(join(join(operator, tending), async { drop(join_all((0..6).map(host)).await) }));
    assert_sound(pool);
}
