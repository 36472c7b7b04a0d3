//! `--every`: the same list or show, again and again.

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::put;
use clap::{CommandFactory, FromArgMatches};
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

/// Verbs, and commands of one word, that only look.
const LOOKS: [&str; 11] =
    ["active", "check", "doctor", "latency", "list", "logins", "refused", "show", "silenced", "status", "tasks"];

/// The cursor is at the top left of an empty terminal.
const CLEARED: &str = "\x1b[H\x1b[2J\x1b[3J";

/// The command is run each so many seconds until somebody ends it, or it fails. On a terminal an answer takes the place of the one before.
///
/// *Errors*: it is a command that changes something, or that goes on by itself.
pub(crate) fn again(seconds: u64, run: impl Fn(Command) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut verb = None;
    let matches = Cli::command().get_matches();
    let mut at = &matches;
    while let Some((name, inner)) = at.subcommand() {
        (verb, at) = (Some(name), inner);
    }
    let goes_on = at.try_get_one::<bool>("follow").ok().flatten().is_some_and(|follow| *follow);
    if goes_on || !verb.is_some_and(|verb| LOOKS.contains(&verb)) {
        let sentence = "--every is for what only looks, such as list, show and status; leave it out";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    let is_terminal = io::stdout().is_terminal();
    loop {
        if is_terminal {
            put(CLEARED)?;
        }
        let cli = Cli::from_arg_matches(&matches).map_err(|error| Failure::Usage(error.to_string()))?;
        run(cli.command)?;
        thread::sleep(Duration::from_secs(seconds));
    }
}
