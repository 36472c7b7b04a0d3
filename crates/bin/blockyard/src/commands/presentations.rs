//! `blockyard present`, `blockyard unpresent` and `blockyard presentation list`

use super::{Desk, or_dash};
use crate::args::{PresentOptions, UnpresentOptions};
use crate::client::query;
use crate::connect;
use crate::failure::Failure;
use crate::output::Rows;
use control::PresentationReport;
use control::request::NewPresentation;

pub fn present(desk: &Desk, options: PresentOptions) -> Result<(), Failure> {
    let PresentOptions { volume, host, lun, target, read_only, groups } = options;
    let request = NewPresentation { volume, host, target, lun, read_only, groups };
    let answer = desk.client.post("/presentations", &request, "presentation")?;
    let seen: PresentationReport = answer.decode()?;
    let how = if seen.read_only { ", read-only" } else { "" };
    let text = format!("host {} sees volume {} as LUN {}{how} of {}", seen.host, seen.volume, seen.lun, seen.iqn);
    desk.out.done(&answer, &format!("{text}\n{}", connect::lines(&seen).trim_end()))
}

pub fn unpresent(desk: &Desk, options: &UnpresentOptions) -> Result<(), Failure> {
    let mut pairs = vec![("volume", options.volume.to_string()), ("host", options.host.to_string())];
    pairs.extend(options.target.as_ref().map(|target| ("target", target.to_string())));
    desk.client.delete(&format!("/presentations?{}", query(&pairs)))?;
    desk.out.said(&format!("host {} sees volume {} no more", options.host, options.volume))
}

pub fn list(desk: &Desk) -> Result<(), Failure> {
    let answer = desk.client.get("/presentations", "presentations")?;
    let all: Vec<PresentationReport> = answer.decode()?;
    let row = |seen: &PresentationReport| {
        vec![
            seen.host.to_string(),
            seen.lun.to_string(),
            seen.volume.to_string(),
            if seen.read_only { "read-only" } else { "read-write" }.to_owned(),
            or_dash(seen.chap_user.as_ref()),
            seen.iqn.to_string(),
        ]
    };
    let header = &["HOST", "LUN", "VOLUME", "ACCESS", "CHAP", "TARGET"];
    desk.out.rows(&answer, &Rows { header, rows: all.iter().map(row).collect() })
}
