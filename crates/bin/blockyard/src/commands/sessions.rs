//! Commands `blockyard session …`.

use super::new_file::NewFile;
use super::{CommandContext, joined, latency, or_dash};
use crate::args::{ListOptions, SessionCommand};
use crate::client::query;
use crate::failure::Failure;
use crate::output::Rows;
use crate::progress::duration;
use control::Summary;
use model::{ConnectionReport, ConnectionState, Refusal, SessionDetail, SessionEnd, SessionReport, Size, code};
use std::path::Path;

pub(super) fn run(desk: &CommandContext, command: &SessionCommand) -> Result<(), Failure> {
    match *command {
        SessionCommand::List(ref options) => list(desk, options),
        SessionCommand::Show { id } => show(desk, id),
        SessionCommand::Record { id, from, ref to, time, bytes_max } => record(
            desk,
            to,
            &[
                ("session", said(id)),
                ("from", said(from)),
                ("for", said(time)),
                ("max", bytes_max.map(|size| size.exact())),
            ],
        ),
        SessionCommand::Kill { id, cid: Some(cid), .. } => {
            let answer = desk.client.delete_for(&format!("/sessions/{id}?cid={cid}"), "ended")?;
            desk.out.done(&answer, &format!("connection {cid} of session {id} closed"))
        }
        SessionCommand::Kill { id, now, cid: None } => {
            let asked = query(&[("now", now.to_string())]);
            let answer = desk.client.delete_for(&format!("/sessions/{id}?{asked}"), "ended")?;
            let how = match answer.decode()? {
                SessionEnd::LoggedOut => "the initiator logged out",
                SessionEnd::Dropped => "its connections were closed",
            };
            desk.out.done(&answer, &format!("session {id} closed: {how}"))
        }
    }
}

