//! Commands `blockyard auth …`.

use super::{CommandContext, hosts};
use crate::args::AuthCommand;
use crate::client::Answer;
use crate::failure::Failure;
use control::AuthReport;
use control::request::{SetAuth, SetDiscovery};

pub(super) fn run(desk: &CommandContext, command: AuthCommand) -> Result<(), Failure> {
    let request = match command {
        AuthCommand::Show => return told(desk, &desk.client.get("/auth", "auth")?),
        AuthCommand::Weakest { algorithm } => SetAuth { min_algorithm: Some(algorithm), discovery: None },
        AuthCommand::Discovery { chap, no_mutual, as_host, open } => {
            let discovery = match (as_host, open) {
                (true, _) => SetDiscovery::Host {},
                (_, true) => SetDiscovery::Open {},
                _ => {
                    let (chap, mutual_chap) = hosts::both(chap)?;
                    SetDiscovery::Own { chap, mutual_chap, no_mutual_chap: no_mutual }
                }
            };
            SetAuth { min_algorithm: None, discovery: Some(discovery) }
        }
    };
    told(desk, &desk.client.patch("/auth", &request, "auth")?)
}

fn told(desk: &CommandContext, answer: &Answer) -> Result<(), Failure> {
    let auth: AuthReport = answer.decode()?;
    let discovery = match &auth.discovery {
        None => "uses the credentials of the host".to_owned(),
        Some(own) => own.to_string(),
    };
    desk.out.done(answer, &format!("CHAP hash: {} or stronger\ndiscovery {discovery}", auth.min_algorithm))
}
