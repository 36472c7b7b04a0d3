//! Commands `blockyard web …`.

use super::{CommandContext, joined, or_dash};
use crate::args::WebCommand;
use crate::failure::Failure;
use crate::output::Rows;
use model::{WebAddress, WebReport};

pub(super) fn run(desk: &CommandContext, command: WebCommand) -> Result<(), Failure> {
    match command {
        WebCommand::Show => show(desk),
        WebCommand::Link { user, role } => super::users::link(desk, user, role),
    }
}

fn show(desk: &CommandContext) -> Result<(), Failure> {
    let answer = desk.client.get("/web", "web")?;
    let WebReport { url, addresses, certificate } = answer.decode()?;
    let mut facts = vec![("console", url.unwrap_or_else(|| "not available".to_owned()))];
    for WebAddress { address, open, reason: why } in addresses {
        let state = match why {
            _ if open => format!("{address}, open"),
            Some(why) => format!("{address}, not open, retrying: {why}"),
            None => format!("{address}, opening"),
        };
        facts.push(("address", state));
    }
    if let Some(certificate) = certificate {
        facts.push((
            "certificate",
            if certificate.generated { "self-signed by the node" } else { "from a file" }.to_owned(),
        ));
        facts.push(("names", joined(&certificate.names)));
        facts.push(("expires", or_dash(Some(certificate.until))));
        facts.push(("fingerprint", certificate.fingerprint));
        facts.push(("pin", certificate.pin));
    }
    let rows = facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    desk.out.rows(&answer, &Rows { header: &["PROPERTY", "VALUE"], rows })
}
