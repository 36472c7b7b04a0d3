//! Commands `blockyard isns …`.

use super::{CommandContext, joined, or_dash};
use crate::args::IsnsCommand;
use crate::failure::Failure;
use crate::output::Rows;
use control::request::SetIsns;
use model::{IsnsReport, IsnsState};

pub(super) fn run(desk: &CommandContext, command: &IsnsCommand) -> Result<(), Failure> {
    match *command {
        IsnsCommand::Show => show(desk),
        IsnsCommand::Set { server } => {
            let answer = desk.client.put("/isns", &SetIsns { server: Some(server) }, "isns")?;
            desk.out.done(&answer, &format!("registering targets with {server}; see blockyard isns show"))
        }
        IsnsCommand::Off => {
            let answer = desk.client.put("/isns", &SetIsns { server: None }, "isns")?;
            desk.out.done(&answer, "iSNS registration is off")
        }
    }
}

fn show(desk: &CommandContext) -> Result<(), Failure> {
    let answer = desk.client.get("/isns", "isns")?;
    let IsnsReport { server, entity, state, targets, portals } = answer.decode()?;
    let state = match state {
        IsnsState::Off => "off".to_owned(),
        IsnsState::Nothing => "no target has mapped volumes, or no portal is open".to_owned(),
        IsnsState::Registered { last_confirmed: heard } => format!("registered, last confirmed {heard}"),
        IsnsState::Failing { reason: why } => format!("failing: {why}"),
    };
    let facts = [
        ("server", or_dash(server.as_ref())),
        ("state", state),
        ("entity", entity),
        ("targets", joined(&targets)),
        ("portals", joined(&portals)),
    ];
    let rows = facts.map(|(name, value)| vec![name.to_owned(), value]);
    desk.out.rows(&answer, &Rows { header: &["PROPERTY", "VALUE"], rows: rows.into() })
}
