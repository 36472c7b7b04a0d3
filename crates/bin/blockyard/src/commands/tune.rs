//! Commands `blockyard tune …`: settings of the operating system below the array.

mod apply;

use super::{CommandContext, connect};
use crate::args::{TuneCommand, TuneHostOptions, TuneOptions};
use crate::failure::Failure;
use crate::output::{Rows, put};
use crate::tune::host::{Machine, Terms};
use crate::tune::{self, Advice, Array, Root, Verdict};
use model::{DiskReport, PortalReport, Refusal, code};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

pub(super) fn run(desk: &CommandContext, command: &TuneCommand) -> Result<(), Failure> {
    if let TuneCommand::Host(options) = command {
        return host(desk, options);
    }
    // The commands read and write `/sys` and `/proc` of the machine that they run on.
    if !desk.client.is_local() {
        let message = "blockyard tune works on the local machine, not on a remote array";
        let refusal = Refusal::new(code::ELSEWHERE, message, "run it on the array, without --url");
        return Err(Failure::usage(&refusal));
    }
    match command {
        TuneCommand::Show { which, all } => show(desk, which, *all),
        TuneCommand::Apply(options) => apply::apply(desk, options),
        TuneCommand::Host(options) => host(desk, options),
        TuneCommand::Revert { root } => apply::revert(desk, &Root::new(root)),
    }
}

/// Prints the recommended settings of a host. Without a host name no request is sent.
fn host(desk: &CommandContext, options: &TuneHostOptions) -> Result<(), Failure> {
    let view = options.host.as_ref().map(|name| connect::view(desk, name)).transpose()?;
    let machine = Machine {
        paths: view.map(|view| view.has_paths()),
        ports: options.ports,
        cores: options.cores,
        threads: options.threads,
        queues: options.queues,
    };
    let steps = tune::host::steps(options.system, Terms::ours(), machine);
    let host = options.host.as_ref().map_or("HOST".to_owned(), ToString::to_string);
    let note = format!("Login and multipath settings: blockyard connect {host} --os {}", options.system.word());
    connect::print(desk, &steps, &[&note])
}

/// Returns the disks, network interfaces and process that the array uses on this machine.
fn array(desk: &CommandContext) -> Result<Array, Failure> {
    let disks: Vec<DiskReport> = desk.client.get("/disks", "disks")?.decode()?;
    let portals: Vec<PortalReport> = desk.client.get("/portals", "portals")?.decode()?;
    let addresses = uring::addresses().map_err(|error| {
        Refusal::new(code::IO_FAILED, format!("the addresses of this machine cannot be read: {error}"), "try again")
    })?;
    let portals: BTreeSet<IpAddr> = portals.iter().map(|portal| portal.address.ip()).collect();
    // An unspecified portal address listens on every interface of its address family.
    let is_served = |address: IpAddr| {
        portals
            .iter()
            .any(|portal| *portal == address || portal.is_unspecified() && portal.is_ipv4() == address.is_ipv4())
    };
    // Loopback has no card to tune.
    let served = addresses.into_iter().filter(|it| !it.address.is_loopback() && is_served(it.address));
    let interfaces: BTreeSet<String> = served.map(|it| it.interface).collect();
    Ok(Array {
        disks: disks.into_iter().map(|disk| PathBuf::from(disk.path)).collect(),
        interfaces: interfaces.into_iter().collect(),
        pid: desk.client.pid(),
    })
}

/// Returns the selected settings.
///
/// *Errors*: a word matches no setting.
fn chosen(root: &Root, array: &Array, which: &TuneOptions) -> Result<Vec<Advice>, Failure> {
    let all = tune::look(root, array);
    // A misspelled word would select nothing and look like success.
    let unknown = which.only.iter().find(|word| !all.iter().any(|advice| advice.is_named(word)));
    if let Some(word) = unknown {
        let message = format!("\"{word}\" matches no setting of this machine");
        let refusal = Refusal::new(code::WORD_UNKNOWN, message, "see blockyard tune show");
        return Err(Failure::usage(&refusal));
    }
    let is_wanted = |advice: &Advice| which.only.is_empty() || which.only.iter().any(|word| advice.is_named(word));
    Ok(all.into_iter().filter(is_wanted).collect())
}

