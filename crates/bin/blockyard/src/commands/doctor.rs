//! `blockyard doctor`: looks at the daemon, its machine and its hosts for what will hurt, and says what to do.

mod array;
mod machine;

use super::Desk;
use crate::failure::Failure;
use crate::output::{Rows, put};
use serde::Serialize;

/// How bad a finding is, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Grade {
    Good,
    Warning,
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    grade: Grade,
    /// What was looked at.
    subject: String,
    /// What is so.
    sentence: String,
    /// What to do; empty where nothing is to be done.
    fix: String,
}

impl Finding {
    fn good(subject: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { grade: Grade::Good, subject: subject.into(), sentence: sentence.into(), fix: String::new() }
    }

    fn warning(subject: impl Into<String>, sentence: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { grade: Grade::Warning, subject: subject.into(), sentence: sentence.into(), fix: fix.into() }
    }

    fn bad(subject: impl Into<String>, sentence: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { grade: Grade::Bad, subject: subject.into(), sentence: sentence.into(), fix: fix.into() }
    }
}

/// What is found, as JSON; why not, where nothing can be looked at.
pub fn told(desk: &Desk) -> String {
    match look(desk) {
        Ok(findings) => format!("{:#}\n", serde_json::json!({ "schema": 1, "findings": findings })),
        Err(failure) => format!("{failure:?}\n"),
    }
}

fn look(desk: &Desk) -> Result<Vec<Finding>, Failure> {
    let mut findings = array::look(desk)?;
    findings.extend(machine::look(desk.client.pid()));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    Ok(findings)
}

/// Everything was looked at, and printed; a failure when something is bad.
pub fn run(desk: &Desk) -> Result<(), Failure> {
    let findings = look(desk)?;
    if desk.out.is_json() {
        let whole = serde_json::json!({ "schema": 1, "findings": findings });
        put(&format!("{whole:#}\n"))?;
    } else {
        let shown = findings.iter().filter(|finding| finding.grade > Grade::Good || !desk.out.is_quiet());
        let rows = shown.map(row).collect();
        desk.out.lines(&Rows { header: &["", "WHAT", "IS SO", "TO DO"], rows })?;
    }
    let is_bad = findings.iter().any(|finding| finding.grade == Grade::Bad);
    if is_bad { Err(Failure::Said) } else { Ok(()) }
}

fn row(finding: &Finding) -> Vec<String> {
    let grade = match finding.grade {
        Grade::Good => "ok",
        Grade::Warning => "look",
        Grade::Bad => "bad",
    };
    vec![grade.to_owned(), finding.subject.clone(), finding.sentence.clone(), finding.fix.clone()]
}
