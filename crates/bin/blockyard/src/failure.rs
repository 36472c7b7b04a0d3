//! Failures of a command: one sentence on stderr and an exit code.

use crate::args::Cli;
use crate::nearest::nearest;
use crate::output::put;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Command, CommandFactory};
use model::{Kind, Refusal, code};
use std::error::Error as _;
use std::process::ExitCode;

/// Exit code of a daemon that has stopped before everything had ended.
pub(crate) const UNENDED: u8 = 9;

/// Number of sessions that the sentence of a refusal names; more are listed on lines of their own.
const SESSIONS_NAMED: usize = 3;

/// Reason for which a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Refused, with nothing changed. Exit code 2 for invalid input, 3 for an unknown object, 4 for a conflict with the
    /// current state, 5 for missing permission, else 1.
    Refused(Refusal),
    /// Invalid command line or configuration file. Exit code 2.
    Usage(String),
    /// No daemon answers. Exit code 6.
    NoDaemon(Refusal),
    /// Failed with this error. Exit code 1.
    Failed(anyhow::Error),
    /// Not everything is healthy (`status --check`). Exit code 7.
    NotGood,
    /// Operation not finished, or initiator not logged in again, within the given time. Exit code 8.
    Late(Refusal),
    /// Daemon stopped, but not everything had ended in its time. Exit code 9.
    Unended(Refusal),
    /// The document would change something (`diff --exit-code`). Exit code 10.
    Pending,
    /// Everything was printed already; exit code 1 remains.
    Said,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal.code {
            code::DAEMON_UNREACHABLE => Self::NoDaemon(refusal),
            code::TIMED_OUT | code::INITIATOR_LATE => Self::Late(refusal),
            code::STOP_INCOMPLETE => Self::Unended(refusal),
            _ => Self::Refused(refusal),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl Failure {
    /// Prints the sentence to stderr, and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        // The sentence names the first sessions only, and an operator has to know all of them.
        if let Self::Refused(refusal) = &self
            && refusal.sessions.len() > SESSIONS_NAMED
        {
            refusal.sessions.iter().for_each(|session| eprintln!("{session}"));
        }
        let (sentence, exit) = match self {
            Self::Refused(refusal) => (format!("{refusal} ({})", refusal.code), code_of(refusal.kind())),
            // The alternate form has the chain of causes in one line.
            Self::Failed(error) => (format!("{error:#}"), 1),
            Self::Usage(sentence) => (sentence, 2),
            Self::NoDaemon(refusal) => (format!("{refusal} ({})", refusal.code), 6),
            Self::Late(refusal) => (format!("{refusal} ({})", refusal.code), 8),
            Self::Unended(refusal) => (format!("{refusal} ({})", refusal.code), UNENDED),
            Self::NotGood => return ExitCode::from(7),
            Self::Pending => return ExitCode::from(10),
            Self::Said => return ExitCode::from(1),
        };
        eprintln!("blockyard: {sentence}");
        ExitCode::from(exit)
    }

    /// Converts a refusal that is caused by the command line or the configuration.
    pub(crate) fn usage(refusal: &Refusal) -> Self {
        debug_assert_eq!(refusal.kind(), Kind::Invalid, "a usage error is about what was written");
        Self::Usage(format!("{refusal} ({})", refusal.code))
    }
}

/// Returns the exit code for scripts.
fn code_of(kind: Kind) -> u8 {
    match kind {
        Kind::Invalid => 2,
        Kind::NotFound => 3,
        Kind::Refused => 4,
        Kind::Forbidden | Kind::Unproven => 5,
        _ => 1,
    }
}

/// Handles an error of clap: requested help goes to stdout and is no failure; a usage error becomes one sentence.
pub(crate) fn of_usage(error: &Error) -> Result<(), Failure> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return put(&error.to_string());
    }
    // Parsers of option values fail with a refusal, which is a sentence already.
    if let Some(refusal) = error.source().and_then(|source| source.downcast_ref::<Refusal>()) {
        return Err(Failure::usage(refusal));
    }
    // clap's own texts span several lines; scripts and the log need one.
    let text = error.to_string();
    let (path, command) = command_asked();
    let see = format!("see {path} --help");
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "",
    };
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(Failure::Usage(format!("no command given; {see}")));
        }
        ErrorKind::InvalidSubcommand => {
            let word = word(ContextKind::InvalidSubcommand);
            let names = command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(Command::get_name);
            let meant: Vec<String> = nearest(word, names).iter().map(|name| format!("{path} {name}")).collect();
            let asked = format!("{path} {word}");
            let asked = bounded::quoted(asked.trim_start_matches("blockyard "));
            return Err(Failure::Usage(format!("unknown command {asked}; {}", meant_or(&meant, see))));
        }
        ErrorKind::UnknownArgument if word(ContextKind::InvalidArg).starts_with('-') => {
            let word = word(ContextKind::InvalidArg);
            let names =
                command.get_arguments().filter(|known| !known.is_hide_set()).filter_map(|known| known.get_long());
            let meant = nearest(word.trim_start_matches('-'), names);
            let meant: Vec<String> = meant.iter().map(|name| format!("--{name}")).collect();
            let sentence = format!("unknown option {} of {path}; {}", bounded::quoted(word), meant_or(&meant, see));
            return Err(Failure::Usage(sentence));
        }
        _ => {}
    }
    // Any other error: clap's first paragraph, joined, without its prefix.
    let first: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let sentence = first.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let hint = tip.map_or(see, str::to_owned);
    Err(Failure::Usage(format!("{sentence}; {hint}")))
}

/// Returns the suggestion, or the pointer to `--help` if no name is near.
fn meant_or(meant: &[String], see: String) -> String {
    if meant.is_empty() { see } else { format!("did you mean {}?", meant.join(" or ")) }
}

/// Returns the command line's command as far as it was understood, with its path: `blockyard pool create`.
fn command_asked() -> (String, Command) {
    let mut root = Cli::command();
    // `build` propagates global options to every command, so that they can be suggested.
    root.build();
    let mut at = &root;
    let mut words = vec![root.get_name().to_owned()];
    // A value that equals the name of a command leads to a less exact hint, and no more.
    for argument in std::env::args().skip(1) {
        if let Some(inner) = at.find_subcommand(&argument) {
            words.push(inner.get_name().to_owned());
            at = inner;
        }
    }
    (words.join(" "), at.clone())
}
