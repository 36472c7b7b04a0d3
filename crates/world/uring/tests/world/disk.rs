//! Files as disks.

use crate::{on_both, run_with};
use block::medium::Medium;
use block::{BlockDevice, Blocks, Buf, Extent, IoErrorKind, Lba, View, Written};
use shard::{DiskOptions, World};
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::task::Poll;
use std::time::{Duration, Instant};
use uring::{Disk, FilesLike, Options, Uring};

const OPTIONS: DiskOptions = DiskOptions { block_bytes: 512, read_only: false };

struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    /// A folder where direct I/O works, if there is one: the default temporary folder may be a tmpfs.
    fn new() -> Self {
        Self { folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder") }
    }

    fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.folder.path().join(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
        path.to_str().expect("a name in UTF-8").to_owned()
    }
}

/// Loop device over a file, where the machine allows one.
struct Loop(String);

impl Loop {
    fn on(path: &str) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show", path]).output().ok()?;
        let device = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        (made.status.success() && !device.is_empty()).then_some(Self(device))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

async fn open(world: &Uring, path: &str) -> Disk {
    world.open_disk(path, OPTIONS).await.expect("a disk")
}

fn pattern(bytes: usize, seed: u8) -> View {
    let mut buf = Buf::recycled(bytes);
    buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512) as u8 ^ seed);
    buf.freeze()
}

async fn write(disk: &Disk, start: u64, data: View) {
    let _: Written = disk.write(Lba(start), data).await.expect("the disk is well");
}

async fn read(disk: &Disk, start: u64, blocks: u64) -> View {
    disk.read(Extent::new(start, blocks)).await.expect("the disk is well").into_view()
}

