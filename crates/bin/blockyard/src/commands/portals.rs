//! Commands `blockyard portal …`.

use super::CommandContext;
use crate::args::{ListOptions, PortalCommand};
use crate::client::query;
use crate::failure::Failure;
use crate::output::Rows;
use control::request::{NewPortal, PortalGroupSettings, PortalSettings, SetBalance};
use model::{Balance, PortalAddress, PortalGroupReport, PortalGroupTag, PortalReport, PortalState};

pub(super) fn run(desk: &CommandContext, command: PortalCommand) -> Result<(), Failure> {
    match command {
        PortalCommand::List(options) => list(desk, &options),
        PortalCommand::Add { address, settings } => {
            let request = NewPortal { address, settings: settings.into_iter().collect() };
            let answer = desk.client.post("/portals", &request, "portal")?;
            let portal: PortalReport = answer.decode()?;
            desk.out.done(&answer, &format!("portal open: hosts can log in at {} {}", portal.address, meaning(&portal)))
        }
        PortalCommand::Set { address, settings, force } => set(desk, address, settings, force),
        PortalCommand::Drain { address } => {
            let answer = desk.client.post(&path(address, "/drain"), &(), "portal")?;
            let portal: PortalReport = answer.decode()?;
            let text = match portal.sessions {
                0 => format!("portal {address} drained: no new sessions until blockyard portal resume {address}"),
                n => format!("portal {address} is draining: {n} sessions are asked to move, see blockyard portal list"),
            };
            desk.out.done(&answer, &text)
        }
        PortalCommand::Resume { address } => {
            let answer = desk.client.post(&path(address, "/resume"), &(), "portal")?;
            desk.out.done(&answer, &format!("portal {address} accepts sessions again"))
        }
        PortalCommand::Remove { address, force } => {
            let asked = query(&[("force", force.to_string())]);
            desk.client.delete(&format!("{}?{asked}", path(address, "")))?;
            desk.out.said(&format!("portal {address} removed"))
        }
        PortalCommand::Groups(options) => groups(desk, &options),
        PortalCommand::Group { tag, settings, force } => group(desk, tag, settings, force),
        PortalCommand::Balance { by } => balance(desk, by),
    }
}

fn path(address: PortalAddress, rest: &str) -> String {
    format!("/portals/{address}{rest}")
}

fn meaning(portal: &PortalReport) -> &'static str {
    match portal.policy.role {
        model::PortalRole::Plain => "and stay there",
        model::PortalRole::Front => "and are redirected to data portals",
        model::PortalRole::Data => "after a redirect from a front portal",
    }
}

fn set(
    desk: &CommandContext,
    address: PortalAddress,
    settings: Vec<(String, String)>,
    force: bool,
) -> Result<(), Failure> {
    // Not an empty PATCH: every role may read the settings, and only an administrator may change them.
    let answer = if settings.is_empty() {
        desk.client.get(&path(address, ""), "portal")?
    } else {
        let request = PortalSettings { settings: settings.into_iter().collect(), force };
        desk.client.patch(&path(address, ""), &request, "portal")?
    };
    // Quiet omits the table, and JSON is printed all the same.
    if desk.out.is_quiet() && !desk.out.is_json() {
        return Ok(());
    }
    let portal: PortalReport = answer.decode()?;
    let rows = portal.policy.settings().map(|(key, value)| vec![key.to_owned(), value]);
    desk.out.rows(&answer, &Rows { header: &["SETTING", "VALUE"], rows: rows.into() })
}

fn group(
    desk: &CommandContext,
    PortalGroupTag(tag): PortalGroupTag,
    settings: Vec<(String, String)>,
    force: bool,
) -> Result<(), Failure> {
    let path = format!("/portal-groups/{tag}");
    let answer = if settings.is_empty() {
        desk.client.get(&path, "portal_group")?
    } else {
        let request = PortalGroupSettings { settings: settings.into_iter().collect(), force };
        desk.client.patch(&path, &request, "portal_group")?
    };
    if desk.out.is_quiet() && !desk.out.is_json() {
        return Ok(());
    }
    let group: PortalGroupReport = answer.decode()?;
    let rows = group.policy.settings().map(|(key, value)| vec![key.to_owned(), value]);
    desk.out.rows(&answer, &Rows { header: &["SETTING", "VALUE"], rows: rows.into() })
}

fn groups(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/portal-groups", "portal_groups", options, &[])?;
    let groups: Vec<PortalGroupReport> = answer.decode()?;
    let row = |group: &PortalGroupReport| {
        let portals: Vec<String> = group.portals.iter().map(ToString::to_string).collect();
        let preferred = if group.policy.preferred { "yes" } else { "-" };
        let access = group.policy.access.to_string();
        vec![group.tag.to_string(), access, preferred.to_owned(), group.sessions.to_string(), portals.join(", ")]
    };
    let header = &["GROUP", "ACCESS", "PREFERRED", "SESSIONS", "PORTALS"];
    desk.out.rows(&answer, &Rows { header, rows: groups.iter().map(row).collect() })
}

fn balance(desk: &CommandContext, by: Option<Balance>) -> Result<(), Failure> {
    let answer = match by {
        Some(by) => desk.client.patch("/balance", &SetBalance { by }, "balance")?,
        None => desk.client.get("/balance", "balance")?,
    };
    let by: Balance = answer.decode()?;
    desk.out.done(&answer, &format!("sessions go to the data portal with the fewest {by} relative to its weight"))
}

/// Returns true for `[::]`, whose address does not show whether it accepts IPv4 as well.
fn is_any_of_ipv6(portal: &PortalReport) -> bool {
    portal.address.is_ipv6() && portal.address.ip().is_unspecified()
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/portals", "portals", options, &[])?;
    let portals: Vec<PortalReport> = answer.decode()?;
    let row = |portal: &PortalReport| {
        let policy = &portal.policy;
        let state = match &portal.state {
            PortalState::NoLink { reason: why } => format!("no link: {why}"),
            PortalState::Failed { reason: why } => format!("failed: {why}"),
            PortalState::Open if !policy.drained && portal.also_ipv4 => "open, IPv4 and IPv6".to_owned(),
            PortalState::Open if !policy.drained && is_any_of_ipv6(portal) => "open, IPv6 only".to_owned(),
            PortalState::Open if !policy.drained => "open".to_owned(),
            // A drained portal keeps its sessions until they have moved or ended.
            PortalState::Open if portal.sessions > 0 => "draining".to_owned(),
            PortalState::Open => "drained".to_owned(),
        };
        vec![
            portal.address.to_string(),
            policy.role.to_string(),
            policy.tag.to_string(),
            policy.weight.to_string(),
            portal.sessions.to_string(),
            policy.advertise.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            state,
        ]
    };
    let header = &["PORTAL", "ROLE", "GROUP", "WEIGHT", "SESSIONS", "ADVERTISED", "STATE"];
    desk.out.rows(&answer, &Rows { header, rows: portals.iter().map(row).collect() })
}
