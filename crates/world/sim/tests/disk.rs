//! Tests of simulated disks: guarantees hold, and everything else breaks.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use block::{BlockDevice, Buf, Extent, IoErrorKind, Lba, View, Written};
use shard::{DiskOptions, World};
use sim::{Crash, DiskFaults, DiskHandle, DiskShape, Sim, SimDisk};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

const OPTIONS: DiskOptions = DiskOptions { block_bytes: 512, read_only: false };
const BYTES: u64 = 1 << 20;
const ALWAYS: u32 = 1_000_000;

async fn disk(sim: &Sim) -> (SimDisk, DiskHandle) {
    let handle = sim.add_disk("/dev/a", DiskShape::of(BYTES));
    (sim.open_disk("/dev/a", OPTIONS).await.unwrap(), handle)
}

fn filled(blocks: usize, byte: u8) -> View {
    let mut buf = Buf::recycled(blocks * 512);
    buf.fill(byte);
    buf.freeze()
}

async fn write(disk: &SimDisk, start: u64, blocks: usize, byte: u8) {
    let _: Written = disk.write(Lba(start), filled(blocks, byte)).await.unwrap();
}

async fn flush(disk: &SimDisk) {
    let _ = disk.flush(Written::attest()).await.unwrap();
}

/// Returns the first byte of each of the first 64 blocks.
fn bytes_of(handle: &DiskHandle) -> Vec<u8> {
    handle.content(0..64 * 512).chunks(512).map(|block| block[0]).collect()
}

#[test]
fn disk_reads_what_was_written_discarded_and_nothing_else() {
    Sim::new(1).run(async |sim| {
        let (disk, _) = disk(&sim).await;
        write(&disk, 4, 8, 7).await;
        let _: Written = disk.discard(Extent::new(6, 2)).await.unwrap();
        let got = disk.read(Extent::new(3, 10)).await.unwrap().into_view();
        let firsts: Vec<u8> = got.chunks(512).map(|block| block[0]).collect();
        assert_eq!(firsts, [0, 7, 7, 0, 0, 7, 7, 7, 7, 0]);
        assert_eq!(disk.read(Extent::new(2047, 2)).await.unwrap_err().kind, IoErrorKind::OutOfRange);
        assert!(sim.open_disk("/dev/a", OPTIONS).await.is_err(), "it is open");
        assert!(sim.open_disk("/dev/b", OPTIONS).await.is_err(), "there is none");
    });
}

#[test]
fn power_cut_keeps_what_was_flushed_and_any_subset_of_the_rest() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..40 {
        let after = Sim::new(seed).run(async |sim| {
            let (disk, handle) = disk(&sim).await;
            write(&disk, 0, 32, 1).await;
            flush(&disk).await;
            write(&disk, 16, 32, 2).await;
            handle.crash(Crash::AnySubset);
            assert!(handle.counts().atoms_undecided >= 32);
            assert_eq!(disk.read(Extent::new(0, 1)).await.unwrap_err().kind, IoErrorKind::Gone);
            assert!(sim.open_disk("/dev/a", OPTIONS).await.is_ok());
            bytes_of(&handle)
        });
        assert!(after[..16].iter().all(|&byte| byte == 1), "flushed");
        assert!(after[16..32].iter().all(|&byte| byte == 1 || byte == 2), "{after:?}");
        assert!(after[32..48].iter().all(|&byte| byte == 0 || byte == 2), "{after:?}");
        outcomes.insert(after);
    }
    assert!(outcomes.len() > 30, "subsets differ between seeds");
}

#[test]
fn power_cut_shows_any_version_since_the_last_durable_one() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        seen.insert(Sim::new(seed).run(async |sim| {
            let (disk, handle) = disk(&sim).await;
            for byte in 1..=5 {
                write(&disk, 0, 1, byte).await;
                if byte == 3 {
                    flush(&disk).await;
                }
            }
            handle.crash(Crash::AnySubset);
            bytes_of(&handle)[0]
        }));
    }
    assert_eq!(seen, BTreeSet::from([3, 4, 5]));
}

