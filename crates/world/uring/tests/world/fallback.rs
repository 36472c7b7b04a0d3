//! Fallback without io_uring, and shortage of descriptors: each in a child process of its own.

use super::net::{receive, send};
use super::sys::{forbid_io_uring, limit_descriptors};
use shard::{DiskOptions, Listener, StreamOptions, World};
use std::process::Command;
use std::time::Duration;
use uring::{Io, Options};

/// Runs the ignored test `name` of this program in a child process.
fn in_child(name: &str) {
    let program = std::env::current_exe().expect("this program has a path");
    let child = Command::new(program).args([name, "--exact", "--ignored", "--nocapture"]).output().expect("a child");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    assert!(said.contains("1 passed"), "the child ran no test: {said}");
}

#[test]
fn auto_falls_back_and_serves_where_io_uring_is_forbidden() {
    in_child("fallback::child_without_io_uring");
}

#[test]
fn accept_without_descriptors_is_an_error_and_the_listener_lives_on() {
    in_child("fallback::child_without_descriptors");
}

#[test]
#[ignore = "the child of a test above: it forbids itself io_uring"]
fn child_without_io_uring() {
    forbid_io_uring();
    let forced = uring::run(&Options { io: Io::Uring, ..Options::default() }, async |_| ());
    assert_eq!(forced.expect_err("forbidden").raw_os_error(), Some(libc::EPERM));
    crate::run_on(Io::Auto, |world| async move {
        let listener = world.listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let client = world.connect(listener.local_address(), StreamOptions::default()).await.expect("it listens");
        let served = listener.accept(&StreamOptions::default()).await.expect("the client is there");
        send(&client, b"ping").await;
        let mut got = [0; 4];
        receive(&served, &mut got).await;
        assert_eq!(&got, b"ping");
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
        file.as_file().set_len(1 << 20).expect("a size");
        let options = DiskOptions { block_bytes: 512, read_only: false };
        let disk = world.open_disk(file.path().to_str().expect("UTF-8"), options).await.expect("a disk");
        use block::{BlockDevice, Buf, Extent, Lba, Written};
        let _: Written = disk.write(Lba(3), Buf::copy_of(&[7; 512]).freeze()).await.expect("the disk is well");
        let _ = disk.flush(Written::attest()).await.expect("the disk is well");
        assert!(disk.read(Extent::new(3, 1)).await.expect("the disk is well") == [7; 512][..]);
    });
}

#[test]
#[ignore = "the child of a test above: it forbids itself descriptors"]
fn child_without_descriptors() {
    crate::run_on(Io::Auto, |world| async move {
        let listener = world.listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(world.connect(listener.local_address(), StreamOptions::default()).await.expect("it listens"));
        }
        let mut hoard = Vec::new();
        limit_descriptors(64);
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        let error = listener.accept(&StreamOptions::default()).await.err().expect("no descriptor is left");
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        hoard.clear();
        world.sleep(Duration::from_millis(1)).await;
        assert!(listener.accept(&StreamOptions::default()).await.is_ok());
    });
}
