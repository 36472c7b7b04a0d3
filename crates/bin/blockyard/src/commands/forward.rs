//! Command `blockyard audit forward`.

use super::{CommandContext, or_dash};
use crate::failure::Failure;
use crate::output::Rows;
use api::request::SetForward;
use model::ForwardReport;
use std::path::PathBuf;

pub(super) fn forward(
    desk: &CommandContext,
    to: String,
    ca_file: Option<PathBuf>,
    pin: Option<String>,
) -> Result<(), Failure> {
    let ca_file = ca_file.map(|file| file.to_string_lossy().into_owned());
    // Destinations are URLs, so these two words are free.
    match to.as_str() {
        "show" => show(desk),
        "off" => {
            let answer = desk.client.put("/audit/forward", &SetForward::default(), "forward")?;
            desk.out.done(&answer, "audit forwarding is off")
        }
        _ => {
            let asked = SetForward { to: Some(to.clone()), pin, ca_file };
            let answer = desk.client.put("/audit/forward", &asked, "forward")?;
            desk.out.done(&answer, &format!("the audit log is forwarded to {to}; see blockyard audit forward show"))
        }
    }
}

fn show(desk: &CommandContext) -> Result<(), Failure> {
    let answer = desk.client.get("/audit/forward", "forward")?;
    let ForwardReport { to, position, last, error: why, .. } = answer.decode()?;
    let facts = [
        ("to", or_dash(to)),
        ("sent up to record", position.to_string()),
        ("last sent", or_dash(last)),
        ("error", or_dash(why)),
    ];
    let rows = facts.map(|(name, value)| vec![name.to_owned(), value]);
    desk.out.rows(&answer, &Rows { header: &["PROPERTY", "VALUE"], rows: rows.into() })
}