#[test]
fn power_cut_may_land_all_none_or_garbage() {
    let cut = |seed, crash: Crash| {
        Sim::new(seed).run(async move |sim| {
            let (disk, handle) = disk(&sim).await;
            let mut under_way = pin!(disk.write(Lba(0), filled(64, 9)));
            poll_fn(|cx| Poll::Ready(under_way.as_mut().poll(cx).is_pending())).await;
            handle.crash(crash);
            (bytes_of(&handle), handle.counts().atoms_torn)
        })
    };
    assert_eq!(cut(1, Crash::AllLanded), (vec![9; 64], 0));
    assert_eq!(cut(1, Crash::NoneLanded), (vec![0; 64], 0));
    let (after, torn) = cut(1, Crash::Torn);
    assert!(torn > 0 && after.iter().any(|&byte| byte != 0 && byte != 9), "{after:?}");
}

#[test]
fn flush_covers_only_what_had_completed_when_it_was_submitted() {
    let lost = (0..40).any(|seed| {
        Sim::new(seed).run(async |sim| {
            let (disk, handle) = disk(&sim).await;
            let taking = |ms| {
                let latency = Duration::from_millis(ms)..=Duration::from_millis(ms);
                handle.set_faults(DiskFaults { latency, ..DiskFaults::default() });
            };
            taking(10);
            let mut early = pin!(disk.flush(Written::attest()));
            poll_fn(|cx| Poll::Ready(early.as_mut().poll(cx).is_pending())).await;
            taking(1);
            write(&disk, 0, 1, 5).await;
            let _ = early.await.unwrap();
            handle.crash(Crash::AnySubset);
            bytes_of(&handle)[0] == 0
        })
    });
    assert!(lost);
}

#[test]
fn disk_without_volatile_cache_keeps_what_it_acknowledged() {
    for seed in 0..20 {
        Sim::new(seed).run(async |sim| {
            let handle = sim.add_disk("/dev/a", DiskShape { volatile_cache: false, ..DiskShape::of(BYTES) });
            let disk = sim.open_disk("/dev/a", OPTIONS).await.unwrap();
            assert!(!disk.geometry().volatile_cache);
            write(&disk, 0, 64, 3).await;
            handle.crash(Crash::AnySubset);
            assert_eq!(bytes_of(&handle), [3; 64]);
        });
    }
}

#[test]
fn latent_sector_fails_reads_until_it_is_written() {
    Sim::new(2).run(async |sim| {
        let (disk, handle) = disk(&sim).await;
        handle.make_unreadable(512..513);
        let error = disk.read(Extent::new(0, 4)).await.unwrap_err();
        assert_eq!((error.kind, error.extent), (IoErrorKind::Medium, Extent::new(0, 4)));
        assert!(disk.read(Extent::new(2, 2)).await.is_ok(), "others are well");
        write(&disk, 1, 1, 1).await;
        assert!(disk.read(Extent::new(0, 4)).await.is_ok());
        handle.set_faults(DiskFaults { latent_per_million: ALWAYS, ..DiskFaults::default() });
        assert!(disk.read(Extent::new(0, 4)).await.is_err());
        assert_eq!(handle.counts().read_errors, 2);
    });
}

#[test]
fn failed_write_leaves_each_atom_old_or_new() {
    Sim::new(2).run(async |sim| {
        let (disk, handle) = disk(&sim).await;
        handle.set_faults(DiskFaults { write_error_per_million: ALWAYS, ..DiskFaults::default() });
        let error = disk.write(Lba(0), filled(64, 4)).await.unwrap_err();
        assert_eq!(error.kind, IoErrorKind::Medium);
        let after = bytes_of(&handle);
        assert!(after.contains(&0) && after.contains(&4) && after.iter().all(|&byte| byte == 0 || byte == 4));
    });
}

#[test]
fn bits_rot_silently_and_stay_rotten() {
    Sim::new(2).run(async |sim| {
        let (disk, handle) = disk(&sim).await;
        write(&disk, 0, 1, 0x55).await;
        flush(&disk).await;
        handle.set_faults(DiskFaults { bit_rot_per_million: ALWAYS, ..DiskFaults::default() });
        let rotten = disk.read(Extent::new(0, 1)).await.unwrap().into_view();
        handle.set_faults(DiskFaults::default());
        assert_eq!(rotten.iter().filter(|&&byte| byte != 0x55).count(), 1);
        assert_eq!(disk.read(Extent::new(0, 1)).await.unwrap().into_view()[..], rotten[..]);
        assert_eq!(handle.counts().bits_rotten, 1);
    });
}

