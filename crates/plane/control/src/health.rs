//! What real disks say of their health: SMART, by smartmontools' `smartctl`, once an hour and one disk after the other.
//!
//! Without that program, and of files, nothing is known. A disk that sleeps is not woken.

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

/// How often disks are asked.
const ROUND: Duration = Duration::from_secs(3600);
/// How long after the start they are asked first: there is enough to do then.
const FIRST: Duration = Duration::from_secs(20);
/// How long a disk may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most that is read of an answer.
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

    /// What is known of this disk.
    pub(crate) fn of(&self, disk: &DiskName) -> Option<DiskHealth> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(disk).cloned()
    }

    /// The disk is not known any more.
    pub(crate) fn forget(&self, disk: &DiskName) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(disk);
    }

    /// Asks disks for their health until the daemon stops.
    pub async fn watch(self: Arc<Self>) {
        let mut stopping = self.core.stopping.subscribe();
        let mut wait = FIRST;
        loop {
            tokio::select! {
                () = sleep(wait) => {}
                () = crate::system::stopped(&mut stopping) => return,
            }
            wait = ROUND;
            self.look(&program()).await;
        }
    }

    /// Every disk that is there was asked, and what is worse than before is an event.
    pub(crate) async fn look(&self, program: &Path) {
        let disks: Vec<(DiskName, PathBuf)> = self
            .core
            .state()
            .disks
            .iter()
            .filter(|(_, it)| it.remote.is_none())
            .map(|(name, record)| (name.clone(), PathBuf::from(&record.path)))
            .collect();
        for (name, path) in disks {
            let Some(device) = device_of(&path) else { continue };
            let asked = match self.core.privileged() {
                Some(helper) => ask_privileged(helper, &path).await,
                None => ask(program, &device).await,
            };
            match asked {
                Ok(Some(health)) => self.note(name, health),
                Ok(None) => {}
                Err(refusal) => tracing::info!(disk = %name, %refusal, "the health of a disk is not known"),
            }
        }
    }

    fn note(&self, name: DiskName, health: DiskHealth) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.insert(name.clone(), health.clone());
        drop(known);
        let news: Vec<String> = match before {
            Some(before) => {
                let old = before.complaints();
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
            (event::DISK_WEARS, "have a spare ready")
        };
        self.core.raise(code, Subject::disk(&name), format!("disk {name}: {}; {advice}", news.join(", ")));
    }
}

/// Where `smartctl` is; it is often not in the path of those who are not root.
fn program() -> PathBuf {
    let places = ["/usr/sbin/smartctl", "/usr/bin/smartctl", "/usr/local/sbin/smartctl"];
    places.iter().map(PathBuf::from).find(|place| place.exists()).unwrap_or_else(|| "smartctl".into())
}

/// The whole device behind a path; none of a file, or where nothing is.
fn device_of(path: &Path) -> Option<PathBuf> {
    if !fs::metadata(path).ok()?.file_type().is_block_device() {
        return None;
    }
    let device = fs::canonicalize(path).ok()?;
    let entry = fs::canonicalize(Path::new("/sys/class/block").join(device.file_name()?)).ok()?;
    let whole = if entry.join("partition").exists() { entry.parent()?.file_name()? } else { entry.file_name()? };
    Some(Path::new("/dev").join(whole))
}

/// What the disk says; none where the program is not installed, or the disk sleeps.
///
/// *Errors*: the program fails or says what cannot be understood.
async fn ask(program: &Path, device: &Path) -> Result<Option<DiskHealth>, Refusal> {
    let asked: [OsString; 4] = ["--json".into(), "--nocheck=standby".into(), "--all".into(), device.into()];
    let mut command = Command::new(program);
    command.args(asked).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let child = match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(format!("smartctl cannot be started: {error}"))),
        Ok(child) => child,
    };
    let (status, answer) = match timeout(PATIENCE, answer_of(child)).await {
        Err(_) => return Err(failed(format!("{} does not answer in time", device.display()))),
        Ok(Err(error)) => return Err(failed(format!("smartctl cannot be heard of {}: {error}", device.display()))),
        Ok(Ok(answered)) => answered,
    };
    understood(status.code(), &answer)
}

/// As [`ask`], through the privileged helper.
async fn ask_privileged(helper: Arc<dyn Privileged>, path: &Path) -> Result<Option<DiskHealth>, Refusal> {
    match crate::privileged::run(helper, Program::Smartctl, path).await {
        Ok(ran) => understood(ran.code, &ran.output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(format!("smartctl cannot be asked about {}: {error}", path.display()))),
    }
}

/// What the program says of the disk; none where that sleeps.
fn understood(code: Option<i32>, answer: &[u8]) -> Result<Option<DiskHealth>, Refusal> {
    if !could_ask(code) {
        return if smart::is_asleep(answer) { Ok(None) } else { Err(failed(smart::why(answer))) };
    }
    smart::parse(answer, now()).map(Some).map_err(failed)
}

fn failed(why: String) -> Refusal {
    Refusal::new(model::code::IO_FAILED, why, "run smartctl by hand to see why")
}

/// How the program ended, and what it said until then. One that says too much is killed when it is dropped.
async fn answer_of(mut child: Child) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    let mut answer = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut answer).await?;
    }
    if answer.len() as u64 > ANSWER_BYTES_MAX {
        return Err(std::io::Error::other(format!("it says more than {ANSWER_BYTES_MAX} bytes")));
    }
    Ok((child.wait().await?, answer))
}

/// The two lowest bits say that the question was wrong or the device could not be opened; the others are about the disk.
/// *Source*: smartctl(8), "EXIT STATUS".
fn could_ask(code: Option<i32>) -> bool {
    code.is_some_and(|code| code & 3 == 0)
}

#[cfg(test)]
mod tests;
