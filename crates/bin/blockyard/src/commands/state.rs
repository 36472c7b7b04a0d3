//! Commands `blockyard state …`.

use super::{CommandContext, or_dash};
use crate::args::StateCommand;
use crate::failure::Failure;
use crate::output::Rows;
use control::StateReport;

pub(super) fn run(desk: &CommandContext, command: &StateCommand) -> Result<(), Failure> {
    match command {
        StateCommand::Show => show(desk),
        StateCommand::Recover(_) => unreachable!("it needs no daemon and runs before"),
        StateCommand::Accept => {
            let answer = desk.client.post("/state/accept", &serde_json::json!({}), "state")?;
            let state: StateReport = answer.decode()?;
            desk.out
                .done(&answer, &format!("version {} of the state accepted; changes are allowed again", state.version))
        }
    }
}

fn show(desk: &CommandContext) -> Result<(), Failure> {
    let answer = desk.client.get("/state", "state")?;
    let StateReport { version, kept, changes_refused: held } = answer.decode()?;
    let span = kept.first().zip(kept.last()).map(|(first, last)| format!("{first} to {last}, {} versions", kept.len()));
    let facts = [
        ("version", version.to_string()),
        ("stored", or_dash(span)),
        ("changes", held.unwrap_or_else(|| "accepted".to_owned())),
    ];
    let rows = facts.map(|(name, value)| vec![name.to_owned(), value]);
    desk.out.rows(&answer, &Rows { header: &["PROPERTY", "VALUE"], rows: rows.into() })
}