fn said(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// Writes a recording to a file until it ends. A reader of standard output that closes the pipe ends it as well.
fn record(desk: &CommandContext, to: &Path, asked: &[(&str, Option<String>)]) -> Result<(), Failure> {
    let asked: Vec<_> = asked.iter().filter_map(|(key, value)| Some((*key, value.clone()?))).collect();
    let path = format!("/recording?{}", query(&asked));
    let mut file = NewFile::at(to);
    // Holds at most one summary, so a recording of any length needs no memory.
    let mut end = Vec::new();
    let saved = desk.client.fetch(&path, |bytes| {
        file.put(bytes)?;
        end.extend_from_slice(bytes);
        // The last bytes of the stream are the summary; which ones, is known only at the end.
        end.drain(..end.len().saturating_sub(Summary::BYTES));
        Ok(())
    });
    if !file.is_saved(saved?)? {
        return Ok(());
    }
    // No summary: the connection broke, and the file ends at an arbitrary packet.
    let Some(Summary { packets, lost }) = Summary::of(&end) else {
        let message = format!("the connection to the daemon was lost; {} is incomplete", to.display());
        return Err(Refusal::new(code::DAEMON_UNREACHABLE, message, "check the daemon log").into());
    };
    let missing =
        if lost == 0 { String::new() } else { format!(", {lost} dropped because they could not be written in time") };
    // Standard output carries the file, so no text may follow.
    if file.is_stdout() {
        return Ok(());
    }
    desk.out.said(&format!("{packets} packets written to {}{missing}", to.display()))
}

fn show(desk: &CommandContext, id: u32) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/sessions/{id}"), "session")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let SessionDetail { session, window, latencies } = answer.decode()?;
    let window = window.map_or("-".to_owned(), |window| {
        // Serial number arithmetic (RFC 1982): both numbers wrap at 2^32.
        // The window includes MaxCmdSN itself (RFC 7143 §4.2.2.1), hence the one.
        let open = window.max_cmd_sn.wrapping_sub(window.exp_cmd_sn).wrapping_add(1);
        format!("ExpCmdSN {}, MaxCmdSN {}: {open} more commands accepted", window.exp_cmd_sn, window.max_cmd_sn)
    });
    let proof = match &session.chap_user {
        Some(user) if session.mutual => format!("{} as {user}, mutual", session.authentication),
        Some(user) => format!("{} as {user}", session.authentication),
        None => session.authentication.clone(),
    };
    let facts = [
        ("host", or_dash(session.host.as_ref())),
        ("initiator", session.initiator.clone()),
        ("ISID", session.isid.clone()),
        ("address", session.address.to_string()),
        ("portal", session.portal.to_string()),
        ("target", session.target.clone().unwrap_or_else(|| "discovery".to_owned())),
        ("LUNs", joined(&session.luns)),
        ("reservations", reservations(&session)),
        ("authenticated", proof),
        ("connected", duration(session.connected_seconds)),
        ("commands", session.commands.to_string()),
        ("read", Size::new(session.read_bytes).to_string()),
        ("written", Size::new(session.written_bytes).to_string()),
        ("window", window),
    ];
    let facts = facts.map(|(name, value)| vec![name.to_owned(), value]).into_iter();
    let connections: Vec<_> = session.connections.iter().map(connection_row).collect();
    let keys = session.negotiated.into_iter().map(|(key, value)| vec![key, value]);
    desk.out.rows(&answer, &Rows { header: &["PROPERTY", "VALUE"], rows: facts.chain(keys).collect() })?;
    desk.out.said("")?;
    desk.out.rows(&answer, &Rows { header: &["CID", "ADDRESS", "PORTAL", "STATE", "DIGESTS"], rows: connections })?;
    if latencies.is_empty() {
        return Ok(());
    }
    desk.out.said("")?;
    desk.out.rows(&answer, &latency::rows(&latencies))
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/sessions", "sessions", options, &[])?;
    let sessions: Vec<SessionReport> = answer.decode()?;
    let header = &[
        "ID",
        "HOST",
        "ADDRESS",
        "PORTAL",
        "LUNS",
        "AUTH",
        "DIGESTS",
        "COMMANDS",
        "READ",
        "WRITTEN",
        "CONNECTED",
        "RESERVATIONS",
        "ISID",
        // Last, because initiator names are long and would move all further columns.
        "INITIATOR",
    ];
    desk.out.rows(&answer, &Rows { header, rows: sessions.iter().map(row).collect() })
}

fn row(session: &SessionReport) -> Vec<String> {
    // Facts of the first connection, with the number of further ones.
    let more = match session.connections.len() {
        0 | 1 => String::new(),
        all => format!(" +{}", all - 1),
    };
    let mutual = if session.mutual { ", mutual" } else { "" };
    vec![
        session.id.to_string(),
        or_dash(session.host.as_ref()),
        format!("{}{more}", session.address),
        format!("{}{more}", session.portal),
        joined(&session.luns),
        format!("{}{mutual}", session.authentication),
        digests(session.header_digest, session.data_digest),
        session.commands.to_string(),
        Size::new(session.read_bytes).iec(),
        Size::new(session.written_bytes).iec(),
        duration(session.connected_seconds),
        reservations(session),
        session.isid.clone(),
        session.initiator.clone(),
    ]
}

/// Formats the roles in reservations: `holds tank/a, shares tank/b`.
fn reservations(session: &SessionReport) -> String {
    let all: Vec<String> = session.reservations.iter().map(|one| format!("{} {}", one.role, one.volume)).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

fn connection_row(connection: &ConnectionReport) -> Vec<String> {
    let state = match connection.state {
        ConnectionState::Open => "open",
        ConnectionState::Lost => "lost",
    };
    vec![
        connection.cid.to_string(),
        connection.address.to_string(),
        connection.portal.to_string(),
        state.to_owned(),
        digests(connection.header_digest, connection.data_digest),
    ]
}

fn digests(header: bool, data: bool) -> String {
    match (header, data) {
        (true, true) => "header,data",
        (true, false) => "header",
        (false, true) => "data",
        (false, false) => "-",
    }
    .to_owned()
}
