//! Commands `blockyard audit …`.

use super::new_file::NewFile;
use super::{CommandContext, or_dash};
use crate::args::AuditCommand;
use crate::client::{escaped, query};
use crate::failure::Failure;
use crate::output::Rows;
use api::{AuditCheck, AuditPage, AuditRecord};
use serde_json::Value;

pub(super) fn run(desk: &CommandContext, command: AuditCommand) -> Result<(), Failure> {
    match command {
        AuditCommand::Forward { to, server_ca_file, server_pin } => {
            super::forward::forward(desk, to, server_ca_file, server_pin)
        }
        AuditCommand::List { limit, before, search } => {
            let mut pairs = vec![("limit", limit.to_string())];
            pairs.extend(before.map(|before| ("before", before.to_string())));
            pairs.extend(search.map(|search| ("search", escaped(&search))));
            list(desk, &query(&pairs))
        }
        AuditCommand::Verify => verify(desk),
        AuditCommand::Export { to } => {
            let mut file = NewFile::at(&to);
            // Streamed to the file, since the whole log may exceed the memory.
            let saved = desk.client.fetch("/audit/records", |bytes| file.put(bytes))?;
            if file.is_saved(saved)? && !file.is_stdout() {
                desk.out.said(&format!("audit log written to {}", to.display()))?;
            }
            Ok(())
        }
    }
}

fn list(desk: &CommandContext, query: &str) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/audit?{query}"), "audit")?;
    let page: AuditPage = answer.decode()?;
    let row = |record: AuditRecord| {
        vec![
            record.number.to_string(),
            record.time.to_string(),
            record.caller.clone().unwrap_or_else(|| "unauthenticated".to_owned()),
            or_dash(record.address),
            format!("{} {}", record.method, record.path),
            result(&record),
            if record.body.is_null() { "-".to_owned() } else { record.body.to_string() },
            what_changed(&record.changed),
        ]
    };
    let rows = page.records.into_iter().map(row).collect();
    desk.out.rows(
        &answer,
        &Rows { header: &["NUMBER", "TIME", "CALLER", "ADDRESS", "CALL", "RESULT", "BODY", "CHANGED"], rows },
    )
}

/// Formats the result: `201`, `409 BY-1203`, or a note that there is none.
// A record is written before the call runs; without a status the call is running, or the daemon ended during it.
fn result(record: &AuditRecord) -> String {
    let Some(status) = record.status else { return "running or cut short".to_owned() };
    record.code.as_ref().map_or(status.to_string(), |code| format!("{status} {code}"))
}

/// Lists the changed values: `size 8388608 → 16777216`.
fn what_changed(changed: &Value) -> String {
    let Some(all) = changed.as_object().filter(|all| !all.is_empty()) else { return "-".to_owned() };
    let side = |value: Option<&Value>| value.map_or_else(|| "-".to_owned(), ToString::to_string);
    let one = |(path, both): (&String, &Value)| format!("{path} {} → {}", side(both.get("was")), side(both.get("is")));
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn verify(desk: &CommandContext) -> Result<(), Failure> {
    let answer = desk.client.get("/audit/check", "check")?;
    let AuditCheck { first, last, records, hash, broken, findings } = answer.decode()?;
    match &broken {
        None if !findings.is_empty() => {
            // Printed in full even without a broken record: a missing or truncated file is damage, too.
            desk.out.done(&answer, &format!("the audit log is damaged: {}", findings.join("; ")))?;
            // The report is printed already; only the exit code tells scripts of the damage.
            Err(Failure::Said)
        }
        None => desk
            .out
            .done(&answer, &format!("{records} records, {first} to {last}, verified; hash of the last record: {hash}")),
        Some(broken) => {
            let mut told = vec![format!("record {} failed verification: {}", broken.number, broken.reason)];
            told.extend(findings);
            desk.out.done(&answer, &told.join("; "))?;
            Err(Failure::Said)
        }
    }
}
