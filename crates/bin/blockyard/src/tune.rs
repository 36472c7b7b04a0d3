//! Tuning of the operating system below the array: present values, recommended values, reasons, and how to set them.
//!
//! All facts are read from `/proc`, `/sys` and `ethtool` below a [`Root`], so that tests can supply any machine. Called
//! by `blockyard tune`; only `set` may change the system.

mod cpus;
mod disks;
pub(crate) mod host;
mod interfaces;
mod interrupts;
mod network;
mod persistence;
mod processors;
mod record;
mod root;
mod set;
mod tunables;

pub(crate) use cpus::Cpus;
pub(crate) use persistence::files as kept_files;
pub(crate) use record::{Entry, Record};
pub(crate) use root::Root;
pub(crate) use set::{Step, apply, entries, plan, revert};
pub(crate) use tunables::Tunable;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Parts of the machine that the array uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Array {
    /// Paths of the array's disks.
    pub disks: Vec<PathBuf>,
    /// Network interfaces of the portals, without loopback.
    pub interfaces: Vec<String>,
    /// Process ID of the daemon.
    pub pid: Option<u32>,
}

/// Recommendation for a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// No change needed.
    Ok,
    /// `tune apply` sets it.
    Change,
    /// Needs the administrator's consent or manual work; `tune apply --only` sets it if there is something to set.
    Ask,
    /// Not possible on this machine.
    Cannot,
}

/// Means of setting a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub(crate) enum Setting {
    /// Writes the value to a file below the root.
    File {
        /// Path without the leading slash, as in `sys/block/sda/queue/scheduler`.
        path: String,
        /// Value to write.
        value: String,
    },
    /// Runs `ethtool OPTION INTERFACE NAME VALUE`.
    Ethtool {
        /// Option of `ethtool`, such as `-L`.
        option: String,
        /// Network interface.
        interface: String,
        /// Name of the parameter, as in `combined`.
        name: String,
        /// Value to set.
        value: String,
    },
}

/// Recommendation for one setting of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Advice {
    /// Setting, with its reason and effect.
    #[serde(flatten)]
    pub knob: &'static Tunable,
    /// Disk or interface that it belongs to; empty for a setting of the machine.
    pub on: String,
    /// Present value.
    pub now: String,
    /// Recommended value; equal to the present one if no change is needed.
    pub wanted: String,
    /// Kind of action.
    pub verdict: Verdict,
    /// Condition of the consent, or reason why it is not possible; may be empty.
    pub note: String,
    /// Means of setting it, in order.
    pub settings: Vec<Setting>,
}

impl Advice {
    /// Creates the entry for a setting without a change.
    fn kept(knob: &'static Tunable, on: &str, now: impl Into<String>) -> Self {
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

    /// Recommends `wanted`, set by `settings`, unless that is the present value.
    fn to(self, wanted: impl Into<String>, settings: impl IntoIterator<Item = Setting>) -> Self {
        let wanted = wanted.into();
        if wanted == self.now {
            return self;
        }
        Self { wanted, verdict: Verdict::Change, settings: settings.into_iter().collect(), ..self }
    }

    /// Recommends `wanted`, set in the file `path`, unless that is the present value.
    fn file(self, path: &str, wanted: impl Into<String>) -> Self {
        let wanted = wanted.into();
        self.to(wanted.clone(), [Setting::File { path: path.to_owned(), value: wanted }])
    }

    /// Makes the change depend on the administrator's consent.
    fn asking(self, note: impl Into<String>) -> Self {
        // Without a change there is nothing to consent to.
        if self.verdict == Verdict::Ok {
            return self;
        }
        Self { verdict: Verdict::Ask, note: note.into(), ..self }
    }

    /// Marks the change as not possible.
    fn impossible(self, note: impl Into<String>) -> Self {
        // A setting that is right needs no reason why it could not be changed.
        if self.verdict == Verdict::Ok {
            return self;
        }
        Self { verdict: Verdict::Cannot, note: note.into(), settings: Vec::new(), ..self }
    }

    /// Adds a note.
    fn saying(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// Returns the full name: `sda/scheduler`, or the plain name for a setting of the machine.
    pub(crate) fn name(&self) -> String {
        if self.on.is_empty() { self.knob.name.to_owned() } else { format!("{}/{}", self.on, self.knob.name) }
    }

    /// Returns true if `word` selects it by its kind, name, device, or full name such as `sda/scheduler`.
    pub(crate) fn is_named(&self, word: &str) -> bool {
        word == self.knob.kind.word() || word == self.knob.name || word == self.on || word == self.name()
    }
}

/// Returns all settings found below `root` that affect `array`, by kind.
pub(crate) fn look(root: &Root, array: &Array) -> Vec<Advice> {
    let mut all = disks::look(root, &array.disks);
    all.extend(network::look(root, &array.interfaces));
    all.extend(interfaces::look(root, &array.interfaces));
    all.extend(interrupts::look(root, array));
    all.extend(processors::look(root, array));
    all
}

/// Counts the disks that are files: their file system is not the array's to tune.
pub(crate) fn files(root: &Root, disks: &[PathBuf]) -> usize {
    // A missing disk and a remote one are no files of this machine.
    disks.iter().filter(|disk| root.path(disk).exists() && disks::device(root, disk).is_none()).count()
}

#[cfg(test)]
mod tests;
