//! Knobs are set, and set back.

use super::record::{Entry, Record};
use super::{Advice, Root, Setting, Verdict, keep};
use std::collections::BTreeSet;
use std::io;

/// What one setting has come to.
#[derive(Debug)]
pub(crate) struct Step {
    /// The knob's name.
    pub name: String,
    /// What was written, and where.
    pub setting: Setting,
    /// What was so before.
    pub before: String,
    /// What went wrong, if something has.
    pub refused: Option<String>,
}

impl Setting {
    /// Where it is set, whatever the value.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::File { path, .. } => format!("/{path}"),
            Self::Ethtool { option, interface, name, .. } => format!("ethtool {option} {interface} {name}"),
        }
    }

    /// What it is to be.
    pub(crate) fn value(&self) -> &str {
        match self {
            Self::File { value, .. } | Self::Ethtool { value, .. } => value,
        }
    }

    /// The same knob at another value.
    fn at(&self, value: &str) -> Self {
        let mut other = self.clone();
        match &mut other {
            Self::File { value: own, .. } | Self::Ethtool { value: own, .. } => value.clone_into(own),
        }
        other
    }

    /// What a file holds now; of a choice such as `[none] mq-deadline` what is chosen.
    fn now(&self, root: &Root) -> Option<String> {
        let Self::File { path, .. } = self else { return None };
        let text = root.text(path)?;
        let chosen =
            text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen.to_owned());
        Some(chosen.unwrap_or_else(|| text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    /// It is set.
    ///
    /// *Errors*: what the system says.
    fn write(&self, root: &Root) -> io::Result<()> {
        match self {
            Self::File { path, value } => root.write(path, value),
            Self::Ethtool { option, interface, name, value } => root.run_ethtool(&[option, interface, name, value]),
        }
    }
}

/// What is to be set of `all`: what is to be changed, and what somebody has named who was asked.
pub(crate) fn plan<'a>(all: &'a [Advice], only: &[String]) -> Vec<&'a Advice> {
    let agreed = |advice: &Advice| only.iter().any(|word| *word == advice.knob.name || *word == advice.name());
    let wanted = |advice: &&Advice| match advice.verdict {
        Verdict::Change => !advice.settings.is_empty(),
        Verdict::Ask => !advice.settings.is_empty() && agreed(advice),
        Verdict::Ok | Verdict::Cannot => false,
    };
    all.iter().filter(wanted).collect()
}

/// The settings of `advice` as a record has them, each with what is so now.
pub(crate) fn entries(root: &Root, advice: &[&Advice], keeps: bool) -> Vec<Entry> {
    let of = |advice: &Advice| {
        let entry = |setting: &Setting| Entry {
            name: advice.name(),
            why: format!("{}: {}", advice.knob.name, advice.knob.why),
            before: setting.now(root).unwrap_or_else(|| advice.now.clone()),
            kept: keeps.then(|| keep::line(root, setting)).flatten(),
            setting: setting.clone(),
        };
        advice.settings.iter().map(entry).collect::<Vec<_>>()
    };
    advice.iter().flat_map(|advice| of(advice)).collect()
}

/// Everything of `entries` was tried, in their order. What was set is in the record, and the record on the disk.
///
/// *Errors*: the record or a file that keeps something cannot be written. Where it was the record, nothing was set.
pub(crate) fn apply(root: &Root, entries: &[Entry]) -> io::Result<(Vec<Step>, Vec<String>)> {
    let mut record = Record::load(root)?;
    let known = record.clone();
    entries.iter().cloned().for_each(|entry| record.add(entry));
    // Before anything is set: whatever happens, there is a way back.
    record.save(root)?;
    let mut steps = Vec::new();
    for entry in entries {
        let refused = entry.setting.write(root).err().map(|error| error.to_string());
        let refused = refused.or_else(|| other_value(root, &entry.setting));
        if refused.is_some() && !known.0.iter().any(|old| old.setting.place() == entry.setting.place()) {
            // What cannot be so now need not be tried at each start; what was changed in part is set back.
            drop(entry.setting.at(&entry.before).write(root));
            record.forget(&entry.setting);
        }
        let (name, setting, before) = (entry.name.clone(), entry.setting.clone(), entry.before.clone());
        steps.push(Step { name, setting, before, refused });
    }
    record.save(root)?;
    Ok((steps, keep::write(root, &record)?))
}

/// Says so when the kernel has taken a value and made another of it.
fn other_value(root: &Root, setting: &Setting) -> Option<String> {
    let now = setting.now(root)?;
    let place = setting.place();
    let same = if place.ends_with("_cpus") {
        super::cpus::Cpus::of_mask(&now) == super::cpus::Cpus::of_mask(setting.value())
    } else if place.ends_with("_allowed_congestion_control") {
        // In an order of its own.
        words(&now) == words(setting.value())
    } else {
        now == setting.value()
    };
    (!same).then(|| format!("the kernel has made {now} of it"))
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().collect()
}

/// Everything that was set is as it was before, the last first; what is gone by now is left. What was refused stays in the record.
///
/// *Errors*: the record cannot be read or written, or a file that keeps something cannot be removed.
pub(crate) fn revert(root: &Root) -> io::Result<(Vec<Step>, Vec<String>)> {
    let record = Record::load(root)?;
    let mut left = record.clone();
    let mut steps = Vec::new();
    for entry in record.0.iter().rev() {
        let setting = entry.setting.at(&entry.before);
        let is_gone = matches!(&setting, Setting::File { path, .. } if !root.has(path));
        let refused = if is_gone { None } else { setting.write(root).err().map(|error| error.to_string()) };
        if refused.is_none() {
            left.forget(&setting);
        }
        if !is_gone {
            steps.push(Step { name: entry.name.clone(), before: entry.setting.value().to_owned(), setting, refused });
        }
    }
    // Files go first: were they left, the next start would set everything again.
    let changed = keep::write(root, &Record::default())?;
    left.save(root)?;
    Ok((steps, changed))
}