#[test]
fn lost_and_misdirected_writes_are_acknowledged() {
    Sim::new(2).run(async |sim| {
        let (disk, handle) = disk(&sim).await;
        handle.set_faults(DiskFaults { lost_write_per_million: ALWAYS, ..DiskFaults::default() });
        write(&disk, 0, 64, 1).await;
        assert_eq!(bytes_of(&handle), [0; 64]);
        handle.set_faults(DiskFaults { misdirected_write_per_million: ALWAYS, ..DiskFaults::default() });
        write(&disk, 0, 1, 2).await;
        assert_eq!(bytes_of(&handle)[0], 0);
        let all = handle.content(0..BYTES);
        assert_eq!(all.chunks(512).filter(|block| block[0] == 2).count(), 1, "it is somewhere else");
        assert_eq!((handle.counts().writes_lost, handle.counts().writes_misdirected), (1, 1));
    });
}

#[test]
fn lost_flush_is_acknowledged_and_makes_nothing_durable() {
    Sim::new(2).run(async |sim| {
        let (disk, handle) = disk(&sim).await;
        handle.set_faults(DiskFaults { lost_flush_per_million: ALWAYS, ..DiskFaults::default() });
        write(&disk, 0, 64, 1).await;
        flush(&disk).await;
        sim.crash(Crash::NoneLanded);
        assert_eq!(bytes_of(&handle), [0; 64]);
        assert_eq!(handle.counts().flushes_lost, 1);
    });
}

#[test]
fn killed_node_lets_go_of_its_disks_whoever_holds_their_handles() {
    Sim::new(2).run(async |sim| {
        let node = sim.add_node([10, 0, 0, 9].into());
        node.add_disk("/dev/a", DiskShape::of(BYTES));
        let disk = std::rc::Rc::new(node.open_disk("/dev/a", OPTIONS).await.unwrap());
        let kept = disk.clone();
        node.spawn(async move { write(&disk, 0, 1, 7).await });
        sim.sleep(Duration::from_micros(5)).await;
        assert!(node.open_disk("/dev/a", OPTIONS).await.is_err(), "it is in use");
        node.kill();
        let again = node.open_disk("/dev/a", OPTIONS).await.unwrap();
        assert_eq!(kept.read(Extent::new(0, 1)).await.unwrap_err().kind, IoErrorKind::Gone);
        drop(kept);
        assert!(node.open_disk("/dev/a", OPTIONS).await.is_err(), "the old handle closes nothing");
        let read = again.read(Extent::new(0, 1)).await.unwrap().into_view();
        assert_eq!(read[0], 7, "what was submitted lands, and is not overtaken");
    });
}

#[test]
fn misdirected_read_gives_what_is_elsewhere() {
    Sim::new(2).run(async |sim| {
        let (disk, handle) = disk(&sim).await;
        write(&disk, 0, 1, 8).await;
        handle.set_faults(DiskFaults { misdirected_read_per_million: ALWAYS, ..DiskFaults::default() });
        assert_eq!(disk.read(Extent::new(0, 1)).await.unwrap().into_view()[0], 0);
        assert_eq!(handle.counts().reads_misdirected, 1);
    });
}

#[test]
fn disk_that_is_pulled_out_fails_what_is_under_way_and_comes_back() {
    Sim::new(2).run(async |sim| {
        let (disk, handle) = disk(&sim).await;
        write(&disk, 0, 64, 1).await;
        flush(&disk).await;
        let mut read = pin!(disk.read(Extent::new(0, 1)));
        poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_pending())).await;
        handle.fail();
        assert_eq!(read.await.unwrap_err().kind, IoErrorKind::Gone);
        assert_eq!(disk.write(Lba(0), filled(1, 2)).await.unwrap_err().kind, IoErrorKind::Gone);
        handle.revive();
        assert!(disk.read(Extent::new(0, 1)).await.is_err(), "it must be opened anew");
        let again = sim.open_disk("/dev/a", OPTIONS).await.unwrap();
        assert_eq!(again.read(Extent::new(0, 1)).await.unwrap().into_view()[0], 1);
    });
}

#[test]
fn failed_flush_makes_the_disk_gone() {
    Sim::new(2).run(async |sim| {
        let (disk, handle) = disk(&sim).await;
        write(&disk, 0, 1, 1).await;
        handle.set_faults(DiskFaults { flush_error_per_million: ALWAYS, ..DiskFaults::default() });
        assert_eq!(disk.flush(Written::attest()).await.unwrap_err().kind, IoErrorKind::Gone);
        handle.set_faults(DiskFaults::default());
        assert_eq!(disk.flush(Written::attest()).await.unwrap_err().kind, IoErrorKind::Gone);
        assert_eq!(handle.counts().flush_errors, 1);
    });
}