/// Prints the settings to change; with `all`, or if settings were named, also those that need no change.
fn show(desk: &CommandContext, which: &TuneOptions, all: bool) -> Result<(), Failure> {
    let root = Root::new(&which.root);
    let array = array(desk)?;
    let chosen = chosen(&root, &array, which)?;
    let is_shown = |advice: &&Advice| advice.verdict != Verdict::Ok || all || !which.only.is_empty();
    let shown: Vec<&Advice> = chosen.iter().filter(is_shown).collect();
    if desk.out.is_json() {
        return put(&format!("{:#}\n", json!({ "schema": 1, "knobs": shown })));
    }
    let groups = alike(&shown);
    if !groups.is_empty() {
        desk.out.lines(&Rows {
            header: &["", "SETTING", "DEVICE", "VALUE", "RECOMMENDED", "REASON", "EFFECT"],
            rows: groups.iter().map(row).collect(),
        })?;
        desk.out.said("")?;
    }
    let well = chosen.len() - shown.len();
    for line in summary(&root, &array, &groups, well) {
        desk.out.said(&line)?;
    }
    Ok(())
}

/// Disks or interfaces with the same value, recommendation and reason for a setting.
struct Group<'a> {
    advice: &'a Advice,
    /// Names of the disks or interfaces; empty for a setting of the machine.
    on: Vec<&'a str>,
}

/// Groups equal recommendations, each group at the position of its first one.
fn alike<'a>(all: &[&'a Advice]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for &advice in all {
        // A note may contain the name of the device, which must not separate groups.
        let said = |one: &Advice| one.note.replace(&one.on, "");
        let is_alike = |group: &&mut Group<'_>| {
            let first = group.advice;
            let values = (&first.now, &first.wanted, first.verdict) == (&advice.now, &advice.wanted, advice.verdict);
            // A setting of the machine has no device, and stays a line of its own.
            !advice.on.is_empty() && first.knob == advice.knob && values && said(first) == said(advice)
        };
        match groups.iter_mut().find(is_alike) {
            Some(group) => group.on.push(&advice.on),
            None => groups.push(Group { advice, on: vec![&advice.on] }),
        }
    }
    groups
}

/// Limit of devices that are named on a line.
const NAMED_MAX: usize = 6;

/// Lists the devices of a setting: `sda, sdb`, with the count if there are many.
fn named(on: &[&str]) -> String {
    match on {
        [] | [""] => "-".to_owned(),
        few if few.len() <= NAMED_MAX => few.join(", "),
        many => format!("{}, … ({} in all)", many[..NAMED_MAX].join(", "), many.len()),
    }
}

fn row(group: &Group<'_>) -> Vec<String> {
    let advice = group.advice;
    let (verdict, wanted) = match advice.verdict {
        Verdict::Ok => ("ok", "as it is"),
        Verdict::Change => ("change", advice.wanted.as_str()),
        Verdict::Ask => ("ask", advice.wanted.as_str()),
        Verdict::Cannot => ("cannot", advice.wanted.as_str()),
    };
    let why = if advice.note.is_empty() {
        advice.knob.why.to_owned()
    } else {
        format!("{}; {}", advice.knob.why, advice.note)
    };
    let effect = format!("{} ({})", advice.knob.effect, advice.knob.source);
    let (knob, on) = (advice.knob.name.to_owned(), named(&group.on));
    vec![verdict.to_owned(), knob, on, advice.now.clone(), wanted.to_owned(), why, effect]
}

/// Summarizes what was omitted and the next step; `well` settings need no change and were not shown.
fn summary(root: &Root, array: &Array, groups: &[Group<'_>], well: usize) -> Vec<String> {
    let mut lines = Vec::new();
    match tune::files(root, &array.disks) {
        0 => {}
        1 => lines.push("1 disk is a file: the devices below its file system are not tuned.".to_owned()),
        n => lines.push(format!("{n} disks are files: the devices below their file systems are not tuned.")),
    }
    if array.interfaces.is_empty() {
        lines.push("No portal uses a network card.".to_owned());
    }
    match well {
        0 => {}
        1 => lines.push("1 setting is already good: blockyard tune show --all".to_owned()),
        n => lines.push(format!("{n} settings are already good: blockyard tune show --all")),
    }
    let count = |verdict| groups.iter().filter(|group| group.advice.verdict == verdict).count();
    lines.push(match (count(Verdict::Change), count(Verdict::Ask)) {
        (0, 0) => "No changes.".to_owned(),
        (0, asks) => format!("{asks} for you to decide; no other changes."),
        (changes, 0) => format!("{changes} to change: blockyard tune apply"),
        (changes, asks) => format!("{changes} to change: blockyard tune apply; {asks} for you to decide."),
    });
    lines
}
