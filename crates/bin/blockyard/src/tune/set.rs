//! Applying and reverting settings. Nothing else in `tune` changes the system.

use super::record::{Entry, Record};
use super::{Advice, Root, Setting, Verdict, persistence};
use std::collections::BTreeSet;
use std::io;

/// Result of one setting.
#[derive(Debug)]
pub(crate) struct Step {
    /// Name of the setting.
    pub name: String,
    /// Value and location that were written.
    pub setting: Setting,
    /// Value before.
    pub before: String,
    /// Error, if it was refused.
    pub refused: Option<String>,
}

impl Setting {
    /// Returns the location, independent of the value.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::File { path, .. } => format!("/{path}"),
            Self::Ethtool { option, interface, name, .. } => format!("ethtool {option} {interface} {name}"),
        }
    }

    /// Returns the value to set.
    pub(crate) fn value(&self) -> &str {
        match self {
            Self::File { value, .. } | Self::Ethtool { value, .. } => value,
        }
    }

    /// Returns the same setting with another value.
    fn at(&self, value: &str) -> Self {
        let mut other = self.clone();
        match &mut other {
            Self::File { value: own, .. } | Self::Ethtool { value: own, .. } => value.clone_into(own),
        }
        other
    }

    /// Returns the present content of a file; for a choice such as `[none] mq-deadline`, the chosen word.
    fn now(&self, root: &Root) -> Option<String> {
        let Self::File { path, .. } = self else { return None };
        let text = root.text(path)?;
        let chosen =
            text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen.to_owned());
        Some(chosen.unwrap_or_else(|| text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    /// Sets the value.
    ///
    /// *Errors*: the error of the system.
    fn write(&self, root: &Root) -> io::Result<()> {
        match self {
            Self::File { path, value } => root.write(path, value),
            Self::Ethtool { option, interface, name, value } => root.run_ethtool(&[option, interface, name, value]),
        }
    }
}

/// Selects the settings to apply: recommended changes, and those that need consent if they are named.
pub(crate) fn plan<'a>(all: &'a [Advice], only: &[String]) -> Vec<&'a Advice> {
    // Consent names the setting; a kind or a device would include others.
    let agreed = |advice: &Advice| only.iter().any(|word| *word == advice.knob.name || *word == advice.name());
    let wanted = |advice: &&Advice| match advice.verdict {
        Verdict::Change => !advice.settings.is_empty(),
        // Some advice has nothing to set: the administrator edits a file or the configuration.
        Verdict::Ask => !advice.settings.is_empty() && agreed(advice),
        Verdict::Ok | Verdict::Cannot => false,
    };
    all.iter().filter(wanted).collect()
}

/// Converts recommendations to entries of the record, with their present values.
pub(crate) fn entries(root: &Root, advice: &[&Advice], keeps: bool) -> Vec<Entry> {
    let of = |advice: &Advice| {
        let entry = |setting: &Setting| Entry {
            name: advice.name(),
            why: format!("{}: {}", advice.knob.name, advice.knob.why),
            // Values of ethtool cannot be read back from a file; the advice has read them.
            before: setting.now(root).unwrap_or_else(|| advice.now.clone()),
            kept: keeps.then(|| persistence::line(root, setting)).flatten(),
            setting: setting.clone(),
        };
        advice.settings.iter().map(entry).collect::<Vec<_>>()
    };
    advice.iter().flat_map(|advice| of(advice)).collect()
}

/// Applies `entries` in order. Settings that succeeded are in the record, and the record is on the disk.
///
/// *Errors*: the record or a persistent file cannot be written. If it was the record, nothing was set.
pub(crate) fn apply(root: &Root, entries: &[Entry]) -> io::Result<(Vec<Step>, Vec<String>)> {
    let mut record = Record::load(root)?;
    let known = record.clone();
    entries.iter().cloned().for_each(|entry| record.add(entry));
    // Saved before anything is set: after a crash at any point the old values are known.
    record.save(root)?;
    let mut steps = Vec::new();
    for entry in entries {
        let refused = entry.setting.write(root).err().map(|error| error.to_string());
        let refused = refused.or_else(|| other_value(root, &entry.setting));
        // A setting of an earlier `apply` stays recorded, since its original value is still to be restored.
        if refused.is_some() && !known.0.iter().any(|old| old.setting.place() == entry.setting.place()) {
            // A refused value need not be retried at every start; a partial change is undone.
            drop(entry.setting.at(&entry.before).write(root));
            record.forget(&entry.setting);
        }
        let (name, setting, before) = (entry.name.clone(), entry.setting.clone(), entry.before.clone());
        steps.push(Step { name, setting, before, refused });
    }
    record.save(root)?;
    Ok((steps, persistence::write(root, &record)?))
}

/// Reports a value that the kernel accepted but changed.
fn other_value(root: &Root, setting: &Setting) -> Option<String> {
    let now = setting.now(root)?;
    let place = setting.place();
    // The kernel prints masks with leading zeros and commas, so numbers are compared instead of text.
    let same = if place.ends_with("_cpus") {
        super::cpus::Cpus::of_mask(&now) == super::cpus::Cpus::of_mask(setting.value())
    } else if place.ends_with("_allowed_congestion_control") {
        // The kernel lists them in its own order.
        words(&now) == words(setting.value())
    } else {
        now == setting.value()
    };
    (!same).then(|| format!("the kernel set {now} instead"))
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().collect()
}

/// Restores all recorded values in the order in which they were set; devices that are gone are skipped. Refused values
/// stay in the record.
///
/// *Errors*: the record cannot be read or written, or a persistent file cannot be removed.
pub(crate) fn revert(root: &Root) -> io::Result<(Vec<Step>, Vec<String>)> {
    let record = Record::load(root)?;
    let mut left = record.clone();
    let mut steps = Vec::new();
    // Not in reverse: a change of the scheduler or of the number of queues resets the settings that follow it.
    for entry in &record.0 {
        let setting = entry.setting.at(&entry.before);
        // A disk that was pulled takes its settings along, so nothing is left to restore.
        let is_gone = matches!(&setting, Setting::File { path, .. } if !root.has(path));
        let refused = if is_gone { None } else { setting.write(root).err().map(|error| error.to_string()) };
        if refused.is_none() {
            left.forget(&setting);
        }
        if !is_gone {
            steps.push(Step { name: entry.name.clone(), before: entry.setting.value().to_owned(), setting, refused });
        }
    }
    // Persistent files first: if they stayed, the next start would apply the settings again.
    let changed = persistence::write(root, &Record::default())?;
    left.save(root)?;
    Ok((steps, changed))
}
