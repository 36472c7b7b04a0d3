//! Programs that look at disks: a fixed list, with fixed arguments, at most a few at a time, each with a limit on time and output.

use super::desks::{self, Desks};
use super::line::Line;
use super::verbs::Verbs;
use privilege::{Answer, Outcome, Verb};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Programs at a time: disks are asked one after the other, and a disk is added beside that.
const AT_ONCE: usize = 4;
/// How long `smartctl` may take: a disk that spins up takes long to answer.
const HEALTH_PATIENCE: Duration = Duration::from_secs(60);
/// How long the others may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most that is read of what a program prints.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Where programs are. The path of the environment is not asked.
const PLACES: [&str; 5] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin"];

/// One program with its arguments.
pub(super) struct Run {
    program: &'static str,
    arguments: Vec<OsString>,
    patience: Duration,
}

impl Run {
    /// What the disk says of its health, without waking it.
    pub(super) fn smartctl(device: &Path) -> Self {
        let arguments = ["--json".into(), "--nocheck=standby".into(), "--all".into(), device.into()].into();
        Self { program: "smartctl", arguments, patience: HEALTH_PATIENCE }
    }

    /// Which signatures are on the disk.
    pub(super) fn wipefs(path: &Path) -> Self {
        let arguments = ["--no-act".into(), "--json".into(), path.into()].into();
        Self { program: "wipefs", arguments, patience: PATIENCE }
    }

    /// The same, as another program says it.
    pub(super) fn blkid(path: &Path) -> Self {
        let arguments = ["--probe".into(), "--output".into(), "export".into(), path.into()].into();
        Self { program: "blkid", arguments, patience: PATIENCE }
    }
}

/// The programs that run now.
#[derive(Default)]
pub(super) struct Programs(JoinSet<()>);

impl Programs {
    /// The program runs, and answers the request when it has ended.
    pub(super) async fn start(&mut self, verbs: Arc<Verbs>, desks: Desks, verb: Verb, number: u32, line: &Arc<Line>) {
        while self.0.try_join_next().is_some() {}
        if self.0.len() >= AT_ONCE {
            let outcome = Outcome::Failed { errno: Errno::AGAIN.raw_os_error() };
            return line.send(&Answer { number, outcome }, None).await;
        }
        let line = line.clone();
        self.0.spawn(async move {
            let asked = verb.clone();
            let run = desks.carry(&verb, number, move || verbs.program_of(&asked)).await;
            let (outcome, output) = match run {
                Ok(Ok(run)) => match output_of(&run).await {
                    Ok((code, output)) => (Outcome::Ran { code }, Some(output)),
                    Err(errno) => desks::outcome_of(errno),
                },
                Ok(Err(outcome)) => (outcome, None),
                Err(errno) => desks::outcome_of(errno),
            };
            line.send(&Answer { number, outcome }, output.as_ref()).await;
        });
    }
}

/// The exit code of the program, and what it printed.
///
/// *Errors*: `NOENT` where it is not installed, `TIMEDOUT`, `MSGSIZE`, what the system says.
async fn output_of(run: &Run) -> Result<(i32, OwnedFd), Errno> {
    let program: Option<PathBuf> = PLACES.iter().map(|place| Path::new(place).join(run.program)).find(|at| at.exists());
    let mut command = Command::new(program.ok_or(Errno::NOENT)?);
    command.args(&run.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // What the daemon was started with is nothing for a program that runs with privileges.
    command.env_clear().current_dir("/").kill_on_drop(true);
    let errno = |error: std::io::Error| super::policy::errno_of(&error);
    let mut child = command.spawn().map_err(errno)?;
    let stdout = child.stdout.take().ok_or(Errno::IO)?;
    let answered = async {
        let mut output = Vec::new();
        stdout.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut output).await?;
        if output.len() as u64 > OUTPUT_BYTES_MAX {
            return Ok(None);
        }
        child.wait().await.map(|status| Some((status, output)))
    };
    let (status, output) = match timeout(run.patience, answered).await {
        Err(_) => return Err(Errno::TIMEDOUT),
        Ok(ended) => ended.map_err(errno)?.ok_or(Errno::MSGSIZE)?,
    };
    let mut file = File::from(memfd_create("output", MemfdFlags::CLOEXEC)?);
    file.write_all(&output).and_then(|()| file.rewind()).map_err(errno)?;
    Ok((status.code().unwrap_or(-1), file.into()))
}
