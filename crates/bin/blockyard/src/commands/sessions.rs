//! `blockyard session …`

use super::{Desk, joined, latency, or_dash};
use crate::args::SessionCommand;
use crate::client::query;
use crate::failure::Failure;
use crate::output::Rows;
use crate::progress::duration;
use model::{SessionDetail, SessionEnd, SessionReport, Size};

pub fn run(desk: &Desk, command: &SessionCommand) -> Result<(), Failure> {
    match *command {
        SessionCommand::List => list(desk),
        SessionCommand::Show { id } => show(desk, id),
        SessionCommand::Kill { id, now } => {
            let asked = query(&[("now", now.to_string())]);
            let answer = desk.client.delete_for(&format!("/sessions/{id}?{asked}"), "ended")?;
            let how = match answer.decode()? {
                SessionEnd::LoggedOut => "its initiator has logged out",
                SessionEnd::CutOff => "it was cut off",
            };
            desk.out.done(&answer, &format!("session {id} is over: {how}"))
        }
    }
}

fn show(desk: &Desk, id: u32) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/sessions/{id}"), "session")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let SessionDetail { session, window, latencies } = answer.decode()?;
    let window = window.map_or("-".to_owned(), |window| {
        let open = window.max_cmd_sn.wrapping_sub(window.exp_cmd_sn).wrapping_add(1);
        format!("ExpCmdSN {}, MaxCmdSN {}: {open} more commands are taken", window.exp_cmd_sn, window.max_cmd_sn)
    });
    let proof = match &session.chap_user {
        Some(user) if session.mutual => format!("{} as {user}, and so did we", session.authentication),
        Some(user) => format!("{} as {user}", session.authentication),
        None => session.authentication.clone(),
    };
    let facts = [
        ("host", or_dash(session.host.as_ref())),
        ("initiator", session.initiator.clone()),
        ("address", session.address.to_string()),
        ("portal", session.portal.to_string()),
        ("target", session.target.clone().unwrap_or_else(|| "discovery".to_owned())),
        ("LUNs", joined(&session.luns)),
        ("proved", proof),
        ("logged in for", duration(session.connected_seconds)),
        ("commands", session.commands.to_string()),
        ("read", Size::new(session.read_bytes).to_string()),
        ("written", Size::new(session.written_bytes).to_string()),
        ("window", window),
    ];
    let facts = facts.map(|(name, value)| vec![name.to_owned(), value]).into_iter();
    let keys = session.negotiated.into_iter().map(|(key, value)| vec![key, value]);
    desk.out.rows(&answer, &Rows { header: &["FACT", "VALUE"], rows: facts.chain(keys).collect() })?;
    if latencies.is_empty() {
        return Ok(());
    }
    desk.out.said("")?;
    desk.out.rows(&answer, &latency::rows(&latencies))
}

fn list(desk: &Desk) -> Result<(), Failure> {
    let answer = desk.client.get("/sessions", "sessions")?;
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
        "FOR",
        "INITIATOR",
    ];
    desk.out.rows(&answer, &Rows { header, rows: sessions.iter().map(row).collect() })
}

fn row(session: &SessionReport) -> Vec<String> {
    let digests = match (session.header_digest, session.data_digest) {
        (true, true) => "header,data",
        (true, false) => "header",
        (false, true) => "data",
        (false, false) => "-",
    };
    let mutual = if session.mutual { ", mutual" } else { "" };
    vec![
        session.id.to_string(),
        or_dash(session.host.as_ref()),
        session.address.to_string(),
        session.portal.to_string(),
        joined(&session.luns),
        format!("{}{mutual}", session.authentication),
        digests.to_owned(),
        session.commands.to_string(),
        Size::new(session.read_bytes).iec(),
        Size::new(session.written_bytes).iec(),
        duration(session.connected_seconds),
        session.initiator.clone(),
    ]
}
