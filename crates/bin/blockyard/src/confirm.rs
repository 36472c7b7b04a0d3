//! Destruction is confirmed: with `--yes`, or by typing the name.

use crate::failure::Failure;
use model::{Refusal, code};
use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// The operator wants `what` called `name` gone.
///
/// *Errors*: nobody could be asked, or another name was typed.
pub fn destruction(what: &str, name: &impl Display, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let unconfirmed = |hint: &str| {
        let message = format!("{what} {name} and everything on it would be gone");
        Failure::from(Refusal::new(code::UNCONFIRMED, message, hint))
    };
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(unconfirmed("repeat with --yes if that is wanted"));
    }
    eprint!("This destroys {what} {name} and everything on it. Type its name to go on: ");
    let mut typed = String::new();
    let asked = std::io::stderr().flush().and_then(|()| std::io::stdin().read_line(&mut typed));
    match asked {
        Ok(_) if typed.trim() == name.to_string() => Ok(()),
        _ => Err(unconfirmed("type its name exactly, or repeat with --yes")),
    }
}
