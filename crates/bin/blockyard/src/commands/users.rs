//! Commands `blockyard user …` and `blockyard token …`.

use super::{CommandContext, joined, or_dash};
use crate::args::{ListOptions, TokenCommand, UserCommand};
use crate::failure::Failure;
use crate::output::{Rows, put};
use api::request::{NewLink, NewToken, NewUser, Password, SetUser};
use model::{LinkReport, LoginReport, Name, NewTokenReport, Refusal, Role, TokenReport, UserReport, code};
use std::path::Path;

/// Limit in bytes of a password file, longer than any password.
const FILE_BYTES_MAX: u64 = 4096;

pub(super) fn run(desk: &CommandContext, command: UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Add { name, role, password_file } => add(desk, name, role, password_file.as_deref()),
        UserCommand::List(options) => list(desk, &options),
        UserCommand::Set { name, role, password_file, no_second_factor } => {
            let password = password_file.map(|path| read(&path)).transpose()?;
            let answer = desk.client.patch(&path_of(&name), &SetUser { role, password, no_second_factor }, "user")?;
            let user: UserReport = answer.decode()?;
            desk.out.done(&answer, &format!("user {name} changed: role {}; its logins were ended", user.role))
        }
        UserCommand::Logins(options) => logins(desk, &options),
        UserCommand::Logout { id } => {
            desk.client.delete(&format!("/logins/{id}"))?;
            desk.out.said(&format!("login {id} ended"))
        }
        UserCommand::Remove { name } => {
            desk.client.delete(&path_of(&name))?;
            desk.out.said(&format!("user {name} removed"))
        }
    }
}

pub(super) fn run_token(desk: &CommandContext, command: TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Create { name, role, scopes, lasts } => {
            let answer = desk.client.post("/tokens", &NewToken { name, role, scopes, valid_for: lasts }, "token")?;
            if desk.out.is_json() {
                return desk.out.json(&answer);
            }
            let NewTokenReport { report, secret } = answer.decode()?;
            // The token goes to stdout alone, so that it can be redirected to a file.
            if !desk.out.is_quiet() {
                eprintln!("token {} is valid until {}; it is shown only once", report.name, report.until);
            }
            put(&format!("{secret}\n"))
        }
        TokenCommand::List(options) => tokens(desk, &options),
        TokenCommand::Revoke { name } => {
            desk.client.delete(&format!("/tokens/{name}"))?;
            desk.out.said(&format!("token {name} revoked"))
        }
    }
}

/// Prints a login link to stdout.
pub(super) fn link(desk: &CommandContext, user: Option<Name>, role: Option<Role>) -> Result<(), Failure> {
    let answer = desk.client.post("/web/links", &NewLink { user, role }, "link")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let LinkReport { url, until } = answer.decode()?;
    // Only the URL goes to standard output, so that a script can pass it on.
    if !desk.out.is_quiet() {
        eprintln!("one-time link, valid until {until}:");
    }
    put(&format!("{url}\n"))
}

fn add(desk: &CommandContext, name: Name, role: Role, file: Option<&Path>) -> Result<(), Failure> {
    let from_environment = || std::env::var("BLOCKYARD_PASSWORD").ok().map(Password::new);
    let password = file.map(read).transpose()?.or_else(from_environment);
    let invited = password.is_none();
    let answer = desk.client.post("/users", &NewUser { name: name.clone(), role, password }, "user")?;
    desk.out.done(&answer, &format!("user {name} can log in with role {role}"))?;
    // Without a password the user gets a one-time link to set one.
    if invited && !desk.out.is_json() { link(desk, Some(name), None) } else { Ok(()) }
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/users", "users", options, &[])?;
    let row = |user: UserReport| {
        vec![
            user.name.to_string(),
            user.role.to_string(),
            if user.second_factor { "yes" } else { "no" }.to_owned(),
            or_dash(user.password_set),
            user.logins.to_string(),
        ]
    };
    let rows = answer.decode::<Vec<UserReport>>()?.into_iter().map(row).collect();
    desk.out.rows(&answer, &Rows { header: &["USER", "ROLE", "SECOND FACTOR", "PASSWORD SET", "LOGINS"], rows })
}

fn logins(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/logins", "logins", options, &[])?;
    let row = |login: LoginReport| {
        vec![
            login.id,
            login.user.to_string(),
            login.address.to_string(),
            login.started.to_string(),
            login.last_seen.to_string(),
            login.until.to_string(),
            if login.agent.is_empty() { "-".to_owned() } else { login.agent },
        ]
    };
    let rows = answer.decode::<Vec<LoginReport>>()?.into_iter().map(row).collect();
    desk.out.rows(
        &answer,
        &Rows { header: &["LOGIN", "USER", "ADDRESS", "STARTED", "LAST SEEN", "EXPIRES", "BROWSER"], rows },
    )
}

fn tokens(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/tokens", "tokens", options, &[])?;
    let row = |token: TokenReport| {
        vec![
            token.name.to_string(),
            token.role.to_string(),
            joined(&token.scopes),
            token.created_by.map_or("root".to_owned(), |maker| maker.to_string()),
            token.until.to_string(),
            or_dash(token.used),
        ]
    };
    let rows = answer.decode::<Vec<TokenReport>>()?.into_iter().map(row).collect();
    desk.out.rows(&answer, &Rows { header: &["TOKEN", "ROLE", "SCOPES", "CREATOR", "EXPIRES", "LAST USED"], rows })
}

fn path_of(name: &Name) -> String {
    format!("/users/{name}")
}

/// Reads the password from a file. One line break at the end is not part of it.
fn read(path: &Path) -> Result<Password, Failure> {
    let read = bounded::source_or_stdin(path, FILE_BYTES_MAX).and_then(bounded::text_of);
    let mut text = read.map_err(|error| {
        let message = format!("the password file {} cannot be read: {error}", path.display());
        Refusal::new(code::IO_FAILED, message, "give a file that contains only the password, or - for standard input")
    })?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(Password::new(text))
}
