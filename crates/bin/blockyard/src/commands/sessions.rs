//! `blockyard session list`

use super::{Desk, joined, or_dash};
use crate::failure::Failure;
use crate::output::Rows;
use crate::progress::duration;
use model::{SessionReport, Size};

pub fn list(desk: &Desk) -> Result<(), Failure> {
    let answer = desk.client.get("/sessions", "sessions")?;
    let sessions: Vec<SessionReport> = answer.decode()?;
    let header =
        &["HOST", "ADDRESS", "PORTAL", "LUNS", "AUTH", "DIGESTS", "COMMANDS", "READ", "WRITTEN", "FOR", "INITIATOR"];
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
