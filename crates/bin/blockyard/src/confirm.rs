//! What cannot be taken back is confirmed: with `--yes`, or by typing the name.

use crate::client::{Client, Seen};
use crate::failure::Failure;
use model::{Refusal, code};
use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// The operator wants what is at `path`, called `name`, gone. What is there is read before that is asked; nothing is read with `yes`.
///
/// *Errors*: it is not there, nobody could be asked, or another name was typed.
pub(crate) fn destruction(
    client: &Client,
    (path, noun): (&str, &'static str),
    name: &impl Display,
    yes: bool,
) -> Result<Option<Seen>, Failure> {
    if yes {
        return Ok(None);
    }
    let seen = client.look(path, noun)?;
    let message = format!("{noun} {name} and everything on it would be gone");
    repetition(name, Refusal::new(code::UNCONFIRMED, message, "repeat with --yes if that is wanted"))?;
    Ok(Some(seen))
}

/// The operator wants what was refused until it is confirmed, and types `name` to say so.
///
/// *Errors*: the refusal, when nobody could be asked or another name was typed.
pub(crate) fn repetition(name: &impl Display, unconfirmed: Refusal) -> Result<(), Failure> {
    typed(&name.to_string(), "its name", unconfirmed)
}

/// The operator wants all of it, and types `word` to say so.
///
/// *Errors*: the refusal, when nobody could be asked or something else was typed.
pub(crate) fn agreement(word: &str, unconfirmed: Refusal) -> Result<(), Failure> {
    typed(word, word, unconfirmed)
}

fn typed(wanted: &str, called: &str, unconfirmed: Refusal) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(unconfirmed.into());
    }
    let mut typed = String::new();
    eprint!("{}. Type {called} to go on: ", unconfirmed.message);
    let asked = std::io::stderr().flush().and_then(|()| std::io::stdin().read_line(&mut typed));
    match asked {
        Ok(_) if typed.trim() == wanted => Ok(()),
        _ => {
            let hint = format!("type {called} exactly, or repeat with --yes");
            Err(Refusal::new(unconfirmed.code, unconfirmed.message, hint).into())
        }
    }
}
