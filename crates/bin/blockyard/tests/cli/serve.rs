//! The real daemon: start, exclusive lock, clean end, and return after a kill.

use crate::lab::run_in;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Timeout for the start or the end of the daemon; two cores are shared with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Arguments to start a daemon in the folder of its test.
pub(crate) const SERVE: [&str; 9] =
    ["serve", "--shards", "1", "--state-dir", "state", "--socket", "socket", "--portal", "127.0.0.1:0"];

/// Daemon that is ended with its test, also when the test fails.
pub(crate) struct Daemon(pub Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already, and a failing test has given its reason.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    /// Returns the process that serves, which the started helper has started.
    pub(crate) fn process(&self) -> u32 {
        self.confined_process().expect("it has a daemon")
    }

    fn confined_process(&self) -> Option<u32> {
        let helper = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{helper}/task/{helper}/children")).ok()?;
        let is_daemon = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|word| word == b"--under")
        };
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_daemon)
    }
}

pub(crate) fn start(dir: &Path) -> Daemon {
    start_node(dir, "test")
}

fn start_node(dir: &Path, node: &str) -> Daemon {
    start_with(dir, node, &["--no-web"])
}

pub(crate) fn start_with(dir: &Path, node: &str, more: &[&str]) -> Daemon {
    let daemon = Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .args(SERVE)
        .args(["--node", node])
        .args(if more.contains(&"--log") { &[][..] } else { &["--log", "warn"] })
        .args(more)
        .current_dir(dir)
        .stdin(Stdio::null())
        .spawn();
    Daemon(daemon.expect("it runs"))
}

pub(crate) fn ask(dir: &Path, arguments: &[&str]) -> crate::lab::Outcome {
    run_in(dir.to_path_buf(), arguments, &[("BLOCKYARD_SOCKET", "socket")])
}

/// Runs the words of a line like [`ask`].
pub(crate) fn ask_line(dir: &Path, line: &str) -> crate::lab::Outcome {
    ask(dir, &line.split(' ').collect::<Vec<_>>())
}

/// Runs a line that must succeed, and returns its output.
#[track_caller]
pub(crate) fn good(dir: &Path, line: &str) -> String {
    let outcome = ask_line(dir, line);
    assert_eq!(outcome.code, 0, "{line}: {}{}", outcome.stdout, outcome.stderr);
    outcome.stdout
}

/// Returns a cell of the first row of the list.
pub(crate) fn cell(dir: &Path, table: &str, column: usize) -> String {
    let told = ask(dir, &[table, "list", "--no-headers"]).stdout;
    told.split('\t').nth(column).expect("a cell").trim().to_owned()
}

