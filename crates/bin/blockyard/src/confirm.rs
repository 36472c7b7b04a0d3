//! Confirmation of irreversible actions: `--yes`, or typing the name.

use crate::client::{Client, ReadVersion};
use crate::failure::Failure;
use model::{Refusal, code};
use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// Asks for confirmation that the object `name` at `path` is destroyed. The object is read before the question, so that
/// only that version is destroyed; with `yes` nothing is read.
///
/// *Errors*: it does not exist, there is no terminal, or another name was typed.
pub(crate) fn destruction(
    client: &Client,
    (path, noun): (&str, &'static str),
    name: &impl Display,
    yes: bool,
) -> Result<Option<ReadVersion>, Failure> {
    if yes {
        return Ok(None);
    }
    let seen = client.read_version(path, noun)?;
    let message = format!("{noun} {name} and all of its data would be deleted");
    repetition(name, Refusal::new(code::UNCONFIRMED, message, "repeat with --yes to confirm"))?;
    Ok(Some(seen))
}

/// Asks for confirmation, by typing `name`, of an action that was refused as unconfirmed.
///
/// *Errors*: the refusal, if there is no terminal or another name was typed.
pub(crate) fn repetition(name: &impl Display, unconfirmed: Refusal) -> Result<(), Failure> {
    typed(&name.to_string(), "its name", unconfirmed)
}

/// Asks for confirmation, by typing `word`, of all listed actions.
///
/// *Errors*: the refusal, if there is no terminal or another word was typed.
pub(crate) fn agreement(word: &str, unconfirmed: Refusal) -> Result<(), Failure> {
    typed(word, word, unconfirmed)
}

fn typed(wanted: &str, called: &str, unconfirmed: Refusal) -> Result<(), Failure> {
    // Both must be a terminal: a question in a log file would not be seen, and an answer from a pipe would not be
    // meant.
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(unconfirmed.into());
    }
    let mut typed = String::new();
    eprint!("{}. Type {called} to continue: ", unconfirmed.message);
    let asked = std::io::stderr().flush().and_then(|()| std::io::stdin().read_line(&mut typed));
    match asked {
        Ok(_) if typed.trim() == wanted => Ok(()),
        _ => {
            let hint = format!("type {called} exactly, or repeat with --yes");
            Err(Refusal::new(unconfirmed.code, unconfirmed.message, hint).into())
        }
    }
}
