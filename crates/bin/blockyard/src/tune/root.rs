//! Where the machine is looked at: `/`, or a folder that stands for it.

use bounded::excerpt;
use lab::child::run_within;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long `ethtool` may take.
const ETHTOOL_LIMIT: Duration = Duration::from_secs(10);

/// The folder that holds `proc`, `sys`, `dev` and `etc`.
#[derive(Clone, Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// This machine for `/`, else a picture of one: `ethtool` is not run for it, but read from `ethtool/OPTION/INTERFACE`.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// True for the machine that we run on.
    pub(crate) fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where `path`, with or without its first slash, is.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }

    /// What stands in a file, trimmed; none where it cannot be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_owned())
    }

    /// The number in a file.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// True when there is such a file or folder.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a folder: numbers by their size, others by their letters.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_by_key(|name| (trailing_number(name), name.clone()));
        names
    }

    /// The file, which is there, holds `value`.
    ///
    /// *Errors*: what the system says.
    pub(crate) fn write(&self, path: &str, value: &str) -> io::Result<()> {
        // The kernel takes a value in one write.
        OpenOptions::new().write(true).truncate(!self.is_real()).open(self.path(path))?.write_all(value.as_bytes())
    }

    /// What `ethtool OPTION INTERFACE` prints; none where it cannot say it, or is not installed.
    pub(crate) fn ethtool(&self, option: &str, interface: &str) -> Option<String> {
        if !self.is_real() {
            return self.text(&format!("ethtool/{option}/{interface}"));
        }
        let ended = run_within(ethtool().args([option, interface]), ETHTOOL_LIMIT).ok()?;
        ended.status.is_some_and(|status| status.success()).then_some(ended.said)
    }

    /// `ethtool` has done this.
    ///
    /// *Errors*: what it says.
    pub(crate) fn run_ethtool(&self, words: &[&str]) -> io::Result<()> {
        if !self.is_real() {
            return Err(io::Error::other("a picture of a machine has no ethtool"));
        }
        let ended = run_within(ethtool().args(words), ETHTOOL_LIMIT).map_err(io::Error::other)?;
        match ended.status {
            Some(status) if status.success() => Ok(()),
            Some(_) => Err(io::Error::other(excerpt(ended.said.lines().next().unwrap_or("ethtool refused")))),
            None => Err(io::Error::other("ethtool does not end")),
        }
    }
}

/// The program, also where the path of a user does not name its folder.
fn ethtool() -> Command {
    let usual = Path::new("/usr/sbin/ethtool");
    Command::new(if usual.exists() { usual } else { Path::new("ethtool") })
}

/// The number that a name ends with.
pub(super) fn trailing_number(name: &str) -> Option<u64> {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name.get(name.len() - digits..)?.parse().ok()
}
