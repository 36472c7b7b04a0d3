//! SMART health of local disks, read with `smartctl` of smartmontools once an hour, one disk at a time.
//!
//! Without that program, and for files, health is unknown. A disk in standby is not woken.

pub(crate) mod smart;

use crate::core::Core;
use crate::privileged::{Privileged, Program};
use crate::system::now;
use model::{DiskHealth, DiskName, Refusal, Subject, event};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Interval between two rounds.
const ROUND: Duration = Duration::from_secs(3600);
/// Delay of the first round after the start, which has enough to do.
const FIRST: Duration = Duration::from_secs(20);
/// Time limit for one disk.
const SMARTCTL_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit on the output of `smartctl` in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// SMART health of the disks.
pub struct Health {
    core: Arc<Core>,
    known: Mutex<BTreeMap<DiskName, DiskHealth>>,
}

impl Health {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, known: Mutex::default() }
    }

    /// Returns the last known health of the disk.
    pub(crate) fn of(&self, disk: &DiskName) -> Option<DiskHealth> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(disk).cloned()
    }

    /// Drops the health of a removed disk.
    pub(crate) fn forget(&self, disk: &DiskName) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(disk);
    }

    /// Polls the health of disks until the daemon stops.
    pub async fn watch(self: Arc<Self>) {
        let mut stopping = self.core.stopping.subscribe();
        let mut wait = FIRST;
        loop {
            tokio::select! {
                () = sleep(wait) => {}
                () = crate::system::stopped(&mut stopping) => return,
            }
            wait = ROUND;
            self.poll(&program()).await;
        }
    }

    /// Polls every local disk; a new complaint raises an event.
    pub(crate) async fn poll(&self, program: &Path) {
        let disks: Vec<(DiskName, PathBuf)> = self
            .core
            .state()
            .disks
            .iter()
            // The array that exports a remote disk monitors its health.
            .filter(|(_, it)| it.remote.is_none())
            .map(|(name, record)| (name.clone(), PathBuf::from(&record.path)))
            .collect();
        for (name, path) in disks {
            let Some(device) = device_of(&path) else { continue };
            // A confined daemon lacks the privileges of `smartctl`; its helper runs it.
            let asked = match self.core.privileged() {
                Some(helper) => ask_privileged(helper, &path).await,
                None => ask(program, &device).await,
            };
            match asked {
                Ok(Some(health)) => self.note(name, health),
                Ok(None) => {}
                Err(refusal) => tracing::info!(disk = %name, %refusal, "the health of a disk is unknown"),
            }
        }
    }

    fn note(&self, name: DiskName, health: DiskHealth) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.insert(name.clone(), health.clone());
        // Not held while the event is written to disk.
        drop(known);
        let news: Vec<String> = match before {
            Some(before) => {
                let old = before.complaints();
                // Each complaint is reported once, when it first appears.
                health.complaints().into_iter().filter(|complaint| !old.contains(complaint)).collect()
            }
            None => health.complaints(),
        };
        if news.is_empty() {
            return;
        }
        let (code, advice) = if health.is_failing() {
            (event::DISK_FAILING, "replace it before it fails")
        } else {
            (event::DISK_WEARS, "keep a replacement ready")
        };
        self.core.raise(code, Subject::disk(&name), format!("disk {name}: {}; {advice}", news.join(", ")));
    }
}

/// Returns the path of `smartctl`, which is often not in the search path of users other than root.
fn program() -> PathBuf {
    let places = ["/usr/sbin/smartctl", "/usr/bin/smartctl", "/usr/local/sbin/smartctl"];
    places.iter().map(PathBuf::from).find(|place| place.exists()).unwrap_or_else(|| "smartctl".into())
}

/// Returns the whole device behind a path; `None` for a file or a missing path.
fn device_of(path: &Path) -> Option<PathBuf> {
    if !fs::metadata(path).ok()?.file_type().is_block_device() {
        return None;
    }
    let device = fs::canonicalize(path).ok()?;
    let entry = fs::canonicalize(Path::new("/sys/class/block").join(device.file_name()?)).ok()?;
    // `smartctl` addresses whole devices, not partitions.
    // In sysfs the folder of a partition lies in that of its device.
    let whole = if entry.join("partition").exists() { entry.parent()?.file_name()? } else { entry.file_name()? };
    Some(Path::new("/dev").join(whole))
}

/// Runs `smartctl` for the device; `None` where the program is not installed, or the disk is in standby.
///
/// *Errors*: the program fails, or its output cannot be parsed.
async fn ask(program: &Path, device: &Path) -> Result<Option<DiskHealth>, Refusal> {
    // `--nocheck=standby` leaves a sleeping disk asleep.
    let asked: [OsString; 4] = ["--json".into(), "--nocheck=standby".into(), "--all".into(), device.into()];
    let mut command = Command::new(program);
    // Killed when the future is dropped, as after the time limit.
    command.args(asked).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let child = match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(format!("smartctl cannot be started: {error}"))),
        Ok(child) => child,
    };
    let (status, answer) = match timeout(SMARTCTL_TIMEOUT, answer_of(child)).await {
        Err(_) => return Err(failed(format!("{} timed out", device.display()))),
        Ok(Err(error)) => {
            return Err(failed(format!("smartctl output for {} cannot be read: {error}", device.display())));
        }
        Ok(Ok(answered)) => answered,
    };
    understood(status.code(), &answer)
}

/// Runs `smartctl` through the privileged helper.
async fn ask_privileged(helper: Arc<dyn Privileged>, path: &Path) -> Result<Option<DiskHealth>, Refusal> {
    match crate::privileged::run(helper, Program::Smartctl, path).await {
        Ok(ran) => understood(ran.code, &ran.output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(format!("smartctl cannot read {}: {error}", path.display()))),
    }
}

/// Interprets exit code and output; `None` for a disk in standby.
fn understood(code: Option<i32>, answer: &[u8]) -> Result<Option<DiskHealth>, Refusal> {
    if !could_ask(code) {
        // A disk in standby is no error: its last known health stays.
        return if smart::is_asleep(answer) { Ok(None) } else { Err(failed(smart::why(answer))) };
    }
    smart::parse(answer, now()).map(Some).map_err(failed)
}

fn failed(why: String) -> Refusal {
    Refusal::new(model::code::IO_FAILED, why, "run smartctl by hand to see why")
}

/// Collects the output and the exit status. A child that prints too much is killed when it is dropped.
async fn answer_of(mut child: Child) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    let mut answer = Vec::new();
    if let Some(output) = child.stdout.take() {
        // One byte beyond the limit tells output that is too long from output of exactly the limit.
        output.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut answer).await?;
    }
    if answer.len() as u64 > ANSWER_BYTES_MAX {
        return Err(std::io::Error::other(format!("its output exceeds {ANSWER_BYTES_MAX} bytes")));
    }
    // Only now: a child with a full pipe would never exit.
    Ok((child.wait().await?, answer))
}

/// Returns true if the disk was read: bits 0 and 1 report a usage error and a device that cannot be opened, the
/// others the health of the disk. *Source*: smartctl(8), "EXIT STATUS".
fn could_ask(code: Option<i32>) -> bool {
    code.is_some_and(|code| code & 3 == 0)
}

#[cfg(test)]
mod tests;
