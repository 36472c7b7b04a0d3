//! Outcome of one test of the suite, parsed from the output of its process.

use lab::child::Ended;
use std::fmt;

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All assertions held, and there were this many.
    Passed { asserts: u64 },
    /// The test skipped something, for this reason.
    Skipped { why: String },
    /// Assertions failed, each at `file.c:line`.
    Failed { at: Vec<String>, said: String },
    /// The process of the suite died.
    Died { how: String },
    /// The test was killed at its time limit.
    Hung,
    /// The suite ran nothing: the name matches no test, or the suite gave up earlier.
    NotRun { said: String },
}

impl Outcome {
    /// Parses the output of a process that ran one test.
    pub(super) fn of(ended: &Ended) -> Self {
        let Some(status) = ended.status else { return Self::Hung };
        // Without a code a signal has ended the process.
        let Some(code) = status.code() else { return Self::Died { how: status.to_string() } };
        // The summary of CUnit must show exactly one test that ran and passed; the exit status alone does not show
        // skips.
        let said = tail(&ended.said);
        match (figures(&ended.said, "tests"), figures(&ended.said, "asserts")) {
            (Some([_, 1, passed, failed]), Some([asserts, ..])) => {
                let at: Vec<String> = ended.said.lines().filter_map(place).collect();
                let why: Vec<&str> = own_part(&ended.said).lines().filter_map(skipped).collect();
                if failed > 0 || !at.is_empty() || code != 0 || passed != 1 {
                    Self::Failed { at, said }
                } else if why.is_empty() {
                    Self::Passed { asserts }
                } else {
                    Self::Skipped { why: why.join("; ") }
                }
            }
            _ => Self::NotRun { said },
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { asserts } => write!(f, "passed with {asserts} assertions"),
            Self::Skipped { why } => write!(f, "skipped: {why}"),
            Self::Failed { at, said } => write!(f, "failed at {}: {said}", at.join(", ")),
            Self::Died { how } => write!(f, "the suite died: {how}"),
            Self::Hung => write!(f, "hung, and was killed"),
            Self::NotRun { said } => write!(f, "did not run: {said}"),
        }
    }
}

/// Returns the first four numbers in the row of CUnit's summary that begins with `kind`.
fn figures(said: &str, kind: &str) -> Option<[u64; 4]> {
    // From the end, since lines of the test itself may begin with the same word.
    let row = said.lines().rev().find_map(|line| line.trim().strip_prefix(kind)?.strip_prefix(' '))?;
    let mut numbers = row.split_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?])
}

/// Extracts `file.c:157` from a line like "    1. file.c:157  - CU_ASSERT(…)".
fn place(line: &str) -> Option<String> {
    let (number, rest) = line.trim().split_once(". ")?;
    number.parse::<u32>().ok()?;
    let (place, _) = rest.split_once(' ')?;
    place.contains(".c:").then(|| place.to_owned())
}

/// Returns the output of the test itself, up to its verdict. Before and after every test the suite looks for leftover
/// reservations, and reports a skip where a target does not support them.
fn own_part(said: &str) -> &str {
    let Some((_, from)) = said.split_once("  Test: ") else { return said };
    let from = from.split_once("...").map_or(from, |(_, rest)| rest);
    // No output between the name and the verdict: the test has skipped nothing.
    let verdicts = ["passed", "FAILED"];
    if verdicts.iter().any(|verdict| from.starts_with(verdict)) {
        return "";
    }
    let end = verdicts.iter().filter_map(|verdict| from.find(&format!("\n{verdict}"))).min();
    &from[..end.unwrap_or(from.len())]
}

fn skipped(line: &str) -> Option<&str> {
    line.split_once("[SKIPPED]").map(|(_, why)| why.trim())
}

/// Returns the last meaningful lines, for a person to read.
fn tail(said: &str) -> String {
    let telling = |line: &&str| {
        let line = line.trim();
        !line.is_empty()
            && !["Run Summary", "suites", "tests", "asserts", "Elapsed", "CUnit", "http"]
                .iter()
                .any(|dull| line.starts_with(dull))
    };
    let lines: Vec<&str> = said.lines().filter(telling).collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    const SUMMARY: &str = "Run Summary:    Type  Total    Ran Passed Failed Inactive\n";

    fn ended(raw: i32, body: &str, tests: &str, asserts: &str) -> Outcome {
        let said =
            format!("Suite: Read10\n{body}\n{SUMMARY}  suites 1 1 n/a 0 0\n   tests {tests}\n asserts {asserts}\n");
        Outcome::of(&Ended { status: Some(ExitStatus::from_raw(raw)), said })
    }

    #[test]
    fn passed_test_tells_its_assertions() {
        let outcome = ended(0, "  Test: Simple ...passed", "1 1 1 0 0", "512 512 512 0 n/a");
        assert_eq!(outcome, Outcome::Passed { asserts: 512 });
    }

    #[test]
    fn test_that_left_anything_out_is_a_skip_even_when_the_suite_calls_it_passed() {
        let outcome = ended(0, "  Test: X ...    [SKIPPED] No media.\npassed", "1 1 1 0 0", "9 9 9 0 n/a");
        assert_eq!(outcome, Outcome::Skipped { why: "No media.".into() });
    }

    #[test]
    fn skip_of_the_suite_around_a_test_is_not_the_tests_own() {
        let around = "    [SKIPPED] PERSISTENT RESERVE IN is not implemented.\n";
        let body = format!("{around}  Test: X ...passed{around}");
        assert_eq!(ended(0, &body, "1 1 1 0 0", "9 9 9 0 n/a"), Outcome::Passed { asserts: 9 });
        let body = format!("{around}  Test: X ...    [SKIPPED] No media.\npassed{around}");
        assert_eq!(ended(0, &body, "1 1 1 0 0", "9 9 9 0 n/a"), Outcome::Skipped { why: "No media.".into() });
    }

    #[test]
    fn failed_test_tells_where_even_when_it_also_skipped() {
        let body =
            "  Test: X ...FAILED\n [SKIPPED] half\n    1. test_async_lu_reset_simple.c:157  - CU_ASSERT_EQUAL(a,1)";
        match ended(256, body, "1 1 0 1 0", "8 8 7 1 n/a") {
            Outcome::Failed { at, .. } => assert_eq!(at, ["test_async_lu_reset_simple.c:157"]),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn name_that_matches_nothing_is_not_a_pass() {
        assert!(matches!(ended(0, "", "0 0 0 0 0", "0 0 0 0 n/a"), Outcome::NotRun { .. }));
        let refused = Ended { status: Some(ExitStatus::from_raw(256)), said: "Failed to connect".into() };
        assert!(matches!(Outcome::of(&refused), Outcome::NotRun { .. }));
    }

    #[test]
    fn death_and_hang_are_told_apart() {
        assert!(matches!(ended(6, "", "1 1 1 0 0", "1 1 1 0 n/a"), Outcome::Died { .. }));
        assert_eq!(Outcome::of(&Ended { status: None, said: String::new() }), Outcome::Hung);
    }
}
