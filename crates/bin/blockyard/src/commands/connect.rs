//! Command `blockyard connect`: prints the commands that connect a host.

use super::CommandContext;
use crate::args::{ConnectOptions, System};
use crate::connect::{Step, View};
use crate::failure::Failure;
use crate::output::put;
use clap::ValueEnum;
use control::{HostGroupReport, HostReport, PresentationReport};
use model::{EVERYONE, Name, Refusal, code};
use serde_json::json;

/// Prints the steps for the host.
pub(super) fn connect(desk: &CommandContext, options: &ConnectOptions) -> Result<(), Failure> {
    let view = view(desk, &options.host)?;
    match options.system {
        Some(system) => print(desk, &view.steps(system), &view.notes()),
        None => print_all(desk, &view),
    }
}

/// Prints the steps of every operating system, each under its name.
fn print_all(desk: &CommandContext, view: &View) -> Result<(), Failure> {
    let (systems, notes) = (System::value_variants(), view.notes());
    if desk.out.is_json() {
        let each = |system: &System| json!({ "os": system.word(), "steps": view.steps(*system) });
        let systems: Vec<_> = systems.iter().map(each).collect();
        return put(&format!("{:#}\n", json!({ "schema": 1, "systems": systems, "notes": notes })));
    }
    let each = |system: &System| format!("# ===== {} =====\n\n{}", system.title(), text(&view.steps(*system), &[]));
    let mut parts: Vec<String> = systems.iter().map(each).collect();
    parts.extend((!notes.is_empty()).then(|| text(&[], &notes)));
    put(&parts.join("\n"))
}

/// Returns the mappings of a host.
///
/// *Errors*: there is no such host, or nothing is presented to it.
pub(super) fn view(desk: &CommandContext, name: &Name) -> Result<View, Failure> {
    let host: HostReport = desk.client.get(&format!("/hosts/{name}"), "host")?.decode()?;
    let groups: Vec<HostGroupReport> = desk.client.get("/groups", "groups")?.decode()?;
    let all: Vec<PresentationReport> = desk.client.get("/presentations", "presentations")?.decode()?;
    // A presentation is for a host, for a group of hosts, or for everyone.
    let is_for = |whom: &Name| {
        whom == name
            || whom.as_str() == EVERYONE
            || groups.iter().any(|group| group.name == *whom && group.hosts.contains(name))
    };
    let seen: Vec<PresentationReport> = all.into_iter().filter(|one| is_for(&one.host)).collect();
    if seen.is_empty() {
        let message = format!("nothing is presented to host {name}");
        let hint = format!("present a volume to it first: blockyard present VOLUME {name}");
        return Err(Refusal::new(code::PRESENTATION_UNKNOWN, message, hint).into());
    }
    let chap = (host.authentication.chap_user, host.authentication.mutual_chap_user);
    Ok(View::new(&host.initiators, chap, &seen))
}

/// Prints steps, and the explanation of the placeholders in them.
pub(super) fn print(desk: &CommandContext, steps: &[Step], notes: &[&str]) -> Result<(), Failure> {
    if desk.out.is_json() {
        return put(&format!("{:#}\n", json!({ "schema": 1, "steps": steps, "notes": notes })));
    }
    put(&text(steps, notes))
}

/// Formats commands with their purpose as comments, so that a shell accepts the whole text.
fn text(steps: &[Step], notes: &[&str]) -> String {
    let step = |(n, step): (usize, &Step)| format!("# {}. {}\n{}\n", n + 1, step.description, step.lines.join("\n"));
    let mut parts: Vec<String> = steps.iter().enumerate().map(step).collect();
    if !notes.is_empty() {
        parts.push(notes.iter().map(|note| format!("# {note}\n")).collect());
    }
    parts.join("\n")
}
