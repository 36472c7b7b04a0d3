//! What the system below the array is set to, what would be better, why, and how it is set.
//!
//! All of it is read from `/proc`, `/sys` and `ethtool` below a [`Root`], so that a test can lay out any machine.

mod cpus;
mod disks;
pub(crate) mod host;
mod interfaces;
mod interrupts;
mod keep;
mod knobs;
mod network;
mod processors;
mod record;
mod root;
mod set;

pub(crate) use cpus::Cpus;
pub(crate) use keep::files as kept_files;
pub(crate) use knobs::Knob;
pub(crate) use record::{Entry, Record};
pub(crate) use root::Root;
pub(crate) use set::{Step, apply, entries, plan, revert};

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the array uses of the machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Array {
    /// Where its disks are.
    pub disks: Vec<PathBuf>,
    /// The interfaces that its portals are on, without the loopback.
    pub interfaces: Vec<String>,
    /// The daemon's process.
    pub pid: Option<u32>,
}

/// What is to be done about a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Nothing: it is well as it is.
    Ok,
    /// `tune apply` sets it.
    Change,
    /// It needs somebody's agreement or hands; `tune apply --only` sets it where there is something to set.
    Ask,
    /// It cannot be had on this machine.
    Cannot,
}

/// How a knob is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub(crate) enum Setting {
    /// The file below the root holds this value.
    File {
        /// Without the first slash, as in `sys/block/sda/queue/scheduler`.
        path: String,
        /// What is to stand in it.
        value: String,
    },
    /// `ethtool OPTION INTERFACE NAME VALUE`.
    Ethtool {
        /// Such as `-L`.
        option: String,
        /// Whose.
        interface: String,
        /// What of it, as in `combined`.
        name: String,
        /// What it is to be.
        value: String,
    },
}

/// One knob of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Advice {
    /// What it is, and why.
    #[serde(flatten)]
    pub knob: &'static Knob,
    /// Whose: a disk, an interface; empty for one of the machine.
    pub on: String,
    /// What it is now.
    pub now: String,
    /// What it should be; the same where nothing is to be done.
    pub wanted: String,
    /// What is to be done.
    pub verdict: Verdict,
    /// Who has to agree, or why it cannot be; empty where there is nothing to say.
    pub note: String,
    /// How it is set.
    pub settings: Vec<Setting>,
}

impl Advice {
    /// A knob that is well as it is.
    fn kept(knob: &'static Knob, on: &str, now: impl Into<String>) -> Self {
        let now = now.into();
        Self {
            knob,
            on: on.to_owned(),
            wanted: now.clone(),
            now,
            verdict: Verdict::Ok,
            note: String::new(),
            settings: Vec::new(),
        }
    }

    /// As this one, to be changed to `wanted` by `settings` unless it is that.
    fn to(self, wanted: impl Into<String>, settings: impl IntoIterator<Item = Setting>) -> Self {
        let wanted = wanted.into();
        if wanted == self.now {
            return self;
        }
        Self { wanted, verdict: Verdict::Change, settings: settings.into_iter().collect(), ..self }
    }

    /// As this one, to be `wanted` in the one file `path`, unless it is that.
    fn file(self, path: &str, wanted: impl Into<String>) -> Self {
        let wanted = wanted.into();
        self.to(wanted.clone(), [Setting::File { path: path.to_owned(), value: wanted }])
    }

    /// As this one, but it is not changed unless somebody agrees.
    fn asking(self, note: impl Into<String>) -> Self {
        if self.verdict == Verdict::Ok {
            return self;
        }
        Self { verdict: Verdict::Ask, note: note.into(), ..self }
    }

    /// As this one, but it cannot be changed.
    fn without_hope(self, note: impl Into<String>) -> Self {
        if self.verdict == Verdict::Ok {
            return self;
        }
        Self { verdict: Verdict::Cannot, note: note.into(), settings: Vec::new(), ..self }
    }

    /// As this one, with something to say.
    fn saying(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// What it is called: `sda/scheduler`, or the knob's own name for one of the machine.
    pub(crate) fn name(&self) -> String {
        if self.on.is_empty() { self.knob.name.to_owned() } else { format!("{}/{}", self.on, self.knob.name) }
    }

    /// True when `word` names it: its kind, its knob, whose it is, or `sda/scheduler`.
    pub(crate) fn is_named(&self, word: &str) -> bool {
        word == self.knob.kind.word() || word == self.knob.name || word == self.on || word == self.name()
    }
}

/// Every knob that was found below `root` and bears on `array`, by kind.
pub(crate) fn look(root: &Root, array: &Array) -> Vec<Advice> {
    let mut all = disks::look(root, &array.disks);
    all.extend(network::look(root, &array.interfaces));
    all.extend(interfaces::look(root, &array.interfaces));
    all.extend(interrupts::look(root, array));
    all.extend(processors::look(root, array));
    all
}

/// How many of `disks` are files, whose file system is not the array's to tune.
pub(crate) fn files(root: &Root, disks: &[PathBuf]) -> usize {
    disks.iter().filter(|disk| root.path(disk).exists() && disks::device(root, disk).is_none()).count()
}

#[cfg(test)]
mod tests;
