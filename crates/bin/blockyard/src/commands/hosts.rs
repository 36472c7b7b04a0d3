//! `blockyard host …` and `blockyard target …`

use super::{Desk, joined, or_dash};
use crate::args::{HostCommand, TargetCommand};
use crate::failure::Failure;
use crate::output::Rows;
use crate::secret;
use control::request::{NewChap, NewHost, NewTarget, SecretText};
use control::{HostReport, TargetReport};
use std::path::Path;

pub fn run(desk: &Desk, command: HostCommand) -> Result<(), Failure> {
    match command {
        HostCommand::List => list(desk),
        HostCommand::Add {
            name,
            initiators,
            any,
            networks,
            chap_user,
            chap_secret_file,
            mutual_user,
            mutual_secret_file,
        } => {
            let both = [&chap_secret_file, &mutual_secret_file].map(|file| file.as_deref() == Some(Path::new("-")));
            if both == [true, true] {
                let sentence = "standard input cannot hold both secrets; put one of them into a file";
                return Err(Failure::Usage(sentence.to_owned()));
            }
            let own = secret::read(chap_secret_file.as_deref(), "BLOCKYARD_CHAP_SECRET")?;
            let mutual = secret::read(mutual_secret_file.as_deref(), "BLOCKYARD_MUTUAL_SECRET")?;
            let request = NewHost {
                name,
                initiators,
                any,
                networks,
                chap: chap(chap_user, own, "--chap-user needs --chap-secret-file")?,
                mutual_chap: chap(mutual_user, mutual, "--mutual-user needs --mutual-secret-file")?,
            };
            add(desk, &request)
        }
        HostCommand::Remove { name } => {
            desk.client.delete(&format!("/hosts/{name}"))?;
            desk.out.said(&format!("host {name} is forgotten"))
        }
    }
}

/// A CHAP name with its secret, or neither.
fn chap(user: Option<String>, secret: Option<SecretText>, lone: &str) -> Result<Option<NewChap>, Failure> {
    match (user, secret) {
        (user, Some(secret)) => Ok(Some(NewChap { user, secret })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::Usage(format!("{lone}; name a file that holds the secret alone"))),
    }
}

fn add(desk: &Desk, request: &NewHost) -> Result<(), Failure> {
    let answer = desk.client.post("/hosts", request, "host")?;
    let host: HostReport = answer.decode()?;
    let name = &host.name;
    let proof = match (&host.chap_user, &host.mutual_chap_user) {
        (Some(user), Some(ours)) => format!("proves itself as {user} and checks us as {ours}"),
        (Some(user), None) => format!("proves itself as {user}"),
        (None, _) => "is believed without proof".to_owned(),
    };
    desk.out.done(&answer, &format!("host {name} added, it {proof}; next: blockyard present VOLUME {name}"))
}

fn list(desk: &Desk) -> Result<(), Failure> {
    let answer = desk.client.get("/hosts", "hosts")?;
    let hosts: Vec<HostReport> = answer.decode()?;
    let row = |host: &HostReport| {
        vec![
            host.name.to_string(),
            if host.any { "any".to_owned() } else { joined(&host.initiators) },
            if host.networks.is_empty() { "anywhere".to_owned() } else { joined(&host.networks) },
            or_dash(host.chap_user.as_ref()),
            or_dash(host.mutual_chap_user.as_ref()),
            host.presentations.to_string(),
        ]
    };
    let header = &["HOST", "INITIATORS", "FROM", "CHAP", "MUTUAL", "VOLUMES"];
    desk.out.rows(&answer, &Rows { header, rows: hosts.iter().map(row).collect() })
}

pub fn run_target(desk: &Desk, command: TargetCommand) -> Result<(), Failure> {
    match command {
        TargetCommand::List => {
            let answer = desk.client.get("/targets", "targets")?;
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
        TargetCommand::Remove { name } => {
            desk.client.delete(&format!("/targets/{name}"))?;
            desk.out.said(&format!("target {name} is served no more"))
        }
    }
}
