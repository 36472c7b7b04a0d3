//! Option `--every`: repeats a list or show command.

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::put;
use clap::{CommandFactory, FromArgMatches};
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

/// Verbs, and commands of one word, that are read-only.
const READ_ONLY_VERBS: [&str; 11] =
    ["active", "check", "denied", "doctor", "latency", "list", "logins", "show", "silenced", "status", "tasks"];

/// Escape sequence that clears the terminal and its scroll-back, and moves the cursor to the top left.
const CLEARED: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Runs the command at this interval in seconds until it is interrupted or fails. On a terminal each answer replaces
/// the one before.
///
/// *Errors*: the command changes something, or does not end by itself.
pub(crate) fn repeat_command(seconds: u64, run: impl Fn(Command) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut verb = None;
    // Parsed again, since [`Cli`] cannot be cloned and `run` consumes its command.
    let matches = Cli::command().get_matches();
    let mut at = &matches;
    while let Some((name, inner)) = at.subcommand() {
        (verb, at) = (Some(name), inner);
    }
    // A command that follows has no end, so there is nothing to repeat.
    let goes_on = at.try_get_one::<bool>("follow").ok().flatten().is_some_and(|follow| *follow);
    if goes_on || !verb.is_some_and(|verb| READ_ONLY_VERBS.contains(&verb)) {
        let sentence = "--every works only with read-only commands, such as list, show and status; omit it";
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
