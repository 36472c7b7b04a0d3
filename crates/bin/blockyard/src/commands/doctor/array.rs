//! Findings of the daemon, and those that only its client can make: different versions, and portals that cannot be
//! reached from here.

use super::super::CommandContext;
use super::names;
use crate::failure::Failure;
use model::{Finding, PortalReport, PortalState, StatusReport};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of a connection to a portal.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the findings about the array.
pub(super) fn look(desk: &CommandContext, discover: &[String]) -> Result<Vec<Finding>, Failure> {
    let client = &desk.client;
    let status: StatusReport = client.get("/status", "status")?.decode()?;
    let portals: Vec<PortalReport> = client.get("/portals", "portals")?.decode()?;
    let mut findings = vec![version(&status)];
    let found: Vec<Finding> = client.get("/findings", "findings")?.decode()?;
    findings.extend(found);
    findings
        // A portal that is not open has a finding of the daemon already.
        .extend(portals.iter().filter(|portal| portal.state == PortalState::Open).map(|portal| reach(portal.address)));
    findings.extend(names::look(desk, &portals, discover)?);
    Ok(findings)
}

fn version(status: &StatusReport) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    if status.version == ours {
        return Finding::good("daemon", format!("responds, version {ours}"));
    }
    let sentence = format!("is version {}, but this command is version {ours}", status.version);
    Finding::warning("daemon", sentence, "restart the daemon after an upgrade")
}

fn reach(portal: SocketAddr) -> Finding {
    let subject = format!("portal {portal}");
    match TcpStream::connect_timeout(&portal, PATIENCE) {
        Ok(_) => Finding::good(subject, "accepts connections"),
        Err(error) => {
            let sentence = format!("does not accept a connection from this machine: {error}");
            Finding::bad(subject, sentence, "check the firewall and blockyard portal list")
        }
    }
}
