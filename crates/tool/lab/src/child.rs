//! Child processes: run to their end within a time limit, or in the background and ended by their own process ID.

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Limit of a program's output in bytes, beyond which it counts as endless.
const SAID_BYTES_MAX: u64 = 64 << 20;
/// Interval at which the output is measured.
const LOOK: Duration = Duration::from_millis(20);

/// Result of a program with a time limit.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; `None` if it was killed for exceeding the time or output limit.
    pub status: Option<ExitStatus>,
    /// Standard output and standard error, interleaved in order.
    pub said: String,
}

impl Ended {
    /// Returns true if it ended by itself with success.
    pub fn well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Waits for the end of the child; false if `limit` passed first, or the output in `said` exceeded its limit.
fn ends_within(child: &Child, limit: Duration, said: Option<&fs::File>) -> Result<bool> {
    // A pidfd: unlike `waitpid` it has a timeout, and unlike a signal handler it needs no global state.
    let fd = pidfd_open(pid_of(child), PidfdFlags::empty()).context("cannot watch a child")?;
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Short steps, since a program that prints endlessly would fill the memory before its time limit.
        let step = left.min(LOOK);
        let timeout = Timespec { tv_sec: i64::try_from(step.as_secs())?, tv_nsec: step.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) if said.is_some_and(|said| said.metadata().is_ok_and(|it| it.len() > SAID_BYTES_MAX)) => {
                return Ok(false);
            }
            Ok(0) => {}
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for a child"),
        }
    }
}

/// Runs the program until it ends, or until `limit` has passed and its process group is killed.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<Ended> {
    // A file instead of a pipe: the child never blocks on it, and no thread has to read it.
    let mut said = nameless_file()?;
    // A process group of its own, so that children of the program can be killed with it.
    // Without input: a program that asks a question must fail and not wait for the terminal.
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?).process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let in_time = ends_within(&child, limit, Some(&said))?;
    // Kills the remaining processes of its group.
    let _ = kill_process_group(pid_of(&child), Signal::KILL);
    // Waited for in any case, so that no zombie remains.
    let status = child.wait()?;
    said.rewind()?;
    let mut bytes = Vec::new();
    // The output may have grown beyond its limit between two looks.
    said.take(SAID_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Ended { status: in_time.then_some(status), said: String::from_utf8_lossy(&bytes).into_owned() })
}

/// Runs this program again with `--inside` in a network namespace of its own; returns its success.
pub fn again_in_own_network() -> Result<bool> {
    let status = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .status()
        .context("cannot start unshare")?;
    Ok(status.success())
}

/// Returns the output of a program that must succeed within `limit`.
pub fn output_of(command: &mut Command, limit: Duration) -> Result<String> {
    let ended = run_within(command, limit)?;
    if !ended.well() {
        let how = ended.status.map_or_else(|| format!("did not end within {limit:?}"), |status| status.to_string());
        bail!("{command:?}: {how}: {}", ended.said.trim());
    }
    Ok(ended.said)
}

/// Creates an anonymous file in memory.
fn nameless_file() -> Result<fs::File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(memfd_create("said", MemfdFlags::CLOEXEC).context("cannot make a place for output")?.into())
}

/// Background process, ended on drop.
#[derive(Debug)]
pub struct Background {
    child: Child,
    name: String,
}

impl Background {
    /// Starts the program with its output appended to `log`.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        // Appended, so that a daemon that is started again continues its log.
        let out = fs::OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, name })
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns true while the process is running.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the process by SIGKILL, which it cannot handle, like a power loss.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks the process to end by SIGTERM, and waits up to `limit`.
    pub fn stop(&mut self, limit: Duration) -> Result<ExitStatus> {
        // The PID of a process that has ended and was collected may belong to another one.
        if self.is_alive() {
            kill_process(pid_of(&self.child), Signal::TERM)?;
            if !ends_within(&self.child, limit, None)? {
                self.kill()?;
                bail!("{} did not stop within {limit:?} of SIGTERM", self.name);
            }
        }
        // Also collects the status of a process that has ended by itself.
        Ok(self.child.wait()?)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // An error was reported elsewhere, or no longer matters.
        let _ = self.stop(Duration::from_secs(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_ends_in_time_hands_back_its_words_and_status() {
        let ended =
            run_within(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]), Duration::from_secs(10));
        let ended = ended.unwrap();
        assert_eq!(ended.said, "out\nerr\n");
        assert_eq!(ended.status.unwrap().code(), Some(3));
    }

    #[test]
    fn program_that_hangs_is_killed_with_its_children() {
        let begin = Instant::now();
        let ended =
            run_within(Command::new("sh").args(["-c", "sleep 30 & sleep 30"]), Duration::from_millis(200)).unwrap();
        assert!(ended.status.is_none());
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn program_that_writes_without_end_is_killed() {
        let ended = run_within(Command::new("cat").arg("/dev/zero"), Duration::from_secs(60)).unwrap();
        assert!(ended.status.is_none());
        assert!(ended.said.len() as u64 <= SAID_BYTES_MAX);
    }

    #[test]
    fn program_in_the_background_ends_when_it_is_dropped() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut sleeper = Background::start(Command::new("sleep").arg("30"), log.path()).unwrap();
        assert!(sleeper.is_alive());
        let place = format!("/proc/{}", sleeper.pid());
        drop(sleeper);
        assert!(!Path::new(&place).exists());
    }
}
