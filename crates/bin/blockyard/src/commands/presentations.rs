//! Commands `blockyard present`, `blockyard unpresent` and `blockyard presentation list`.

use super::{CommandContext, joined, or_dash};
use crate::args::{ListOptions, PresentOptions, UnpresentOptions};
use crate::client::query;
use crate::connect;
use crate::failure::Failure;
use crate::output::Rows;
use control::PresentationReport;
use control::request::{NewPresentation, Spread};
use model::EVERYONE;
use std::collections::BTreeSet;

pub(super) fn present(desk: &CommandContext, options: PresentOptions) -> Result<(), Failure> {
    let PresentOptions { volume, host, everyone: _, spread, also, lun, force, target, read_only, groups } = options;
    // Clap requires a host or `--everyone`.
    let host = host.map_or_else(|| EVERYONE.parse(), Ok)?;
    let (answer, seen) = match spread {
        Some(targets) => {
            let volumes = std::iter::once(volume).chain(also).collect();
            let request = Spread { volumes, host, targets, read_only, groups };
            let answer = desk.client.post("/presentations/spread", &request, "presentations")?;
            let seen: Vec<PresentationReport> = answer.decode()?;
            (answer, seen)
        }
        None => {
            let request = NewPresentation { volume, host, target, lun, force, read_only, groups };
            let answer = desk.client.post("/presentations", &request, "presentation")?;
            let seen = answer.decode()?;
            (answer, vec![seen])
        }
    };
    let mut text: String = seen.iter().map(told).collect();
    if seen.iter().any(|seen| seen.open) {
        text += "warning: any initiator that can reach a portal has access, without authentication; present the \
             volume to hosts by name instead\n";
    }
    text.extend(seen.iter().find(|seen| seen.portals.is_empty()).map(unreached));
    // Commands for each target once: a single login finds all volumes of a target.
    let mut targets = BTreeSet::new();
    let reached = || seen.iter().filter(|seen| !seen.portals.is_empty());
    text.extend(reached().filter(|seen| targets.insert(&seen.iqn)).map(connect::lines));
    if reached().any(|seen| seen.host.as_str() != EVERYONE) {
        text += "\nFor multipath and checks see: blockyard connect HOST --os linux\n";
    }
    if seen.len() > 1 && seen.iter().all(|one| one.volume == seen[0].volume) {
        text += "\nThe host has several paths to one volume: it needs multipath (multipathd, MPIO).\n";
    }
    desk.out.done(&answer, text.trim_end())
}

fn told(seen: &PresentationReport) -> String {
    let who = match (seen.host.as_str(), seen.open) {
        (EVERYONE, _) => EVERYONE.to_owned(),
        (host, true) => format!("every initiator that belongs to no other host, as host {host},"),
        (host, false) => format!("host {host}"),
    };
    let how = if seen.read_only { ", read-only" } else { "" };
    format!("{who} has access to volume {} as LUN {}{how} of {}\n", seen.volume, seen.lun, seen.iqn)
}

/// Describes what is missing until the host reaches the volume.
fn unreached(seen: &PresentationReport) -> String {
    let groups: Vec<String> = seen.groups.iter().map(u16::to_string).collect();
    match groups.first() {
        None => "warning: no portal is open, so no host can reach it; see blockyard portal list\n".to_owned(),
        Some(group) => format!(
            "warning: portal group {} has no open portal, so no host can reach it; add one: blockyard portal add \
             ADDRESS group={group}\n",
            groups.join(" or ")
        ),
    }
}

pub(super) fn unpresent(desk: &CommandContext, options: &UnpresentOptions) -> Result<(), Failure> {
    let mut pairs = vec![("volume", options.volume.to_string()), ("host", options.host.to_string())];
    pairs.extend(options.target.as_ref().map(|target| ("target", target.to_string())));
    pairs.extend(options.force.then(|| ("force", true.to_string())));
    desk.client.delete(&format!("/presentations?{}", query(&pairs)))?;
    desk.out.said(&format!("volume {} is no longer presented to {}", options.volume, options.host))
}

pub(super) fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/presentations", "presentations", options, &[])?;
    let all: Vec<PresentationReport> = answer.decode()?;
    let row = |seen: &PresentationReport| {
        vec![
            seen.host.to_string(),
            seen.lun.to_string(),
            seen.volume.to_string(),
            if seen.read_only { "read-only" } else { "read-write" }.to_owned(),
            or_dash(seen.chap_user.as_ref()),
            if seen.groups.is_empty() { "all".to_owned() } else { joined(&seen.groups) },
            seen.iqn.to_string(),
        ]
    };
    let header = &["HOST", "LUN", "VOLUME", "ACCESS", "CHAP", "GROUP", "TARGET"];
    desk.out.rows(&answer, &Rows { header, rows: all.iter().map(row).collect() })
}
