//! Debian that runs its own systemd in namespaces of its own.

use super::done;
use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use lab::child::{Background, run_within};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(200);

/// Running Debian; it is stopped and its files are deleted on drop.
pub(super) struct Machine {
    // Dropped before the files from which it runs.
    unshare: Background,
    scratch: TempDir,
    first: String,
    begun: Instant,
}

impl Machine {
    /// Boots a copy of `clean`.
    pub(super) fn boot(clean: &Path) -> Result<Self> {
        let begun = Instant::now();
        let parent = clean.parent().context("the clean root lies in a folder")?;
        let scratch = tempfile::Builder::new().prefix("trial-").tempdir_in(parent)?;
        done(Command::new("cp").args(["-a", "--reflink=auto"]).arg(clean).arg(scratch.path().join("root")))?;
        let mut command = Command::new("unshare");
        command
            // Every namespace except the network: this process already has one of its own.
            .args(["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"])
            .arg(workspace::root().join("tests/package/boot"))
            .arg(scratch.path().join("root"));
        let unshare = Background::start(&mut command, &scratch.path().join("boot.log"))?;
        // The first process of the new namespace is the only child of `unshare`.
        let children = PathBuf::from(format!("/proc/{0}/task/{0}/children", unshare.pid()));
        let mut machine = Self { unshare, scratch, first: String::new(), begun };
        machine.first = loop {
            let text = fs::read_to_string(&children).unwrap_or_default();
            if let Some(first) = text.split_whitespace().next() {
                break first.to_owned();
            }
            machine.not_too_long("its first process")?;
        };
        // A service that cannot run in a namespace makes the state `degraded`.
        let booted = |state: &str| ["running", "degraded"].contains(&state);
        while !booted(machine.run("systemctl is-system-running")?.1.trim()) {
            machine.not_too_long("systemd")?;
        }
        Ok(machine)
    }

    fn not_too_long(&mut self, what: &str) -> Result<()> {
        std::thread::sleep(STEP);
        let log = fs::read_to_string(self.scratch.path().join("boot.log")).unwrap_or_default();
        ensure!(self.unshare.is_alive(), "the clean Debian ended while it was booted: {log}");
        ensure!(self.begun.elapsed() < PATIENCE, "the clean Debian does not boot, {what} is missing: {log}");
        Ok(())
    }

    /// Returns the time since the start of the boot.
    pub(super) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("root")
    }

    /// Runs a command in the machine; returns whether it succeeded, and its output.
    fn run(&self, command: &str) -> Result<(bool, String)> {
        let mut enter = Command::new("nsenter");
        enter
            .args(["--target", &self.first, "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--"])
            .args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"])
            .arg("chroot")
            .arg(self.root())
            .args(["sh", "-c", command]);
        let ended = run_within(&mut enter, PATIENCE)?;
        Ok((ended.well(), ended.said))
    }

    /// Runs a command in the machine and returns its output.
    ///
    /// *Errors*: the command failed.
    pub(super) fn sh(&self, command: &str) -> Result<String> {
        match self.run(command)? {
            (true, said) => Ok(said),
            (false, said) => {
                let (_, log) = self.run("journalctl -u blockyard --no-pager -o cat -n 20")?;
                bail!("{command}: {said}\nthe daemon's last words: {log}")
            }
        }
    }

    /// True when the path exists in the machine.
    pub(super) fn has(&self, path: &str) -> bool {
        self.root().join(path.trim_start_matches('/')).exists()
    }

    /// Copies a file into the machine and returns its path there.
    pub(super) fn take(&self, file: &Path) -> Result<String> {
        let name = file.file_name().context("a package has a name")?.to_string_lossy().into_owned();
        fs::copy(file, self.root().join("root").join(&name))?;
        Ok(format!("/root/{name}"))
    }

    /// Installs a package in the machine, by apt and without network.
    pub(super) fn install(&self, package: &str) -> Result<()> {
        let options = "-y --no-install-recommends --allow-downgrades -o Dpkg::Options::=--force-confold";
        self.sh(&format!("apt-get install {options} {package}")).map(drop)
    }

    /// Returns the process ID of the daemon; `0` when it does not run.
    pub(super) fn main_pid(&self) -> Result<String> {
        Ok(self.sh("systemctl show -p MainPID --value blockyard")?.trim().to_owned())
    }

    /// Waits until the unit is active, that is, until its program has reported readiness.
    pub(super) fn await_active(&self, unit: &str) -> Result<()> {
        self.await_that("the unit to be active", || Ok(self.run(&format!("systemctl is-active {unit}"))?.0))
    }

    /// Waits until a condition holds.
    pub(super) fn await_that(&self, what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !is_so()? {
            if begun.elapsed() > PATIENCE {
                let (_, log) = self.run("systemctl status --no-pager -l -n 30 blockyard")?;
                bail!("waited in vain for {what}: {log}");
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Returns every file, folder and link of the machine.
    pub(super) fn files(&self) -> Result<BTreeSet<String>> {
        // The copied packages and temporary files are no leftovers of an installation.
        let listed = self.sh("find / -xdev -path /root -prune -o -path /tmp -prune -o -print")?;
        Ok(listed.lines().map(str::to_owned).collect())
    }
}
