//! Pools that the real daemon opens read-only: by `pool import --read-only`, on a file system mounted read-only, and on
//! a full one. Hosts can read, their writes are refused, and nothing reaches the disks.

use crate::initiator::{Initiator, WRITE_PROTECTED, present};
use crate::serve::{Daemon, SERVE, ask, end, good, start_with, wait_for, wait_until_served};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DISKS: [&str; 2] = ["d0", "d1"];
/// Content of the first 1 MiB of the volume.
const FILL: u8 = 7;
const BLOCKS: u32 = 2048;
/// Reason shown for a pool that was imported read-only.
const ASKED_FOR: &str = "imported with --read-only";

/// Creates the pool `tank` of two disks in the folder `disks` with `tank/v`, to which a host has written.
fn furnish(dir: &Path) {
    for disk in DISKS {
        good(dir, &format!("disk add --name {disk} --create 128MiB disks/{disk}.img"));
    }
    good(dir, "pool create tank --level raid1 d0 d1");
    good(dir, "volume create tank/v 8MiB --thin");
    present(dir);
    Initiator::login(dir).write(0, BLOCKS, FILL).expect("the pool is open for writing");
}

/// Returns the content of the disk files in `folder`.
fn contents(folder: &Path) -> Vec<Vec<u8>> {
    DISKS.map(|disk| fs::read(folder.join(format!("{disk}.img"))).expect("it is there")).into()
}

/// Requires that hosts can read, that nothing can be written, that every report gives `why`, and that the files in
/// `folder` do not change.
#[track_caller]
fn assert_read_only(dir: &Path, folder: &Path, why: &str) {
    let before = contents(folder);
    for line in [&["status"][..], &["status", "--check"], &["doctor"]] {
        let said = ask(dir, line);
        assert!(said.stdout.contains("read-only") && said.stdout.contains(why), "{line:?}: {}", said.stdout);
        assert!(!said.stdout.contains("All good"), "{line:?}: {}", said.stdout);
    }
    assert_eq!(ask(dir, &["status", "--check"]).code, 7);
    let shown = good(dir, "pool show tank");
    assert!(shown.contains(&format!("read-only: {why}")), "{shown}");
    for line in ["event list", "alert active"] {
        let said = wait_for(dir, line, |said| said.contains("BY-E339"));
        assert!(said.lines().any(|line| line.contains("BY-E339") && line.contains(why)), "{line}: {said}");
    }
    let mut session = Initiator::login(dir);
    assert!(session.is_write_protected());
    assert_eq!(session.write(0, 8, 1), Err(WRITE_PROTECTED));
    assert_eq!(session.write(u64::from(BLOCKS) * 2, 8, 1), Err(WRITE_PROTECTED));
    assert!(session.read(0, BLOCKS).expect("it is read").iter().all(|&byte| byte == FILL));
    let refused = ask(dir, &["volume", "create", "tank/w", "1MiB", "--thin"]);
    assert!(refused.code == 4 && refused.stderr.contains("(BY-1429)"), "{}", refused.stderr);
    assert!(contents(folder) == before, "a disk was written");
}

#[track_caller]
fn assert_writable(dir: &Path) {
    // Free space below a pool is checked every few seconds.
    wait_for(dir, "status", |said| said.starts_with("All good"));
    assert_eq!(ask(dir, &["status", "--check"]).code, 0);
    let mut session = Initiator::login(dir);
    assert!(!session.is_write_protected());
    assert!(session.read(0, BLOCKS).expect("it is read").iter().all(|&byte| byte == FILL));
    session.write(u64::from(BLOCKS), BLOCKS, FILL + 1).expect("it is written");
    assert!(session.read(u64::from(BLOCKS), BLOCKS).expect("it is read").iter().all(|&byte| byte == FILL + 1));
}

