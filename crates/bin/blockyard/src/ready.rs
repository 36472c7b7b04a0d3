//! Front end of the compatibility check of a unit (`blockyard ready`); the checks are in `conform`.

use crate::args::{Global, ReadyOptions};
use crate::conform::test_target;
use crate::failure::Failure;
use crate::output::{Output, Rows, put};
use conform::Verdict;
use conform::ready::{NEEDS, Purpose, reach};
use serde_json::json;

const HEADER: &[&str] = &["RESULT", "NEED", "WHAT", "FIX"];

/// Runs every check of the purpose, and prints each result when it is known.
pub(crate) fn run(options: &ReadyOptions, global: &Global) -> Result<(), Failure> {
    let aim = test_target(&options.aim)?;
    let out = Output::new(global);
    // The transport decides which remedy is printed, so it is determined first.
    let reached = reach(&aim).map_err(|why| Failure::Failed(anyhow::Error::msg(why)))?;
    let purpose = Purpose::from(options.purpose);
    let (mut counts, mut report) = ([0; 3], Vec::new());
    for (number, need) in NEEDS.iter().filter(|need| need.purposes.contains(&purpose)).enumerate() {
        let verdict = need.ask(&aim, options.scratch);
        let (at, result, why) = match &verdict {
            Verdict::Passed => (0, "ready", None),
            Verdict::Failed(how) => (1, "MISSING", Some(how)),
            Verdict::Skipped(why) => (2, "unknown", Some(why)),
        };
        counts[at] += 1;
        let what = why.map_or(need.rule.to_owned(), |why| format!("{}: {why}", need.rule));
        // A remedy is printed only for a missing feature: for an unknown one it might be wrong.
        let fix = if at == 1 { need.fix(reached) } else { "" };
        match out.is_json() {
            true => report.push(json!({
                "need": need.name, "rule": need.rule, "result": result.to_lowercase(), "reason": why, "fix": need.fix(reached),
            })),
            false => {
                let row = vec![result.to_owned(), need.name.to_owned(), what, fix.to_owned()];
                let out = if number == 0 { out } else { out.without_headers() };
                out.lines(&Rows { header: HEADER, rows: vec![row] })?;
            }
        }
    }
    let [ready, missing, unknown] = counts;
    if out.is_json() {
        let whole = json!({
            "target": aim.to_string(), "ready": missing + unknown == 0, "missing": missing, "unknown": unknown, "needs": report,
        });
        put(&format!("{whole:#}\n"))?;
    } else if !out.is_quiet() {
        eprintln!("{aim}: {ready} ready, {missing} missing, {unknown} unknown");
    }
    if missing + unknown == 0 { Ok(()) } else { Err(Failure::Said) }
}
