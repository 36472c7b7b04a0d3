//! Commands `blockyard group …`.

use super::hosts::forget_luns;
use super::{CommandContext, joined};
use crate::args::{GroupCommand, ListOptions};
use crate::client::forced;
use crate::failure::Failure;
use crate::output::Rows;
use control::HostGroupReport;
use control::request::{GroupChange, NewHostGroup};
use model::Name;

pub(super) fn run(desk: &CommandContext, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::List(options) => list(desk, &options),
        GroupCommand::Add { name, hosts } => {
            let answer = desk.client.post("/groups", &NewHostGroup { name: name.clone(), hosts }, "group")?;
            let group: HostGroupReport = answer.decode()?;
            let text = format!("group {name} is {}; next: blockyard present VOLUME {name}", joined(&group.hosts));
            desk.out.done(&answer, &text)
        }
        GroupCommand::Join { name, hosts } => {
            change(desk, &name, &GroupChange { join: hosts, ..GroupChange::default() })
        }
        GroupCommand::Leave { name, hosts, force } => {
            change(desk, &name, &GroupChange { leave: hosts, force, ..GroupChange::default() })
        }
        GroupCommand::ForgetLuns { name } => forget_luns(desk, "groups", &name),
        GroupCommand::Remove { name, force } => {
            desk.client.delete(&format!("/groups/{name}{}", forced(force)))?;
            desk.out.said(&format!("group {name} removed"))
        }
    }
}

fn change(desk: &CommandContext, name: &Name, change: &GroupChange) -> Result<(), Failure> {
    let answer = desk.client.patch(&format!("/groups/{name}"), change, "group")?;
    let group: HostGroupReport = answer.decode()?;
    let hosts = if group.hosts.is_empty() { "empty".to_owned() } else { joined(&group.hosts) };
    desk.out.done(&answer, &format!("group {name} is {hosts}"))
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/groups", "groups", options, &[])?;
    let groups: Vec<HostGroupReport> = answer.decode()?;
    let row =
        |group: &HostGroupReport| vec![group.name.to_string(), joined(&group.hosts), group.presentations.to_string()];
    let header = &["GROUP", "HOSTS", "VOLUMES"];
    desk.out.rows(&answer, &Rows { header, rows: groups.iter().map(row).collect() })
}