on_both! {
    disk_reads_what_was_written_and_zeros_elsewhere(world) {
        let scratch = Scratch::new();
        let path = scratch.file("disk", 4 << 20);
        {
            let disk = open(&world, &path).await;
            assert_eq!(disk.geometry().blocks, Blocks(8192));
            assert!(disk.geometry().volatile_cache, "a file lies behind caches");
            write(&disk, 17, pattern(64 << 10, 1)).await;
            let _ = disk.flush(Written::attest()).await.expect("the disk is well");
            assert_eq!(read(&disk, 17, 128).await[..], pattern(64 << 10, 1)[..]);
            assert!(read(&disk, 4000, 64).await.iter().all(|&byte| byte == 0));
        }
        world.sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(read(&open(&world, &path).await, 17, 128).await[..], pattern(64 << 10, 1)[..]);
    }

    disk_writes_views_that_are_not_aligned(world) {
        let scratch = Scratch::new();
        let disk = open(&world, &scratch.file("disk", 1 << 20)).await;
        let odd = pattern(8192, 3).slice(48..48 + 4096);
        write(&disk, 5, odd.clone()).await;
        assert_eq!(read(&disk, 5, 8).await[..], odd[..]);
    }

    disk_discards_to_zeros(world) {
        let scratch = Scratch::new();
        let disk = open(&world, &scratch.file("disk", 1 << 20)).await;
        write(&disk, 0, pattern(64 << 10, 9)).await;
        let _: Written = disk.discard(Extent::new(8, 16)).await.expect("the disk is well");
        if disk.geometry().discard_zeroes {
            assert!(read(&disk, 8, 16).await.iter().all(|&byte| byte == 0));
        }
        assert_eq!(read(&disk, 24, 8).await[..], pattern(64 << 10, 9)[24 * 512..32 * 512]);
    }

    reserved_blocks_of_a_sparse_file_have_space_and_keep_their_content(world) {
        use std::os::unix::fs::MetadataExt;
        let scratch = Scratch::new();
        let path = scratch.file("disk", 1 << 20);
        let disk = open(&world, &path).await;
        write(&disk, 16, pattern(8192, 3)).await;
        let taken = || std::fs::metadata(&path).expect("it is there").blocks() * 512;
        assert!(taken() < 512 << 10, "the file is sparse");
        disk.reserve(Extent::new(0, 1024)).await.expect("there is room");
        assert!((512 << 10..1 << 20).contains(&taken()), "{}", taken());
        assert_eq!(read(&disk, 16, 16).await[..], pattern(8192, 3)[..]);
        assert!(read(&disk, 512, 512).await.iter().all(|&byte| byte == 0));
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 1 << 20);
        let error = disk.reserve(Extent::new(2047, 2)).await.expect_err("passes the end");
        assert_eq!(error.kind, IoErrorKind::OutOfRange);
    }

    disk_refuses_what_passes_its_end(world) {
        let scratch = Scratch::new();
        let disk = open(&world, &scratch.file("disk", 8192)).await;
        let error = disk.read(Extent::new(15, 2)).await.expect_err("passes the end");
        assert_eq!(error.kind, IoErrorKind::OutOfRange);
        let error = disk.write(Lba(15), View::zeroed(1024)).await.expect_err("passes the end");
        assert_eq!(error.kind, IoErrorKind::OutOfRange);
    }

    disk_opened_read_only_refuses_writes(world) {
        let scratch = Scratch::new();
        let path = scratch.file("disk", 8192);
        let disk = world.open_disk(&path, DiskOptions { read_only: true, ..OPTIONS }).await.expect("a disk");
        assert_eq!(read(&disk, 0, 1).await.len(), 512);
        let error = disk.write(Lba(0), View::zeroed(512)).await.expect_err("read only");
        assert_eq!(error.kind, IoErrorKind::ReadOnly);
    }

    disk_that_is_open_is_busy_for_others(world) {
        let scratch = Scratch::new();
        let path = scratch.file("disk", 8192);
        let disk = open(&world, &path).await;
        let error = world.open_disk(&path, OPTIONS).await.err().expect("it is open");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        drop(disk);
        assert!(world.open_disk(&path, OPTIONS).await.is_ok());
    }

    what_is_no_disk_is_refused(world) {
        let scratch = Scratch::new();
        let folder = scratch.folder.path().to_str().expect("UTF-8");
        assert_eq!(world.open_disk(folder, OPTIONS).await.err().expect("a folder").kind(), ErrorKind::InvalidInput);
        assert_eq!(world.open_disk("/dev/null", OPTIONS).await.err().expect("a character").kind(), ErrorKind::InvalidInput);
        let missing = Path::new(folder).join("missing");
        let missing = missing.to_str().expect("UTF-8");
        assert_eq!(world.open_disk(missing, OPTIONS).await.err().expect("missing").kind(), ErrorKind::NotFound);
    }

    file_that_was_cut_reads_as_zeros_behind_its_end(world) {
        let scratch = Scratch::new();
        let path = scratch.file("disk", 64 << 10);
        let disk = open(&world, &path).await;
        write(&disk, 0, pattern(64 << 10, 5)).await;
        std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(5000)).expect("cut");
        let got = read(&disk, 0, 128).await;
        assert_eq!(got[..4608], pattern(64 << 10, 5)[..4608]);
        assert!(got[5000..].iter().all(|&byte| byte == 0));
    }

    block_device_is_used_whole_and_exclusively(world) {
        let scratch = Scratch::new();
        let Some(device) = Loop::on(&scratch.file("disk", 8 << 20)) else {
            eprintln!("skipped: this machine gives no loop device");
            return;
        };
        let path = device.0.clone();
        let disk = open(&world, &path).await;
        // From here on it is detached as soon as it is closed, even if this test dies.
        drop(device);
        let geometry = disk.geometry();
        assert_eq!((geometry.bytes(), geometry.block_bytes), (8 << 20, 512));
        assert_eq!(world.open_disk(&path, OPTIONS).await.err().expect("it is open").kind(), ErrorKind::ResourceBusy);
        write(&disk, 16, pattern(64 << 10, 1)).await;
        let _ = disk.flush(Written::attest()).await.expect("the disk is well");
        let _: Written = disk.discard(Extent::new(24, 8)).await.expect("the disk is well");
        assert_eq!(read(&disk, 16, 8).await[..], pattern(64 << 10, 1)[..4096]);
        if geometry.discard_zeroes {
            assert!(read(&disk, 24, 8).await.iter().all(|&byte| byte == 0));
        }
    }

    many_operations_at_once_all_land(world) {
        let scratch = Scratch::new();
        let disk = std::rc::Rc::new(open(&world, &scratch.file("disk", 8 << 20)).await);
        let (post, inbox) = shard::mailbox::channel();
        for task in 0..200u64 {
            let (disk, post) = (disk.clone(), post.clone());
            world.spawn(async move {
                write(&disk, task * 64, pattern(32 << 10, task as u8)).await;
                let same = read(&disk, task * 64, 64).await[..] == pattern(32 << 10, task as u8)[..];
                post.send(same).expect("the test listens");
            });
        }
        drop(post);
        let mut landed = 0;
        while let Some(same) = inbox.receive().await {
            assert!(same);
            landed += 1;
        }
        assert_eq!(landed, 200);
    }

    dropped_write_keeps_its_memory_and_is_never_overtaken(world) {
        let scratch = Scratch::new();
        let disk = open(&world, &scratch.file("disk", 16 << 20)).await;
        for round in 0..50u8 {
            {
                let mut first = pin!(disk.write(Lba(0), pattern(1 << 20, round)));
                poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await;
            }
            // The pool would hand the dropped pages to this write if they were free.
            write(&disk, 100, pattern(1 << 20, !round)).await;
            assert!(read(&disk, 100, 2048).await[..] == pattern(1 << 20, !round)[..], "round {round}");
        }
    }

    dropped_read_never_writes_into_memory_of_others(world) {
        let scratch = Scratch::new();
        let disk = open(&world, &scratch.file("disk", 16 << 20)).await;
        write(&disk, 0, pattern(4 << 20, 0x55)).await;
        for _ in 0..30 {
            {
                let mut first = pin!(disk.read(Extent::new(0, 8192)));
                poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await;
            }
            let innocent = Buf::zeroed(4 << 20);
            world.sleep(std::time::Duration::from_millis(2)).await;
            assert!(innocent.iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn shard_that_ends_waits_for_writes_under_way() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 16 << 20);
    for io in [uring::Io::Auto, uring::Io::Threads] {
        let again = path.clone();
        crate::run_on(io, |world| async move {
            let disk = open(&world, &again).await;
            let mut first = pin!(disk.write(Lba(0), pattern(8 << 20, 0x77)));
            poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await;
        });
        let bytes = std::fs::read(&path).expect("the file");
        assert!(bytes[..8 << 20] == pattern(8 << 20, 0x77)[..]);
        std::fs::write(&path, vec![0; 16 << 20]).expect("the file");
    }
}

/// Latency model for one file.
fn like(path: &str, medium: Medium) -> FilesLike {
    FilesLike { folder: path.into(), medium, stroke_bytes: None }
}

/// Returns the duration of forty reads of 4 KiB, one by one, scattered over the file.
async fn scattered_reads(disk: &Disk) -> Duration {
    let (begun, blocks) = (Instant::now(), disk.geometry().blocks.0 / 8);
    for number in 0..40 {
        let data = disk.read(Extent::new(number * 7919 % blocks * 8, 8)).await.expect("it can be read");
        assert_eq!(data.len(), 4096);
    }
    begun.elapsed()
}

#[test]
fn file_that_stands_for_a_spindle_takes_as_long_and_keeps_what_is_written() {
    let scratch = Scratch::new();
    let (slow, fast) = (scratch.file("slow", 64 << 20), scratch.file("fast", 64 << 20));
    let media = vec![like(&slow, Medium::Sata)];
    run_with(&Options { media, ..Options::default() }, move |world| async move {
        let (slow, fast) = (open(&world, &slow).await, open(&world, &fast).await);
        write(&slow, 80, pattern(8192, 3)).await;
        let data = slow.read(Extent::new(80, 16)).await.expect("it can be read").into_view();
        assert_eq!(data[..], pattern(8192, 3)[..]);
        // Forty at 12.5 ms each take 500 ms.
        let (slow, fast) = (scattered_reads(&slow).await, scattered_reads(&fast).await);
        assert!(slow > Duration::from_millis(350), "{slow:?}");
        assert!(fast < slow / 2, "{fast:?} where nothing is modelled, {slow:?} where something is");
    });
}

#[test]
fn operation_that_is_dropped_under_a_model_holds_nobody_up() {
    let scratch = Scratch::new();
    let path = scratch.file("slow", 8 << 20);
    run_with(&Options { media: vec![like(&path, Medium::Sas15k)], ..Options::default() }, move |world| async move {
        let disk = open(&world, &path).await;
        for number in 0..20_u64 {
            let mut dropped = pin!(disk.write(Lba(number * 64), pattern(4096, 9)));
            poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_ready())).await;
        }
        let begun = Instant::now();
        write(&disk, 0, pattern(4096, 1)).await;
        let data = disk.read(Extent::new(0, 8)).await.expect("it can be read").into_view();
        assert_eq!(data[..], pattern(4096, 1)[..], "what was dropped does not come later");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    });
}
