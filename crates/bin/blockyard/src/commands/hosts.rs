//! Commands `blockyard host …` and `blockyard target …`.

use super::{CommandContext, joined, or_dash};
use crate::args::{ChapOptions, HostCommand, ListOptions, TargetCommand};
use crate::client::{forced, query};
use crate::failure::Failure;
use crate::output::Rows;
use crate::progress::duration;
use crate::secret;
use control::request::{HostChange, NewChap, NewHost, NewTarget, SecretText};
use control::{Explanation, FormerLun, HostGroupReport, HostReport, Point, PresentationReport, TargetReport};
use model::{Demand, Name, RefusedLogin, SessionReport, VolumeName};
use std::path::Path;

pub(super) fn run(desk: &CommandContext, command: HostCommand) -> Result<(), Failure> {
    match command {
        HostCommand::List(options) => list(desk, &options),
        HostCommand::Show { name } => show(desk, &name),
        HostCommand::Add { name, initiators, any, networks, chap, force } => {
            let (chap, mutual_chap) = both(chap)?;
            add(desk, &NewHost { name, initiators, any, networks, chap, mutual_chap, force })
        }
        HostCommand::Change {
            name,
            add_initiators,
            remove_initiators,
            networks,
            add_networks,
            remove_networks,
            anywhere,
            chap,
            no_chap,
            no_mutual,
            force,
        } => {
            let (chap, mutual_chap) = both(chap)?;
            // An empty list removes the limit; no list leaves it as it is.
            let networks = (anywhere || !networks.is_empty()).then_some(networks);
            let no_mutual_chap = no_mutual;
            let change = HostChange {
                add_initiators,
                remove_initiators,
                networks,
                add_networks,
                remove_networks,
                chap,
                mutual_chap,
                no_chap,
                no_mutual_chap,
                force,
            };
            let answer = desk.client.patch(&format!("/hosts/{name}"), &change, "host")?;
            let host: HostReport = answer.decode()?;
            desk.out.done(&answer, &format!("host {name} changed: it {}", host.authentication))
        }
        HostCommand::Refused(options) => refused(desk, &options),
        HostCommand::Explain { host, volume } => explain(desk, &host, &volume),
        HostCommand::ForgetLuns { name } => forget_luns(desk, "hosts", &name),
        HostCommand::Remove { name, force } => {
            desk.client.delete(&format!("/hosts/{name}{}", forced(force)))?;
            desk.out.said(&format!("host {name} removed"))
        }
    }
}

/// Releases the former LUN numbers of a host or of a group.
pub(super) fn forget_luns(desk: &CommandContext, noun: &str, name: &Name) -> Result<(), Failure> {
    let answer = desk.client.delete_for(&format!("/{noun}/{name}/luns"), "former_luns")?;
    let forgotten: Vec<FormerLun> = answer.decode()?;
    let numbers = if forgotten.len() == 1 { "LUN number" } else { "LUN numbers" };
    desk.out.done(&answer, &format!("{} {numbers} of {name} released for other volumes", forgotten.len()))
}

