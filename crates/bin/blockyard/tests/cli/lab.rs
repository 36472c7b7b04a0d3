//! Daemon with the real engine on a simulated machine, and the real command line.

use control::{Control, Engine, Settings, Store};
use model::{ConnectionReport, ConnectionState, RefusedLogin, RefusedWhy, SessionKind, SessionReport, Timestamp};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use testbed::{DiskFacts, Hosts, Testbed};

/// Daemon, stopped when dropped.
pub(crate) struct Lab {
    pub dir: TempDir,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Result of a command.
pub(crate) struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::over(Testbed { pace: Duration::from_millis(10), ..Testbed::default() })
    }

    fn over(testbed: Testbed) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            state_dir: dir.path().join("state"),
            socket: dir.path().join("socket"),
            node: "array1".parse().expect("a name"),
            target_base: "iqn.2026-11.io.blockyard".to_owned(),
            portals: vec!["10.0.0.1:3260".parse().expect("an address")],
            disk_search: Vec::new(),
        };
        let (ready, is_ready) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let store = Store::open(&settings.state_dir).expect("a store");
                let listening = api::listen(&settings.socket).expect("a socket");
                let testbed = Testbed {
                    facts: racked(&settings.socket),
                    hosts: Hosts { sessions: vec![session()], refused: vec![refused()], ..Hosts::default() },
                    ..testbed
                };
                let engine = Engine::new(testbed.start().0);
                let control = Arc::new(Control::start(settings, store, engine).await.expect("starts"));
                ready.send(()).expect("the test waits");
                api::serve(control, listening, async move { drop(stopped.await) }).await.expect("serves");
            });
        });
        is_ready.recv().expect("the daemon starts");
        Self { dir, stop: Some(stop), thread: Some(thread) }
    }

    /// Runs `blockyard` with these arguments in the lab's folder.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        self.run_with(arguments, &[])
    }

    pub(crate) fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
        let socket = self.dir.path().join("socket").to_string_lossy().into_owned();
        let environment: Vec<_> = environment.iter().copied().chain([("BLOCKYARD_SOCKET", socket.as_str())]).collect();
        run_in(self.dir.path().to_path_buf(), arguments, &environment)
    }

    /// Runs a command like [`Lab::run`] that must succeed, and returns its standard output.
    #[track_caller]
    pub(crate) fn good(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, 0, "{arguments:?}: {}", outcome.stderr);
        outcome.stdout
    }

    /// Runs a command like [`Lab::run`] that must fail with this exit code, and returns its message.
    #[track_caller]
    pub(crate) fn bad(&self, arguments: &[&str], code: i32) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, code, "{arguments:?}: {}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.stdout, "", "what is refused prints nothing on stdout");
        let sentence = outcome.stderr.strip_suffix('\n').expect("a line");
        assert!(!sentence.contains('\n'), "one sentence, one line: {sentence}");
        sentence.strip_prefix("blockyard: ").expect("it says who speaks").to_owned()
    }

    /// Creates six disks, the RAID-6 pool `tank`, the volume `tank/vm1`, and the host `web`.
    pub(crate) fn furnish(&self) {
        for n in 0..6 {
            let (name, path) = (format!("d{n}"), format!("d{n}.img"));
            self.good(&["disk", "add", "--name", &name, "--create", "64MiB", &path]);
        }
        self.good(&["pool", "create", "tank", "--level", "raid6", "d0", "d1", "d2", "d3", "d4"]);
        self.good(&["volume", "create", "tank/vm1", "32MiB"]);
        self.good(&["host", "add", "web", "--initiator", "iqn.2001-04.com.example:web"]);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the daemon ends well");
        }
    }
}

pub(crate) fn run_in(dir: PathBuf, arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    Outcome {
        code: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// Returns the disks `r0`… of the lab, in two enclosures.
fn racked(socket: &Path) -> BTreeMap<String, DiskFacts> {
    let disk = |n: usize| {
        let path = socket.with_file_name(format!("r{n}.img")).to_string_lossy().into_owned();
        let facts = DiskFacts {
            serial: Some(format!("ZL2A{n:04}")),
            model: Some("ST12000NM001G".to_owned()),
            enclosure: Some(if n < 3 { "top" } else { "bottom" }.to_owned()),
            slot: Some((n % 3).to_string()),
            has_light: true,
            ..DiskFacts::default()
        };
        (path, facts)
    };
    (0..6).map(disk).collect()
}

fn refused() -> RefusedLogin {
    RefusedLogin {
        initiator: Some("iqn.1993-08.org.debian:01:new".to_owned()),
        address: "10.0.0.21".parse().expect("an address"),
        target: Some("iqn.2026-11.io.blockyard:array1".to_owned()),
        reason: RefusedWhy::UnknownInitiator,
        status: "authorization failure (0202)".to_owned(),
        delay_ms: 0,
        count: 12,
        last: Timestamp::from_unix(1_795_000_000),
    }
}

fn connection(cid: u16) -> ConnectionReport {
    ConnectionReport {
        cid,
        address: format!("10.0.0.20:{}", 51514 + cid).parse().expect("an address"),
        portal: "10.0.0.1:3260".parse().expect("an address"),
        state: if cid == 0 { ConnectionState::Open } else { ConnectionState::Lost },
        header_digest: true,
        data_digest: true,
    }
}

fn session() -> SessionReport {
    SessionReport {
        id: 1,
        kind: SessionKind::Normal,
        initiator: "iqn.1993-08.org.debian:01:abc123".to_owned(),
        isid: "023d00000001".to_owned(),
        host: Some("web".parse().expect("a name")),
        address: "10.0.0.20:51514".parse().expect("an address"),
        portal: "10.0.0.1:3260".parse().expect("an address"),
        target: Some("iqn.2026-11.io.blockyard:array1".to_owned()),
        luns: vec![0],
        reservations: Vec::new(),
        header_digest: true,
        data_digest: true,
        authentication: "CHAP SHA3-256".to_owned(),
        chap_user: Some("web".to_owned()),
        mutual: true,
        connections: [0, 1].map(connection).into(),
        negotiated: BTreeMap::from([("MaxBurstLength".to_owned(), "262144".to_owned())]),
        commands: 1_250_000,
        read_bytes: 3 << 30,
        written_bytes: 5 << 29,
        connected_seconds: 7_500,
    }
}

/// Removes progress and durations from `text`, which depend on the speed of the machine.
pub(crate) fn without_speed(text: &str) -> String {
    let cut = |line: &str| {
        let (first, _) = line.split_once("  ").unwrap_or((line, ""));
        if !first.is_empty() && [" running ", " stopped  ", " s   done "].iter().any(|state| line.contains(state)) {
            return format!("{first}  …");
        }
        for words in [" finished: ", " checked in", " stopped ", "  65536 "] {
            if let Some((before, _)) = line.split_once(words) {
                return format!("{before}{words} …");
            }
        }
        // Work that has just begun took zero seconds, or one on a busy machine.
        line.replace("Z  0 s  ", "Z  1 s  ")
    };
    let is_progress = |line: &str| {
        line.starts_with("  cleaning ")
            || line.contains(": rebuild ") && (line.contains(" left") || line.ends_with("time unknown"))
    };
    let lines = text.lines().filter(|line| !is_progress(line));
    lines.map(|line| cut(line) + "\n").collect()
}
