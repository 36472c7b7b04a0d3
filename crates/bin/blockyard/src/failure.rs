//! How a command ends when it does not end well: one sentence and an exit code.

use crate::args::Cli;
use crate::nearest::nearest;
use crate::output::put;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Command, CommandFactory};
use model::{Kind, Refusal, code};
use std::error::Error as _;
use std::process::ExitCode;

/// The exit code of a daemon that has stopped though not everything had ended.
pub(crate) const UNENDED: u8 = 9;

/// The sentence of a refusal names so many sessions.
const SESSIONS_NAMED: usize = 3;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Refused, with nothing changed. Exit code 2 for what makes no sense, 3 for what is not there, 4 for what may not be so now, 5 for who may not, else 1.
    Refused(Refusal),
    /// The command line or the configuration file makes no sense. Exit code 2.
    Usage(String),
    /// No daemon answers. Exit code 6.
    NoDaemon(Refusal),
    /// It could not be done, and this says why. Exit code 1.
    Failed(anyhow::Error),
    /// Not all is good, as it was asked. Exit code 7.
    NotGood,
    /// It has not ended, or not come back, in the time that was given. Exit code 8.
    Late(Refusal),
    /// The daemon has stopped, though not everything had ended in its time. Exit code 9.
    Unended(Refusal),
    /// Something would change, as it was asked. Exit code 10.
    Pending,
    /// Everything was said already; only the exit code is left, 1.
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
    /// The sentence is on stderr.
    pub(crate) fn report(self) -> ExitCode {
        if let Self::Refused(refusal) = &self
            && refusal.sessions.len() > SESSIONS_NAMED
        {
            refusal.sessions.iter().for_each(|session| eprintln!("{session}"));
        }
        let (sentence, exit) = match self {
            Self::Refused(refusal) => (format!("{refusal} ({})", refusal.code), code_of(refusal.kind())),
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

    /// A refusal that is the fault of the command line or the configuration.
    pub(crate) fn usage(refusal: &Refusal) -> Self {
        debug_assert_eq!(refusal.kind(), Kind::Invalid, "a usage error is about what was written");
        Self::Usage(format!("{refusal} ({})", refusal.code))
    }
}

/// What a script goes by.
fn code_of(kind: Kind) -> u8 {
    match kind {
        Kind::Invalid => 2,
        Kind::NotFound => 3,
        Kind::Refused => 4,
        Kind::Forbidden | Kind::Unproven => 5,
        _ => 1,
    }
}

/// Help that was asked for goes to stdout and is no failure; a usage error is one sentence.
pub(crate) fn of_usage(error: &Error) -> Result<(), Failure> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return put(&error.to_string());
    }
    if let Some(refusal) = error.source().and_then(|source| source.downcast_ref::<Refusal>()) {
        return Err(Failure::usage(refusal));
    }
    let text = error.to_string();
    let (path, command) = command_asked();
    let see = format!("see {path} --help");
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "",
    };
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(Failure::Usage(format!("a command is missing; {see}")));
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
    let first: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let sentence = first.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let hint = tip.map_or(see, str::to_owned);
    Err(Failure::Usage(format!("{sentence}; {hint}")))
}

/// The hint at what was meant; where nothing is near, at the help.
fn meant_or(meant: &[String], see: String) -> String {
    if meant.is_empty() { see } else { format!("did you mean {}?", meant.join(" or ")) }
}

/// The command that was asked for, as far as it was understood, and what leads to it: `blockyard pool create`.
fn command_asked() -> (String, Command) {
    let mut root = Cli::command();
    // Global options are known to every command then.
    root.build();
    let mut at = &root;
    let mut words = vec![root.get_name().to_owned()];
    for argument in std::env::args().skip(1) {
        if let Some(inner) = at.find_subcommand(&argument) {
            words.push(inner.get_name().to_owned());
            at = inner;
        }
    }
    (words.join(" "), at.clone())
}
