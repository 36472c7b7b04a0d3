//! Root of the inspected machine: `/`, or a folder with a copy of its files.

use bounded::excerpt;
use lab::child::run_within;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Timeout of `ethtool`.
const ETHTOOL_LIMIT: Duration = Duration::from_secs(10);

/// Folder that contains `proc`, `sys`, `dev` and `etc`.
#[derive(Clone, Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// Inspects this machine for `/`, else a copy, for which `ethtool/OPTION/INTERFACE` is read instead of running
    /// `ethtool`.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns true for this machine.
    pub(crate) fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns the location of `path`, with or without its leading slash.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        // Joining an absolute path would replace the root.
        self.0.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }

    /// Reads a file, trimmed; none if it cannot be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_owned())
    }

    /// Reads the number in a file.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns true if the file or folder exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Lists the names in a folder, ordered by their trailing number, then alphabetically.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        // By number, so that queue 10 follows queue 9 and not queue 1.
        names.sort_by_key(|name| (trailing_number(name), name.clone()));
        names
    }

    /// Writes `value` to an existing file.
    ///
    /// *Errors*: the error of the system.
    pub(crate) fn write(&self, path: &str, value: &str) -> io::Result<()> {
        // The kernel requires the value in a single write, and its files cannot be truncated.
        OpenOptions::new().write(true).truncate(!self.is_real()).open(self.path(path))?.write_all(value.as_bytes())
    }

    /// Returns the output of `ethtool OPTION INTERFACE`; none if it fails or is not installed.
    pub(crate) fn ethtool(&self, option: &str, interface: &str) -> Option<String> {
        if !self.is_real() {
            return self.text(&format!("ethtool/{option}/{interface}"));
        }
        // Bounded in time, because a driver in trouble may not answer.
        let ended = run_within(ethtool().args([option, interface]), ETHTOOL_LIMIT).ok()?;
        ended.status.is_some_and(|status| status.success()).then_some(ended.said)
    }

    /// Runs `ethtool` with these arguments.
    ///
    /// *Errors*: its message.
    pub(crate) fn run_ethtool(&self, words: &[&str]) -> io::Result<()> {
        if !self.is_real() {
            return Err(io::Error::other("ethtool is not available in a recorded machine"));
        }
        let ended = run_within(ethtool().args(words), ETHTOOL_LIMIT).map_err(io::Error::other)?;
        match ended.status {
            Some(status) if status.success() => Ok(()),
            // One line suffices for a table cell, and foreign text is cut and cleaned.
            Some(_) => Err(io::Error::other(excerpt(ended.said.lines().next().unwrap_or("ethtool failed")))),
            None => Err(io::Error::other("ethtool timed out")),
        }
    }
}

/// Returns the command, also if its folder is not in a user's `PATH`.
fn ethtool() -> Command {
    let usual = Path::new("/usr/sbin/ethtool");
    Command::new(if usual.exists() { usual } else { Path::new("ethtool") })
}

/// Returns the number at the end of a name.
pub(super) fn trailing_number(name: &str) -> Option<u64> {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name.get(name.len() - digits..)?.parse().ok()
}