/// Waits until `is_so` holds for the output of the command, and returns it; alerts are evaluated every few seconds.
#[track_caller]
pub(crate) fn wait_for(dir: &Path, line: &str, is_so: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let said = ask_line(dir, line).stdout;
        if is_so(&said) {
            return said;
        }
        assert!(begun.elapsed() < PATIENCE, "{line}: {said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub(crate) fn wait_until_served(dir: &Path) {
    let begun = Instant::now();
    while ask(dir, &["status"]).code == 6 {
        assert!(begun.elapsed() < PATIENCE, "the daemon did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn end(daemon: &mut Daemon, signal: Signal) -> ExitStatus {
    let id = Pid::from_raw(i32::try_from(daemon.0.id()).expect("a process id")).expect("not zero");
    let process = daemon.confined_process();
    kill_process(id, signal).expect("it runs");
    let status = wait_for_end(daemon);
    // The kernel ends it after its helper was killed; its resources are free only then.
    let begun = Instant::now();
    while process.is_some_and(runs) {
        assert!(begun.elapsed() < PATIENCE, "the daemon runs without its helper");
        std::thread::sleep(Duration::from_millis(5));
    }
    status
}

/// Returns true while a thread of the process is running, and with it open files: the first thread may end before the
/// others.
pub(crate) fn runs(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    threads > 1 || std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits for the end of the started process, and returns its status.
pub(crate) fn wait_for_end(daemon: &mut Daemon) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = daemon.0.try_wait().expect("it is ours") {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "the daemon did not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn shards_stay_on_the_cores_that_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut daemon = start_with(dir.path(), "test", &["--no-web", "--cpus", "0"]);
    wait_until_served(dir.path());
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.process())).expect("it runs");
    let read = |task: &std::fs::DirEntry, file: &str| std::fs::read_to_string(task.path().join(file)).expect("it runs");
    let shards: Vec<_> = tasks.flatten().filter(|task| read(task, "comm") == "shard-0\n").collect();
    assert_eq!(shards.len(), 1);
    assert!(read(&shards[0], "status").contains("\nCpus_allowed_list:\t0\n"));
    let line = ask(dir.path(), &["tune", "show", "--no-headers", "--quiet"]);
    assert_eq!(line.code, 0, "{}", line.stderr);
    assert!(end(&mut daemon, Signal::TERM).success());
    let sentence = ask(dir.path(), &["serve", "--cpus", "60000", "--state-dir", "state"]);
    assert_eq!(sentence.code, 2);
    assert!(
        sentence
            .stderr
            .starts_with("blockyard: cpus = 60000 names cores that do not exist; choose from the online cores: 0")
    );
}

#[test]
fn disk_that_failed_by_accident_is_its_own_replacement() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    let good = |line: &str| good(dir, line);
    for disk in ["d0", "d1", "d2"] {
        good(&format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good("pool create tank --level raid1 d0 d1");
    good("volume create tank/v 8MiB");
    good("disk fail d1");
    good("disk replace d1 d1 --wait");
    assert!(good("pool show tank").starts_with("pool tank: healthy\n"));
    good("disk replace d1 d2 --force --yes --wait");
    let disks = good("disk list --no-headers");
    assert!(disks.contains("d1\tformer member\t(tank)") && disks.contains("d2\tin use\ttank"), "{disks}");
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn pool_of_another_machine_is_imported_when_that_has_let_go_of_it_or_is_told_to_be_down() {
    let (ours, theirs) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (ours, theirs) = (ours.path(), theirs.path());
    let mut daemon = start_node(ours, "alpha");
    wait_until_served(ours);
    for disk in ["d0", "d1"] {
        good(ours, &format!("disk add --name {disk} --create 64MiB {disk}.img"));
    }
    good(ours, "pool create tank --level raid1 d0 d1");
    assert!(!end(&mut daemon, Signal::KILL).success());

    let mut other = start_node(theirs, "beta");
    wait_until_served(theirs);
    for disk in ["d0", "d1"] {
        good(theirs, &format!("disk add --name {disk} {}/{disk}.img", ours.display()));
    }
    let refused = ask(theirs, &["pool", "import", "tank"]);
    assert_eq!(
        (refused.code, refused.stderr.as_str()),
        (
            4,
            "blockyard: pool \"tank\" was in use by node alpha, which did not let go of it and is silent now; if that node \
             is surely down, import the pool with --force (BY-1422)\n"
        )
    );
    assert_eq!(good(theirs, "pool import tank --force"), "pool tank imported: healthy, 0 volumes\n");
    let told = "pool tank forcibly imported; node alpha did not export it";
    let begun = Instant::now();
    while !good(theirs, "event list --no-headers").contains(told) {
        assert!(begun.elapsed() < PATIENCE, "nobody heard of it");
        std::thread::sleep(Duration::from_millis(20));
    }
    good(theirs, "pool export tank");
    assert!(end(&mut other, Signal::TERM).success());
    // At its own node, it is open again immediately.
    let mut daemon = start_node(ours, "alpha");
    wait_until_served(ours);
    assert!(good(ours, "pool show tank").starts_with("pool tank: healthy\n"));
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn daemon_is_alone_ends_well_and_comes_back_after_a_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    assert_eq!(ask(dir, &["host", "add", "web", "--initiator", "iqn.2001-04.com.example:web"]).code, 0);

    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.process())).expect("its limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("one for core dumps");
    assert_eq!(core.split_whitespace().filter(|word| *word == "0").count(), 2, "no core dump holds secrets: {core}");

    let second = ask(dir, &["serve", "--state-dir", "state", "--socket", "other", "--portal", "127.0.0.1:0"]);
    assert_eq!(second.code, 4, "{}", second.stderr);
    assert!(second.stderr.ends_with("(BY-1802)\n"), "{}", second.stderr);
    let third = ask(dir, &["serve", "--state-dir", "other", "--socket", "socket", "--portal", "127.0.0.1:0"]);
    assert_eq!(third.code, 4, "{}", third.stderr);

    assert!(!end(&mut daemon, Signal::KILL).success());
    assert!(dir.join("socket").exists(), "a killed daemon leaves its socket");
    let mut daemon = start(dir);
    wait_until_served(dir);
    let hosts = ask(dir, &["host", "list", "--no-headers"]);
    assert!(hosts.stdout.starts_with("web\t"), "what was answered survives: {}", hosts.stdout);

    assert!(end(&mut daemon, Signal::TERM).success(), "told to stop, it ends well");
    assert!(!dir.join("socket").exists());
    assert_eq!(ask(dir, &["status"]).code, 6);
}

#[test]
fn daemon_keeps_every_rule_that_conform_tries() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut daemon = start(dir.path());
    wait_until_served(dir.path());
    for arguments in [
        &["volume", "create", "scratch", "16MiB", "--ram"][..],
        &["host", "add", "conform", "--initiator", "iqn.2026-11.io.blockyard:conform"],
        &["present", "scratch", "conform"],
    ] {
        assert_eq!(ask(dir.path(), arguments).code, 0, "{arguments:?}");
    }
    let cell = |table: &str, column: usize| cell(dir.path(), table, column);
    let url = format!("iscsi://{}/{}", cell("portal", 0), cell("target", 1));
    let tried = ask(dir.path(), &["conform", &url, "--destructive"]);
    assert_eq!(tried.code, 0, "{}{}", tried.stdout, tried.stderr);
    assert!(
        tried.stderr.contains(" 0 failed, 4 skipped"),
        "but for a redirect and what takes listening: {}{}",
        tried.stdout,
        tried.stderr
    );
    let writes = ask(dir.path(), &["conform", &url, "--only", "writes"]);
    assert_eq!(writes.code, 2, "nothing is written unless it is asked for: {}", writes.stderr);
    let portal = cell("portal", 0);
    let data = &["portal", "add", "127.0.0.1:0", "role=data"][..];
    for arguments in [data, data, &["portal", "set", &portal, "role=front"]] {
        let done = ask(dir.path(), arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
    }
    let only = ["conform", &url, "--only", "messages.logout-asked", "--listen", "20"];
    let asked = std::thread::scope(|scope| {
        let trying = scope.spawn(|| ask(dir.path(), &only));
        let begun = Instant::now();
        let place = loop {
            let told = ask(dir.path(), &["session", "list", "--no-headers"]).stdout;
            let mut places = told.lines().filter_map(|line| line.split('\t').nth(3));
            if let Some(place) = places.find(|place| !place.starts_with(&portal)) {
                break place.to_owned();
            }
            assert!(begun.elapsed() < PATIENCE, "no session came");
            std::thread::sleep(Duration::from_millis(20));
        };
        let drained = ask(dir.path(), &["portal", "drain", &place]);
        assert_eq!(drained.code, 0, "{}", drained.stderr);
        trying.join().expect("it ends")
    });
    assert!(asked.stderr.contains("1 passed"), "{}{}", asked.stdout, asked.stderr);
    let sent = ask(dir.path(), &["conform", &url, "--only", "login.redirect"]);
    assert!(sent.stderr.contains("1 passed"), "{}{}", sent.stdout, sent.stderr);
    let wrong = ask(dir.path(), &["conform", &url.replace("iqn.", "iqn.2026-11.nobody:"), "--only", "data"]);
    let skipped = wrong.stdout.matches("skipped\t").count();
    assert_eq!(
        (wrong.code, skipped),
        (1, wrong.stdout.lines().count() - 1),
        "a target that is not there: {}",
        wrong.stdout
    );
    assert_eq!(wrong.stderr.matches("target not found (0203)").count(), 1, "it is said once: {}", wrong.stderr);
    assert_eq!(ask(dir.path(), &["conform", "nonsense"]).code, 2);
    end(&mut daemon, Signal::TERM);
}

#[test]
fn login_that_is_refused_is_told_once_and_both_sides_can_prove_themselves() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start(dir);
    wait_until_served(dir);
    for (file, secret) in
        [("own", "a secret of the host"), ("ours", "a secret of the array"), ("wrong", "another secret")]
    {
        std::fs::write(dir.join(file), secret).expect("it is written");
    }
    let host = ["host", "add", "conform", "--initiator", "iqn.2026-11.io.blockyard:conform", "--chap-user", "me"];
    let proof = ["--chap-secret-file", "own", "--mutual-user", "array", "--mutual-secret-file", "ours"];
    for arguments in [
        &["volume", "create", "scratch", "16MiB", "--ram"][..],
        &[&host[..], &proof].concat(),
        &["present", "scratch", "conform"],
    ] {
        let done = ask(dir, arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
    }
    let cell = |table: &str, column: usize| {
        let told = ask(dir, &[table, "list", "--no-headers"]).stdout;
        told.split('\t').nth(column).expect("a cell").trim().to_owned()
    };
    let portal = cell("portal", 0);
    let url = format!("iscsi://{portal}/{}", cell("target", 1));
    let wrong = ask(dir, &["conform", &url, "--only", "login", "--chap-user", "me", "--chap-secret-file", "wrong"]);
    assert!(wrong.code == 1 && !wrong.stdout.contains("FAILED"), "{}{}", wrong.stdout, wrong.stderr);
    assert!(wrong.stdout.contains("passed\tlogin.command-first"), "{}", wrong.stdout);
    assert_eq!(wrong.stderr.matches("authentication failure (0201)").count(), 1, "{}", wrong.stderr);
    let own =
        ["--chap-user", "me", "--chap-secret-file", "own", "--chap-algorithm", "sha256", "--mutual-user", "array"];
    for (file, passed) in [("ours", 1), ("wrong", 0)] {
        let only = ["conform", &url, "--only", "login.plain"];
        let tried = ask(dir, &[&only[..], &own, &["--mutual-secret-file", file]].concat());
        assert_eq!(tried.stdout.matches("passed").count(), passed, "{file}: {}{}", tried.stdout, tried.stderr);
    }
    assert_eq!(ask(dir, &["conform", &url, "--mutual-user", "array"]).code, 2, "who asks for a proof gives one");
    let refused = ask(dir, &["ready", "--for", "proxmox", &url]);
    assert!(refused.stdout.is_empty() && refused.stderr.contains("--chap-secret-file"), "{}", refused.stderr);
    end(&mut daemon, Signal::TERM);
    let dead = ["ready", "--for", "proxmox", &url];
    let dead = ask(dir, &dead);
    assert!(dead.code == 1 && dead.stdout.is_empty() && dead.stderr.lines().count() == 1, "{}", dead.stderr);
    assert!(dead.stderr.contains(&format!("{portal} cannot be reached")), "{}", dead.stderr);
    let dead = ask(dir, &["conform", &url]);
    assert!(dead.code == 1 && dead.stdout.is_empty() && dead.stderr.lines().count() == 1, "{}", dead.stderr);
}

#[test]
fn daemon_says_of_a_running_unit_what_is_missing_for_whom_and_how_to_mend_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut daemon = start(dir.path());
    wait_until_served(dir.path());
    let file = dir.path().join("volume.img").to_string_lossy().into_owned();
    for arguments in [
        &["volume", "create", "memory", "16MiB", "--ram"][..],
        &["volume", "create", "large", "16MiB", "--ram", "--block-size", "4096"],
        &["volume", "create", "file", "16MiB", "--file", &file],
        &["host", "add", "conform", "--initiator", "iqn.2026-11.io.blockyard:conform"],
        &["present", "memory", "conform"],
        &["present", "large", "conform", "--read-only"],
        &["present", "file", "conform"],
    ] {
        assert_eq!(ask(dir.path(), arguments).code, 0, "{arguments:?}");
    }
    let cell = |table: &str, column: usize| cell(dir.path(), table, column);
    let url = format!("iscsi://{}/{}", cell("portal", 0), cell("target", 1));
    let missing = |lun: u16, purpose: &str| {
        let url = format!("{url}/{lun}");
        let told = ask(dir.path(), &["ready", "--for", purpose, &url, "--no-headers", "--scratch", "7"]);
        let names = |result: &str| {
            let of = |line: &str| line.split('\t').nth(1).map(str::to_owned);
            told.stdout.lines().filter(|line| line.starts_with(result)).filter_map(of).collect::<Vec<_>>()
        };
        // A write-protected unit refuses the commands to be tested.
        let unknown: &[&str] = if lun == 1 { &["vmfs.ats", "vmfs.write-same", "thin.unmap"] } else { &[] };
        assert_eq!(names("unknown"), unknown, "{}", told.stdout);
        let missing = names("MISSING");
        assert_eq!(told.code, i32::from(!missing.is_empty()), "{}{}", told.stdout, told.stderr);
        assert!(!told.stdout.is_empty() && told.stdout.lines().count() == names("").len());
        missing
    };
    // A volume in memory has no thresholds, and its reservations do not persist.
    assert_eq!(missing(0, "vmware"), ["thin.thresholds"]);
    assert_eq!(missing(0, "windows-cluster"), ["reservations.survive"]);
    assert_eq!(missing(0, "linux-ha"), ["reservations.survive"]);
    assert_eq!(missing(0, "oracle-rac"), Vec::<String>::new());
    assert_eq!(missing(0, "proxmox"), Vec::<String>::new());
    assert_eq!(missing(1, "vmware"), ["unit.writable", "unit.blocks", "thin.thresholds"]);
    assert_eq!(missing(2, "proxmox"), ["thin.unmap", "thin.zeros"]);
    let told = ask(dir.path(), &["ready", "--for", "vmware", &format!("{url}/1")]);
    assert!(
        told.stdout.contains("its blocks have 4096 bytes\tmake the volume with --block-size 512"),
        "{}",
        told.stdout
    );
    // Commands that write are not tried without permission, and what was not tried counts as unknown.
    let told = ask(dir.path(), &["ready", "--for", "vmware", &url]);
    let untried: Vec<&str> = told.stdout.lines().filter(|line| line.contains("--scratch BLOCK")).collect();
    assert_eq!(untried.len(), 2, "{}", told.stdout);
    assert!(untried[0].starts_with("unknown\tvmfs.ats") && untried[1].starts_with("unknown\tvmfs.write-same"));
    // A unit that does not exist is not ready.
    let absent = ask(dir.path(), &["ready", "--for", "proxmox", &format!("{url}/9"), "--no-headers"]);
    assert!(absent.code == 1 && absent.stdout.is_empty(), "{}", absent.stdout);
    assert!(absent.stderr.contains("no unit 9; name another one in the URL"), "{}", absent.stderr);
    assert_eq!(ask(dir.path(), &["ready", &url]).code, 2, "for whom?");
    end(&mut daemon, Signal::TERM);
}

/// A portal of the command line and one added at run time, both occupied by another program at the start.
#[test]
fn portal_that_is_taken_at_the_start_listens_within_seconds_of_being_free() {
    let dir = tempfile::tempdir().expect("a folder");
    let take = |address: &str| std::net::TcpListener::bind(address).expect("a free port");
    let (given, added) = (take("127.0.0.1:0"), take("127.0.0.1:0"));
    let addresses = [&given, &added].map(|taken| taken.local_addr().expect("it listens").to_string());
    let [given_at, added_at] = &addresses;
    drop((given, added));
    let mut daemon = start_with(dir.path(), "test", &["--no-web", "--portal", given_at]);
    wait_until_served(dir.path());
    let outcome = ask(dir.path(), &["portal", "add", added_at]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(end(&mut daemon, Signal::TERM).success());

    let taken = (take(given_at), take(added_at));
    let _daemon = start_with(dir.path(), "test", &["--no-web", "--portal", given_at]);
    wait_until_served(dir.path());
    let state = |address: &str| {
        let listed = ask(dir.path(), &["portal", "list"]).stdout;
        listed.lines().find(|line| line.starts_with(address)).expect("it is listed").to_owned()
    };
    assert!(addresses.iter().all(|address| state(address).contains("failed: cannot listen on")));
    assert_ne!(ask(dir.path(), &["status", "--check"]).code, 0);
    let active = ask(dir.path(), &["alert", "active"]).stdout;
    assert!(active.contains(given_at) && active.contains(added_at), "{active}");
    std::thread::sleep(Duration::from_millis(2500));
    drop(taken);
    let free = Instant::now();
    while !addresses.iter().all(|address| state(address).ends_with("open")) {
        assert!(free.elapsed() < Duration::from_secs(10), "{}", ask(dir.path(), &["portal", "list"]).stdout);
        std::thread::sleep(Duration::from_millis(100));
    }
    for address in &addresses {
        std::net::TcpStream::connect(address).expect("it listens");
        let events = ask(dir.path(), &["event", "list"]).stdout;
        let told = |code: &str| events.lines().filter(|line| line.contains(code) && line.contains(address)).count();
        assert_eq!((told("BY-E402"), told("BY-E409")), (1, 1), "{events}");
    }
    assert_eq!(ask(dir.path(), &["status", "--check"]).code, 0);
}

/// Every kind of damage to a file of the console: volumes are served, the console is not, and returns by itself.
#[test]
fn damaged_key_of_the_console_stops_nothing_else_and_is_tried_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let web = dir.path().join("state/web");
    let (key, kept) = (web.join("key.pem"), web.join("kept"));
    let mut daemon = start_with(dir.path(), "test", &["--web", "127.0.0.1:0"]);
    wait_until_served(dir.path());
    let shown = || ask(dir.path(), &["web", "show"]).stdout;
    let await_console = |begun: Instant| {
        while !shown().contains("https://") {
            assert!(begun.elapsed() < PATIENCE, "{}", shown());
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    await_console(Instant::now());
    assert!(end(&mut daemon, Signal::TERM).success());
    std::fs::rename(&key, &kept).expect("renames");
    let folder = || std::fs::create_dir(&key);
    let pipe = || Command::new("mkfifo").arg(&key).status().map(drop);
    let damages: [(&str, &dyn Fn() -> std::io::Result<()>); 4] = [
        ("empty", &|| std::fs::write(&key, "")),
        ("nonsense", &|| std::fs::write(&key, [0xff; 1000])),
        ("a pipe", &pipe),
        ("a folder", &folder),
    ];
    for (name, damage) in damages {
        damage().expect("damages");
        let mut daemon = start_with(dir.path(), "test", &["--web", "127.0.0.1:0"]);
        wait_until_served(dir.path());
        assert!(ask(dir.path(), &["portal", "list"]).stdout.contains("open"), "{name}");
        let begun = Instant::now();
        while !ask(dir.path(), &["event", "list"]).stdout.contains("BY-E508") {
            assert!(begun.elapsed() < PATIENCE, "{name}: no event");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(shown().contains("not available") && shown().contains("key.pem"), "{name}: {}", shown());
        assert_ne!(ask(dir.path(), &["status", "--check"]).code, 0, "{name}");
        assert!(ask(dir.path(), &["doctor"]).stdout.contains("certificate of the console"), "{name}");
        if name == "a folder" {
            std::fs::remove_dir(&key).expect("removes");
            std::fs::rename(&kept, &key).expect("renames");
            await_console(Instant::now());
            assert!(ask(dir.path(), &["event", "list"]).stdout.contains("BY-E509"));
            assert_eq!(ask(dir.path(), &["status", "--check"]).code, 0);
        } else {
            std::fs::remove_file(&key).expect("removes");
        }
        assert!(end(&mut daemon, Signal::TERM).success(), "{name}");
    }
}
