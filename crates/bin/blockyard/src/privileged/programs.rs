//! Programs that inspect disks: a fixed list with fixed arguments, a few at a time, each with limits of time and
//! output.

use super::request_socket::RequestSocket;
use super::verbs::Verbs;
use super::workers::{self, Workers};
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

/// Maximum number of programs. The daemon asks for one disk after another, and a disk may be added at the same time.
const AT_ONCE: usize = 4;
/// Timeout of `smartctl`: a disk that is spinning up answers late.
const HEALTH_PATIENCE: Duration = Duration::from_secs(60);
/// Timeout of the other programs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Limit of a program's output in bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Folders that programs are searched in. `PATH` is not used, since the caller controls it.
const PLACES: [&str; 5] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin"];

/// Program with its arguments and timeout.
pub(super) struct Run {
    program: &'static str,
    arguments: Vec<OsString>,
    patience: Duration,
}

impl Run {
    /// Reads the SMART data of the disk without waking it from standby.
    pub(super) fn smartctl(device: &Path) -> Self {
        let arguments = ["--json".into(), "--nocheck=standby".into(), "--all".into(), device.into()].into();
        Self { program: "smartctl", arguments, patience: HEALTH_PATIENCE }
    }

    /// Lists the signatures on the disk.
    pub(super) fn wipefs(path: &Path) -> Self {
        let arguments = ["--no-act".into(), "--json".into(), path.into()].into();
        Self { program: "wipefs", arguments, patience: PATIENCE }
    }

    /// Lists the signatures on the disk, if `wipefs` is missing.
    pub(super) fn blkid(path: &Path) -> Self {
        let arguments = ["--probe".into(), "--output".into(), "export".into(), path.into()].into();
        Self { program: "blkid", arguments, patience: PATIENCE }
    }
}

/// Programs that are running.
#[derive(Default)]
pub(super) struct Programs(JoinSet<()>);

impl Programs {
    /// Starts the program of `verb`, and answers the request when it has ended.
    pub(super) async fn start(
        &mut self,
        verbs: Arc<Verbs>,
        desks: Workers,
        verb: Verb,
        number: u32,
        line: &Arc<RequestSocket>,
    ) {
        // Reaps the ended tasks, so that the count below is of running ones.
        while self.0.try_join_next().is_some() {}
        if self.0.len() >= AT_ONCE {
            let outcome = Outcome::Failed { errno: Errno::AGAIN.raw_os_error() };
            return line.send(&Answer { number, outcome }, None).await;
        }
        let line = line.clone();
        self.0.spawn(async move {
            // Finding the path and judging it may block on the disk, so it runs on a worker thread.
            let asked = verb.clone();
            let run = desks.run_blocking(&verb, number, move || verbs.program_of(&asked)).await;
            let (outcome, output) = match run {
                Ok(Ok(run)) => match output_of(&run).await {
                    Ok((code, output)) => (Outcome::Ran { code }, Some(output)),
                    Err(errno) => workers::outcome_of(errno),
                },
                Ok(Err(outcome)) => (outcome, None),
                Err(errno) => workers::outcome_of(errno),
            };
            line.send(&Answer { number, outcome }, output.as_ref()).await;
        });
    }
}

/// Returns the exit code of the program, and its output as a memory file.
///
/// *Errors*: `NOENT` if it is not installed, `TIMEDOUT`, `MSGSIZE` for too much output, or the error of the system.
async fn output_of(run: &Run) -> Result<(i32, OwnedFd), Errno> {
    let program: Option<PathBuf> = PLACES.iter().map(|place| Path::new(place).join(run.program)).find(|at| at.exists());
    let mut command = Command::new(program.ok_or(Errno::NOENT)?);
    command.args(&run.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // The program runs with privileges, so it gets neither the environment nor the working directory of the helper's
    // caller.
    command.env_clear().current_dir("/").kill_on_drop(true);
    let errno = |error: std::io::Error| super::policy::errno_of(&error);
    let mut child = command.spawn().map_err(errno)?;
    let stdout = child.stdout.take().ok_or(Errno::IO)?;
    let answered = async {
        let mut output = Vec::new();
        // One byte beyond the limit tells a program that printed too much from one that reached it exactly.
        stdout.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut output).await?;
        if output.len() as u64 > OUTPUT_BYTES_MAX {
            return Ok(None);
        }
        // After the output: a program cannot exit while it waits for space in the pipe.
        child.wait().await.map(|status| Some((status, output)))
    };
    // Dropping the future kills the program (`kill_on_drop`).
    let (status, output) = match timeout(run.patience, answered).await {
        Err(_) => return Err(Errno::TIMEDOUT),
        Ok(ended) => ended.map_err(errno)?.ok_or(Errno::MSGSIZE)?,
    };
    // The daemon reads when it wants; a pipe is smaller than the limit, and would block the helper meanwhile.
    let mut file = File::from(memfd_create("output", MemfdFlags::CLOEXEC)?);
    // The descriptors of both processes share one offset, so it is set back to the start.
    file.write_all(&output).and_then(|()| file.rewind()).map_err(errno)?;
    // -1 for a program that was ended by a signal.
    Ok((status.code().unwrap_or(-1), file.into()))
}