/// Imports the pool read-only on another node, after the first node was ended by this signal.
fn import_read_only_after(signal: Signal) {
    let (ours, theirs) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (ours, theirs) = (ours.path(), theirs.path());
    let disks = ours.join("disks");
    fs::create_dir(&disks).expect("a folder");
    let mut daemon = start_with(ours, "alpha", &["--no-web"]);
    wait_until_served(ours);
    furnish(ours);
    assert_eq!(end(&mut daemon, signal).success(), signal == Signal::TERM);
    let before = contents(&disks);

    let mut other = start_with(theirs, "beta", &["--no-web"]);
    wait_until_served(theirs);
    for disk in DISKS {
        good(theirs, &format!("disk add --name {disk} {}/{disk}.img", disks.display()));
    }
    // Read-only or not, a pool that its node did not export needs a forced import.
    let import = ["pool", "import", "tank", "--read-only"];
    let imported = ask(theirs, &import);
    match signal {
        Signal::KILL => {
            assert!(imported.code == 4 && imported.stderr.contains("(BY-1422)"), "{}", imported.stderr);
            good(theirs, "pool import tank --read-only --force");
        }
        _ => assert_eq!(imported.code, 0, "{}", imported.stderr),
    }
    present(theirs);
    assert_read_only(theirs, &disks, ASKED_FOR);
    for signal in [Signal::TERM, Signal::KILL] {
        end(&mut other, signal);
        assert!(contents(&disks) == before, "a disk was written");
        other = start_with(theirs, "beta", &["--no-web"]);
        wait_until_served(theirs);
        assert_read_only(theirs, &disks, ASKED_FOR);
        assert!(contents(&disks) == before, "a disk was written at a start");
    }
    let again = ask(theirs, &import);
    assert!(again.code == 4 && again.stderr.contains("(BY-1201)"), "{}", again.stderr);
    assert!(again.stderr.contains("export it first with blockyard pool export tank"), "{}", again.stderr);
    if signal == Signal::KILL {
        // Writing also needs a forced import; until then hosts can read as before.
        let refused = ask(theirs, &import[..3]);
        assert!(refused.code == 4 && refused.stderr.contains("(BY-1422)"), "{}", refused.stderr);
        assert_read_only(theirs, &disks, ASKED_FOR);
    }
    assert!(end(&mut other, Signal::TERM).success());
    assert!(contents(&disks) == before, "a disk was written");

    // The previous owner finds its pool unchanged.
    let mut daemon = start_with(ours, "alpha", &["--no-web"]);
    wait_until_served(ours);
    assert_writable(ours);
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn pool_is_imported_read_only_after_a_clean_stop_of_its_node() {
    import_read_only_after(Signal::TERM);
}

#[test]
fn pool_is_imported_read_only_after_a_kill_of_its_node() {
    import_read_only_after(Signal::KILL);
}

#[test]
fn pool_that_was_imported_read_only_is_written_after_it_was_exported_and_imported() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    fs::create_dir(dir.join("disks")).expect("a folder");
    let mut daemon = start_with(dir, "test", &["--no-web"]);
    wait_until_served(dir);
    furnish(dir);
    let refused = ask(dir, &["pool", "import", "tank", "--read-only"]);
    assert!(refused.code == 4 && refused.stderr.contains("(BY-1201)"), "{}", refused.stderr);
    assert!(refused.stderr.contains("export it first with blockyard pool export tank"), "{}", refused.stderr);
    good(dir, "pool export tank --force");
    good(dir, "pool import tank --read-only");
    assert!(good(dir, "export").contains("read_only = true"));
    assert!(good(dir, "pool show tank -o json").contains("\"imported_read_only\": true"));
    good(dir, "pool export tank");
    good(dir, "pool import tank");
    good(dir, "present tank/v client --lun 0");
    assert_writable(dir);
    assert!(end(&mut daemon, Signal::TERM).success());
    let mut daemon = start_with(dir, "test", &["--no-web"]);
    wait_until_served(dir);
    assert!(!good(dir, "pool show tank").contains("read-only"));
    assert!(!good(dir, "export").contains("read_only"));
    let status = ask(dir, &["status", "--check"]);
    assert!(status.code == 0 && status.stdout.starts_with("All good"), "{}", status.stdout);
    assert!(end(&mut daemon, Signal::TERM).success());
}

/// Mount namespace with a small file system for disks, which ends with the process that holds it.
struct SmallFileSystem {
    holder: Daemon,
    dir: PathBuf,
}

impl SmallFileSystem {
    /// Creates the file system, and a daemon with its pool there.
    fn furnished(dir: &Path) -> (Self, Daemon) {
        let file_system = Self::mount(dir);
        let daemon = file_system.start();
        furnish(dir);
        (file_system, daemon)
    }

