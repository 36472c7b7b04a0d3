//! Tests of what the policy opens, creates and binds, and what it denies.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

fn policy(own: &Path) -> Policy {
    Policy { own: vec![real(own)], ports: [443, 8443].into() }
}

/// Creates a file of 1 MiB, which may be used as a disk.
fn disk(path: PathBuf) -> PathBuf {
    let file = fs::File::create(&path).expect("creates");
    file.set_len(FILE_BYTES_MIN).expect("grows");
    path
}

#[track_caller]
fn denied(policy: &Policy, path: &Path, why: &str) {
    match policy.place(path) {
        Err(Denial::Policy(said)) => assert!(said.contains(why), "{said}"),
        Err(Denial::System(errno)) => panic!("{}: {errno}", path.display()),
        Ok(_) => panic!("{} is opened", path.display()),
    }
}

#[test]
fn file_that_stands_for_a_disk_is_opened_and_others_are_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let policy = policy(&dir.join("state"));
    fs::create_dir(dir.join("state")).expect("a folder");
    let good = disk(dir.join("d0"));
    assert!(policy.place(&good).is_ok_and(|place| place.is_file()));
    let small = dir.join("authorized_keys");
    fs::write(&small, "ssh-ed25519 AAAA").expect("writes");
    denied(&policy, &small, "smaller than 1 MiB");
    let program = disk(dir.join("program"));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("sets");
    denied(&policy, &program, "executable");
    let key = disk(dir.join("state/node.key"));
    denied(&policy, &key, "belongs to the state of the array");
    assert_eq!(policy.place(dir).err(), Some(Denial::System(Errno::INVAL)), "a folder");
    assert_eq!(policy.place(Path::new("/dev/null")).err(), Some(Denial::System(Errno::INVAL)), "no disk");
    assert_eq!(policy.place(&dir.join("none")).err(), Some(Denial::System(Errno::NOENT)));
}

#[test]
fn symbolic_link_is_judged_where_it_leads() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    fs::create_dir(dir.join("state")).expect("a folder");
    let policy = policy(&dir.join("state"));
    let key = disk(dir.join("state/node.key"));
    symlink(&key, dir.join("looks-like-a-disk")).expect("links");
    denied(&policy, &dir.join("looks-like-a-disk"), "belongs to the state of the array");
    symlink(dir.join("state"), dir.join("folder")).expect("links");
    denied(&policy, &dir.join("folder/node.key"), "belongs to the state of the array");
    let good = disk(dir.join("d0"));
    symlink(&good, dir.join("link")).expect("links");
    assert_eq!(policy.place(&dir.join("link")).map(|place| place.real), Ok(fs::canonicalize(good).expect("there")));
}

#[test]
fn trees_of_the_system_and_steps_back_are_refused() {
    let policy = policy(Path::new("/nowhere"));
    for path in ["/etc/passwd", "/etc/shadow", "/proc/self/environ", "/usr/bin/env", "/etc/mtab"] {
        if Path::new(path).exists() {
            denied(&policy, Path::new(path), "is below");
        }
    }
    denied(&policy, Path::new("/tmp/../etc/passwd"), "without ..");
    denied(&policy, Path::new("etc/passwd"), "must be absolute");
    let new = |path: &str| policy.admit_new(Path::new(path));
    assert!(matches!(new("/etc/cron.d/disk"), Err(Denial::Policy(_)) | Err(Denial::System(Errno::NOENT))));
    assert!(matches!(new("/etc/disk"), Err(Denial::Policy(_))));
    assert!(matches!(new("/tmp/../etc/disk"), Err(Denial::Policy(_))));
    assert_eq!(new("/tmp/d0.img"), Ok(fs::canonicalize("/tmp").expect("there").join("d0.img")));
}

#[test]
fn port_of_the_configuration_or_above_1023_is_bound() {
    let policy = policy(Path::new("/nowhere"));
    let port = |port| policy.admit_port(SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!((port(443), port(3260), port(1024)), (Ok(()), Ok(()), Ok(())));
    for closed in [0, 22, 860, 1023] {
        assert!(matches!(port(closed), Err(Denial::Policy(_))) || closed == 0);
    }
}