#[test]
fn disk_may_be_slow_or_hang() {
    Sim::new(2).run(async |sim| {
        let (disk, handle) = disk(&sim).await;
        let slow = Duration::from_secs(30)..=Duration::from_secs(31);
        handle.set_faults(DiskFaults { slow_per_million: ALWAYS, slow, ..DiskFaults::default() });
        let start = sim.now();
        write(&disk, 0, 1, 1).await;
        assert!(sim.now().since(start) >= Duration::from_secs(30));
        assert_eq!(handle.counts().slow, 1);
        handle.hang();
        let mut read = pin!(disk.read(Extent::new(0, 1)));
        for _ in 0..10 {
            sim.sleep(Duration::from_secs(100)).await;
            assert!(poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_pending())).await);
        }
        handle.fail();
        assert_eq!(read.await.unwrap_err().kind, IoErrorKind::Gone);
    });
}

#[test]
fn disk_that_hung_does_late_what_it_was_asked() {
    for seed in 0..30 {
        Sim::new(seed).run(async |sim| {
            let (disk, handle) = disk(&sim).await;
            handle.hang();
            {
                let mut dropped = pin!(disk.write(Lba(0), filled(64, 1)));
                poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_pending())).await;
            }
            let mut waits = pin!(disk.write(Lba(32), filled(32, 2)));
            sim.sleep(Duration::from_secs(60)).await;
            assert!(poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending())).await);
            assert_eq!(bytes_of(&handle), [0; 64], "nothing has landed");
            handle.resume();
            let _ = waits.await.expect("it is done at last");
            assert_eq!(bytes_of(&handle), [[1; 32], [2; 32]].concat(), "in the order in which it was asked");
            write(&disk, 0, 64, 3).await;
            assert_eq!(bytes_of(&handle), [3; 64]);
        });
    }
}

#[test]
fn dropped_write_goes_on_and_is_never_overtaken() {
    for seed in 0..30 {
        Sim::new(seed).run(async |sim| {
            let (disk, handle) = disk(&sim).await;
            {
                let mut dropped = pin!(disk.write(Lba(0), filled(64, 1)));
                poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_pending())).await;
            }
            write(&disk, 32, 32, 2).await;
            sim.sleep(Duration::from_secs(1)).await;
            assert_eq!(bytes_of(&handle), [[1; 32], [2; 32]].concat());
        });
    }
}

#[test]
fn stale_and_swapped_disks_can_be_made() {
    Sim::new(2).run(async |sim| {
        let (one, handle) = disk(&sim).await;
        let other = sim.add_disk("/dev/b", DiskShape::of(BYTES));
        write(&one, 0, 1, 1).await;
        flush(&one).await;
        let old = handle.image();
        write(&one, 0, 1, 2).await;
        flush(&one).await;
        drop(one);
        handle.restore(&old);
        assert_eq!(bytes_of(&handle)[0], 1, "it is as it was");
        other.restore(&old);
        assert_eq!(bytes_of(&other)[0], 1, "a copy of it");
        sim.swap_disks("/dev/a", "/dev/b");
        assert_eq!(sim.disk("/dev/b").unwrap().counts().writes, 2, "the first disk is there now");
    });
}

#[test]
fn crashed_node_loses_its_unflushed_writes_and_keeps_its_disks() {
    Sim::new(9).run(async |sim| {
        let node = sim.add_node([10, 0, 0, 2].into());
        let handle = node.add_disk("/dev/a", DiskShape::of(BYTES));
        let own = node.clone();
        node.spawn(async move {
            let disk = own.open_disk("/dev/a", OPTIONS).await.unwrap();
            write(&disk, 0, 32, 1).await;
            flush(&disk).await;
            write(&disk, 32, 32, 2).await;
            std::future::pending::<()>().await;
        });
        sim.sleep(Duration::from_secs(1)).await;
        node.crash(Crash::NoneLanded);
        node.boot();
        assert_eq!(bytes_of(&handle), [[1; 32], [0; 32]].concat());
        assert!(node.open_disk("/dev/a", OPTIONS).await.is_ok());
    });
}
