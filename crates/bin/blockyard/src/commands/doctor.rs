//! Command `blockyard doctor`: checks the array, its host system and its clients for problems, and suggests fixes.

mod array;
mod machine;
mod names;

use super::CommandContext;
use crate::failure::Failure;
use crate::output::{Rows, put};
use model::{Finding, Grade};

/// Returns the findings as JSON, or the failure of the check.
pub(super) fn told(desk: &CommandContext) -> String {
    match look(desk, &[]) {
        Ok(findings) => format!("{:#}\n", serde_json::json!({ "schema": 1, "findings": findings })),
        // Part of a support bundle, which must be complete even if a check fails.
        Err(failure) => format!("{failure:?}\n"),
    }
}

fn look(desk: &CommandContext, discover: &[String]) -> Result<Vec<Finding>, Failure> {
    let mut findings = array::look(desk, discover)?;
    findings.extend(machine::look(desk.client.pid()));
    // The sort is stable, so findings of one grade keep their order.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    Ok(findings)
}

/// Prints the findings; fails if one of them is bad.
pub(super) fn run(desk: &CommandContext, discover: &[String]) -> Result<(), Failure> {
    let findings = look(desk, discover)?;
    if desk.out.is_json() {
        let whole = serde_json::json!({ "schema": 1, "findings": findings });
        put(&format!("{whole:#}\n"))?;
    } else {
        let shown = findings.iter().filter(|finding| finding.grade > Grade::Good || !desk.out.is_quiet());
        let rows = shown.map(row).collect();
        desk.out.lines(&Rows { header: &["", "SUBJECT", "STATE", "FIX"], rows })?;
    }
    let is_bad = findings.iter().any(|finding| finding.grade == Grade::Bad);
    if is_bad { Err(Failure::Said) } else { Ok(()) }
}

fn row(finding: &Finding) -> Vec<String> {
    let grade = match finding.grade {
        Grade::Good => "ok",
        Grade::Warning => "warn",
        Grade::Bad => "bad",
    };
    vec![grade.to_owned(), finding.subject.clone(), finding.message.clone(), finding.fix.clone()]
}
