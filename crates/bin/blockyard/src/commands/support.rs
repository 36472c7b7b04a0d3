//! Command `blockyard support bundle`: one file with everything needed to analyze the array.

use super::new_file::NewFile;
use super::{CommandContext, doctor};
use crate::args::SupportCommand;
use crate::failure::Failure;
use api::DaemonLog;
use model::{Refusal, StatusReport, Timestamp, code};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Requests of the bundle: name of the file, path, key of the answer.
const ASKED: [(&str, &str, &str); 22] = [
    ("status.json", "/status", "status"),
    ("config.json", "/config", "config"),
    ("configs.json", "/config/versions", "configs"),
    ("disks.json", "/disks", "disks"),
    ("pools.json", "/pools", "pools"),
    ("volumes.json", "/volumes", "volumes"),
    ("snapshots.json", "/snapshots", "snapshots"),
    ("hosts.json", "/hosts", "hosts"),
    ("groups.json", "/groups", "groups"),
    ("auth.json", "/auth", "auth"),
    ("targets.json", "/targets", "targets"),
    ("presentations.json", "/presentations", "presentations"),
    ("sessions.json", "/sessions", "sessions"),
    ("refused.json", "/refused", "refused"),
    ("portals.json", "/portals", "portals"),
    ("portal-groups.json", "/portal-groups", "portal_groups"),
    ("isns.json", "/isns", "isns"),
    ("operations.json", "/operations", "operations"),
    ("alerts.json", "/alerts", "alerts"),
    ("receivers.json", "/receivers", "receivers"),
    ("events.json", "/events", "events"),
    ("activity.json", "/activity?limit=1000", "rates"),
];

/// Files with facts of the machine and its kernel.
const FACTS: [&str; 9] = [
    "/etc/os-release",
    "/proc/version",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/net/dev",
    "/proc/partitions",
    "/proc/sys/kernel/io_uring_disabled",
];

/// Limit in bytes of one such file.
const FACT_BYTES_MAX: u64 = 1 << 20;

pub(super) fn run(desk: &CommandContext, command: SupportCommand) -> Result<(), Failure> {
    let SupportCommand::Bundle { to } = command;
    let status: StatusReport = desk.client.get("/status", "status")?.decode()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let name = format!("blockyard-{}-{}", status.node, Timestamp::from_unix(now).to_string().replace(['-', ':'], ""));
    let to = to.unwrap_or_else(|| PathBuf::from(format!("{name}.tar")));
    let mut bundle = Bundle { folder: name, now, tar: tar::Builder::new(Vec::new()) };
    fill(desk, &mut bundle).map_err(|error| {
        Refusal::new(code::IO_FAILED, format!("the support bundle cannot be created: {error}"), "report this as a bug")
    })?;
    let bytes = bundle.tar.into_inner().unwrap_or_default();
    let mut file = NewFile::at(&to);
    let saved = file.put(&bytes);
    if file.is_saved(saved)? && !file.is_stdout() {
        desk.out
            .said(&format!("support bundle written to {}; review it with tar before you share it", to.display()))?;
    }
    Ok(())
}

/// Bundle in memory: the reports of the largest array take some megabytes.
struct Bundle {
    folder: String,
    now: u64,
    tar: tar::Builder<Vec<u8>>,
}

impl Bundle {
    fn add(&mut self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        // Only its owner may read the unpacked files: they name hosts and addresses.
        header.set_mode(0o600);
        header.set_mtime(self.now);
        self.tar.append_data(&mut header, Path::new(&self.folder).join(name), bytes)
    }
}

/// Adds all files; a request that failed leaves its error in place of the report.
fn fill(desk: &CommandContext, bundle: &mut Bundle) -> std::io::Result<()> {
    // A broken array must still yield a bundle, so no failure ends it.
    for (name, path, key) in ASKED {
        let text = match desk.client.get(path, key) {
            Ok(answer) => format!("{:#}\n", answer.whole),
            Err(failure) => format!("{failure:?}\n"),
        };
        bundle.add(name, text.as_bytes())?;
    }
    let mut metrics = Vec::new();
    let taken = desk.client.fetch("/metrics", |bytes| {
        metrics.extend_from_slice(bytes);
        Ok(())
    });
    // A part of the text would look like a complete report of fewer metrics.
    if taken.is_ok() {
        bundle.add("metrics.txt", &metrics)?;
    }
    let log = desk.client.get("/log?limit=2000", "log").and_then(|answer| answer.decode());
    // The error is kept in the file, since it may be the reason for the bundle.
    let log = log.map_or_else(|failure| format!("{failure:?}\n"), |log: DaemonLog| super::log::text(&log));
    bundle.add("daemon.log", log.as_bytes())?;
    bundle.add("doctor.json", doctor::told(desk).as_bytes())?;
    for path in FACTS {
        if let Some(fact) = fact(Path::new(path)) {
            bundle.add(&format!("machine{path}"), &fact)?;
        }
    }
    // Only for a daemon on this machine, whose process can be inspected.
    if let Some(pid) = desk.client.pid() {
        for name in ["limits", "status", "cgroup", "oom_score_adj"] {
            if let Some(fact) = fact(Path::new(&format!("/proc/{pid}/{name}"))) {
                bundle.add(&format!("daemon/{name}"), &fact)?;
            }
        }
    }
    Ok(())
}

fn fact(path: &Path) -> Option<Vec<u8>> {
    // Bounded while it is read, because files of `/proc` report no size.
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(FACT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