/// Returns the CHAP credentials of the initiator and of this node.
pub(super) fn both(options: ChapOptions) -> Result<(Option<NewChap>, Option<NewChap>), Failure> {
    let ChapOptions { chap_user, chap_secret_file, chap, mutual_user, mutual_secret_file, mutual, encoded } = options;
    let from_input = [&chap_secret_file, &mutual_secret_file].map(|file| file.as_deref() == Some(Path::new("-")));
    // Standard input can be read only once.
    if from_input == [true, true] {
        let sentence = "standard input cannot carry both secrets; put one of them in a file";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    // Read before any request, so that a bad secret file changes nothing.
    let own = secret::read(chap_secret_file.as_deref(), "BLOCKYARD_CHAP_SECRET", encoded)?;
    let ours = secret::read(mutual_secret_file.as_deref(), "BLOCKYARD_MUTUAL_SECRET", encoded)?;
    // Without an entry in the request the present credentials stay.
    let given = |user: Option<String>, secret: Option<SecretText>, demand: Option<Demand>| {
        (user.is_some() || secret.is_some() || demand.is_some()).then_some(NewChap { user, secret, demand })
    };
    Ok((given(chap_user, own, chap), given(mutual_user, ours, mutual)))
}

fn add(desk: &CommandContext, request: &NewHost) -> Result<(), Failure> {
    let answer = desk.client.post("/hosts", request, "host")?;
    let host: HostReport = answer.decode()?;
    let HostReport { name, authentication: proof, .. } = &host;
    desk.out.done(&answer, &format!("host {name} added: it {proof}; next: blockyard present VOLUME {name}"))
}

fn refused(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/refused", "refused", options, &[])?;
    let logins: Vec<RefusedLogin> = answer.decode()?;
    let row = |login: &RefusedLogin| {
        vec![
            login.last.to_string(),
            login.count.to_string(),
            login.address.to_string(),
            or_dash(login.initiator.as_ref()),
            match login.delay_ms {
                0 => login.reason(),
                ms => format!("{}; response delayed by {} ms", login.reason(), ms),
            },
            login.remedy(),
        ]
    };
    let header = &["LAST", "COUNT", "ADDRESS", "INITIATOR", "REASON", "FIX"];
    desk.out.rows(&answer, &Rows { header, rows: logins.iter().map(row).collect() })
}

fn explain(desk: &CommandContext, host: &Name, volume: &VolumeName) -> Result<(), Failure> {
    let asked = query(&[("volume", volume.to_string())]);
    let answer = desk.client.get(&format!("/hosts/{host}/explain?{asked}"), "explanation")?;
    let told: Explanation = answer.decode()?;
    let point = |point: &Point| {
        let mark = if point.passed { "  " } else { "! " };
        let remedy = point.remedy.as_ref().map_or(String::new(), |remedy| format!("; {remedy}"));
        format!("\n{mark}{}{remedy}", point.message)
    };
    let points: String = told.checks.iter().map(point).collect();
    let is_stopped = told.checks.iter().any(|point| !point.passed);
    let (how, but) = match (told.has_access, is_stopped) {
        (true, false) => ("has access to", ""),
        (true, true) => ("has access to", ", but cannot fully use it"),
        (false, _) => ("has no access to", ""),
    };
    desk.out.done(&answer, &format!("host {host} {how} volume {volume}{but}:{points}"))?;
    // The exit code lets scripts test whether the host can use the volume.
    if told.has_access && !is_stopped { Ok(()) } else { Err(Failure::Said) }
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/hosts", "hosts", options, &[])?;
    let hosts: Vec<HostReport> = answer.decode()?;
    let row = |host: &HostReport| {
        vec![
            host.name.to_string(),
            if host.any { "any".to_owned() } else { joined(&host.initiators) },
            if host.networks.is_empty() { "anywhere".to_owned() } else { joined(&host.networks) },
            or_dash(host.authentication.chap_user.as_ref()),
            or_dash(host.authentication.mutual_chap_user.as_ref()),
            host.presentations.to_string(),
        ]
    };
    let header = &["HOST", "INITIATORS", "FROM", "CHAP", "MUTUAL", "VOLUMES"];
    desk.out.rows(&answer, &Rows { header, rows: hosts.iter().map(row).collect() })
}

fn show(desk: &CommandContext, name: &Name) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/hosts/{name}"), "host")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let host: HostReport = answer.decode()?;
    let groups: Vec<HostGroupReport> = desk.client.get("/groups", "groups")?.decode()?;
    let groups: Vec<Name> = groups.into_iter().filter(|it| it.hosts.contains(name)).map(|it| it.name).collect();
    let seen: Vec<PresentationReport> = desk.client.get("/presentations", "presentations")?.decode()?;
    let sessions: Vec<SessionReport> = desk.client.get("/sessions", "sessions")?.decode()?;
    let facts = [
        ("initiators", if host.any { "any".to_owned() } else { joined(&host.initiators) }),
        ("allowed addresses", if host.networks.is_empty() { "anywhere".to_owned() } else { joined(&host.networks) }),
        ("authentication", host.authentication.to_string()),
        ("groups", if groups.is_empty() { "-".to_owned() } else { joined(&groups) }),
    ];
    let facts = facts.map(|(fact, value)| vec![fact.to_owned(), value]);
    let volume = |one: &PresentationReport| {
        let through = if one.host == *name { String::new() } else { format!(", through {}", one.host) };
        let access = if one.read_only { "read-only" } else { "read-write" };
        vec![one.lun.to_string(), one.volume.to_string(), format!("{access}{through}"), one.iqn.to_string()]
    };
    let is_seen =
        |one: &&PresentationReport| one.host == *name || groups.contains(&one.host) || one.host.as_str() == "everyone";
    let former = |one: &FormerLun| vec![one.lun.to_string(), one.volume.to_string(), one.target.to_string()];
    let session = |one: &SessionReport| {
        vec![one.id.to_string(), one.address.to_string(), one.portal.to_string(), duration(one.connected_seconds)]
    };
    let of_host = |one: &&SessionReport| one.host.as_ref() == Some(name);
    let volumes = seen.iter().filter(is_seen).map(volume).collect();
    let sessions = sessions.iter().filter(of_host).map(session).collect();
    desk.out.rows(&answer, &Rows { header: &["PROPERTY", "VALUE"], rows: facts.into() })?;
    desk.out.said("")?;
    desk.out.rows(&answer, &Rows { header: &["LUN", "VOLUME", "ACCESS", "TARGET"], rows: volumes })?;
    if !host.former_luns.is_empty() {
        desk.out.said("")?;
        let rows = host.former_luns.iter().map(former).collect();
        desk.out.rows(&answer, &Rows { header: &["FORMER LUN", "VOLUME", "TARGET"], rows })?;
    }
    desk.out.said("")?;
    desk.out.rows(&answer, &Rows { header: &["SESSION", "ADDRESS", "PORTAL", "CONNECTED"], rows: sessions })
}

pub(super) fn run_target(desk: &CommandContext, command: TargetCommand) -> Result<(), Failure> {
    match command {
        TargetCommand::List(options) => {
            let answer = desk.client.list("/targets", "targets", &options, &[])?;
            let targets: Vec<TargetReport> = answer.decode()?;
            let row = |target: &TargetReport| {
                vec![target.name.to_string(), target.iqn.to_string(), target.presentations.to_string()]
            };
            let header = &["TARGET", "IQN", "PRESENTATIONS"];
            desk.out.rows(&answer, &Rows { header, rows: targets.iter().map(row).collect() })
        }
        TargetCommand::Add { name, iqn } => {
            let answer = desk.client.post("/targets", &NewTarget { name, iqn }, "target")?;
            let target: TargetReport = answer.decode()?;
            desk.out.done(&answer, &format!("target {} added: {}", target.name, target.iqn))
        }
        TargetCommand::Remove { name, force } => {
            desk.client.delete(&format!("/targets/{name}{}", forced(force)))?;
            desk.out.said(&format!("target {name} removed"))
        }
    }
}