    fn mount(dir: &Path) -> Self {
        fs::create_dir(dir.join("disks")).expect("a folder");
        let script = "mount -t tmpfs -o size=80m tmpfs disks && echo mounted && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh", "-c", script])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is unshare, of util-linux");
        let mut line = String::new();
        let stdout = holder.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        assert_eq!(line, "mounted\n");
        Self { holder: Daemon(holder), dir: dir.to_path_buf() }
    }

    /// Returns a command that runs in the namespace, in the test's folder.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--user", "--mount", "--preserve-credentials", "--target", &self.holder.0.id().to_string()])
            .args(["sh", "-c", "cd \"$0\" && exec \"$@\""])
            .arg(&self.dir)
            .args(words)
            .stdin(Stdio::null());
        command
    }

    fn remount(&self, how: &str) {
        let status = self.command(&["mount", "-o", &format!("remount,{how}"), "disks"]).status();
        assert!(status.expect("there is nsenter, of util-linux").success());
    }

    fn start(&self) -> Daemon {
        let more = ["--node", "test", "--log", "off", "--no-web"];
        let words = [&[env!("CARGO_BIN_EXE_blockyard")][..], &SERVE, &more].concat();
        let daemon = Daemon(self.command(&words).spawn().expect("there is nsenter, of util-linux"));
        wait_until_served(&self.dir);
        daemon
    }

    /// Returns the folder of the disks as seen from outside.
    fn disks(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.0.id()));
        root.join(self.dir.strip_prefix("/").expect("absolute")).join("disks")
    }

    /// Takes all free space.
    fn fill(&self) {
        let mut file = fs::File::create(self.disks().join("filler")).expect("makes the file");
        let error = (0..1 << 15).find_map(|_| file.write_all(&[1; 4096]).err()).expect("the file system is small");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    /// Frees the space taken by [`Self::fill`].
    fn empty(&self) {
        fs::remove_file(self.disks().join("filler")).expect("it was made");
    }
}

#[test]
fn pool_on_a_file_system_that_is_mounted_read_only_opens_read_only_and_is_written_again_after_another_import() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (file_system, mut daemon) = SmallFileSystem::furnished(dir);
    for signal in [Signal::TERM, Signal::KILL] {
        end(&mut daemon, signal);
        file_system.remount("ro");
        let before = contents(&file_system.disks());
        daemon = file_system.start();
        wait_for(dir, "volume show tank/v", |said| said.contains("online"));
        assert_read_only(dir, &file_system.disks(), "disk d0 cannot be opened for writing: Read-only file system");
        assert!(contents(&file_system.disks()) == before, "a disk was written");
        file_system.remount("rw");
        // Presentations stay.
        good(dir, "pool import tank");
        assert_writable(dir);
    }
    assert!(end(&mut daemon, Signal::TERM).success());
}

/// The metadata of disks and the copies of the state have their space reserved from the beginning.
#[test]
fn pool_on_a_full_file_system_has_space_for_its_metadata_and_the_file_system_is_told_of() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (file_system, mut daemon) = SmallFileSystem::furnished(dir);
    assert!(end(&mut daemon, Signal::TERM).success());
    file_system.fill();
    for host in ["web", "db", "mail"] {
        daemon = file_system.start();
        wait_for(dir, "volume show tank/v", |said| said.contains("online"));
        assert!(!good(dir, "pool show tank").contains("read-only"));
        let found = wait_for(dir, "status", |said| said.contains("full (critical)"));
        assert!(
            found.starts_with("file system of disk d0, disk d1 is full: free space on the file system of"),
            "{found}"
        );
        assert_eq!(ask(dir, &["status", "--check"]).code, 7);
        for line in ["event list", "alert active"] {
            wait_for(dir, line, |said| said.contains("BY-E108"));
        }
        // Each copy of the state goes to another location than the one before.
        good(dir, &format!("host add {host} --initiator iqn.2026-11.io.blockyard:{host}"));
        let [d0, d1] = DISKS.map(|disk| file_system.disks().join(disk).with_extension("img").display().to_string());
        wait_for(dir, &format!("state recover {d0} {d1} --state-dir elsewhere"), |said| match said.split_once('\n') {
            Some((newest, before)) => {
                newest.contains(&format!("on {d0}, {d1}:")) && before.contains(&format!("-{host}"))
            }
            None => false,
        });
        for disk in DISKS {
            let shown = good(dir, &format!("disk show {disk} -o json"));
            assert!(shown.contains("\"errors\": 0"), "{shown}");
        }
        assert!(end(&mut daemon, Signal::TERM).success());
    }
    daemon = file_system.start();
    file_system.empty();
    wait_for(dir, "status", |said| said.starts_with("All good"));
    wait_for(dir, "event list", |said| said.contains("BY-E109"));
    assert_writable(dir);
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn pool_on_a_full_file_system_opens_read_only_and_is_written_again_once_there_is_room() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (file_system, mut daemon) = SmallFileSystem::furnished(dir);
    // The last writes of hosts are in the logs, and have no space in the map yet.
    end(&mut daemon, Signal::KILL);
    file_system.fill();
    daemon = file_system.start();
    // A write without space is retried for some seconds.
    wait_for(dir, "volume show tank/v", |said| said.contains("online"));
    assert_read_only(dir, &file_system.disks(), "disk d0 refuses writes: no space left");
    file_system.empty();
    good(dir, "pool export tank --force");
    good(dir, "pool import tank");
    good(dir, "present tank/v client --lun 0");
    assert_writable(dir);
    assert!(end(&mut daemon, Signal::TERM).success());
}
