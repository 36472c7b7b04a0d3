//! Comparison of the actual outcomes with the table, in both directions.

use super::expected::{Expectation, Expected, Row};
use super::mode::Mode;
use super::outcome::Outcome;
use std::collections::{BTreeMap, BTreeSet};

/// Result of the comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub passed: usize,
    /// Expected skips, and failures caused by the suite.
    pub skipped: usize,
    /// Failures caused by the suite, which the table excuses.
    pub excused: Vec<String>,
    /// Deviations from the table.
    pub faults: Vec<String>,
}

/// Compares the outcomes of the tests in `names`. Without a table only failures are faults; with `whole` the table must
/// name exactly the tests that ran.
pub(super) fn judge(
    expected: Option<(&Expected, Mode)>,
    names: &BTreeSet<String>,
    outcomes: &BTreeMap<String, Outcome>,
    whole: bool,
) -> Verdict {
    let mut verdict = Verdict::default();
    for name in names {
        match (outcomes.get(name), expected.map(|(table, mode)| (table.rows.get(name), mode))) {
            (None, _) => verdict.faults.push(format!("{name}: listed by the suite but not run")),
            (Some(outcome), None) => verdict.count_alone(name, outcome),
            (Some(outcome), Some((None, _))) => verdict.faults.push(format!("{name}: not in the table, and {outcome}")),
            (Some(outcome), Some((Some(row), mode))) => verdict.count(name, outcome, row, mode),
        }
    }
    for name in outcomes.keys().filter(|name| !names.contains(*name)) {
        verdict.faults.push(format!("{name}: run but not listed by the suite"));
    }
    if let (Some((table, _)), true) = (expected, whole) {
        for name in table.rows.keys().filter(|name| !names.contains(*name)) {
            verdict.faults.push(format!("{name}: in the table but not in the suite"));
        }
    }
    verdict
}

impl Verdict {
    fn count_alone(&mut self, name: &str, outcome: &Outcome) {
        match outcome {
            Outcome::Passed { .. } => self.passed += 1,
            Outcome::Skipped { .. } => self.skipped += 1,
            _ => self.faults.push(format!("{name}: {outcome}")),
        }
    }

    fn count(&mut self, name: &str, outcome: &Outcome, row: &Row, mode: Mode) {
        match (row.expect(mode), outcome) {
            // A test without an assertion has skipped everything, although CUnit counts it as passed.
            (Expectation::Skip, Outcome::Skipped { .. } | Outcome::Passed { asserts: 0 }) => self.skipped += 1,
            (Expectation::Pass, Outcome::Passed { asserts: 0 }) => {
                self.faults.push(format!("{name}: asserts nothing, which shows nothing; its row says pass"));
            }
            (Expectation::Pass, Outcome::Passed { .. }) => self.passed += 1,
            // Defects of the suite are races, which do not occur in every run.
            (Expectation::Exception, Outcome::Passed { .. }) => self.passed += 1,
            (Expectation::Exception, fault) if excuses(row, fault) => {
                self.skipped += 1;
                self.excused.push(format!("{name}: {fault} ({})", row.reason));
            }
            (Expectation::Skip, Outcome::Passed { .. }) => {
                self.faults.push(format!("{name}: passes now; its row in the table says skip"));
            }
            (_, outcome) => self.faults.push(format!("{name}: {outcome}")),
        }
    }
}

/// True when the test failed only at places that its row names.
fn excuses(row: &Row, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Failed { at, .. } => !at.is_empty() && at.iter().all(|place| row.only_at.contains(place)),
        Outcome::Died { .. } => row.only_at.iter().any(|place| place == "crash"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "suite = \"x\"\ncount = 3\n[[test]]\nname = \"A.pass\"\nexpect = \"pass\"\n\
        [[test]]\nname = \"A.skip\"\nexpect = \"skip\"\nreason = \"later\"\n\
        [[test]]\nname = \"A.exception\"\nexpect = \"exception\"\nreason = \"theirs\"\nonly_at = [\"c.c:157\"]\n";

    fn failed(at: &[&str]) -> Outcome {
        Outcome::Failed { at: at.iter().map(|&place| place.into()).collect(), said: String::new() }
    }

    fn verdict(pass: Outcome, skip: Outcome, exception: Outcome) -> Verdict {
        let outcomes: BTreeMap<String, Outcome> =
            [("A.pass", pass), ("A.skip", skip), ("A.exception", exception)].map(|(n, o)| (n.to_owned(), o)).into();
        let names = outcomes.keys().cloned().collect();
        judge(Some((&Expected::parse(TABLE).unwrap(), Mode::Plain)), &names, &outcomes, true)
    }

    fn passed() -> Outcome {
        Outcome::Passed { asserts: 1 }
    }

    fn skipped() -> Outcome {
        Outcome::Skipped { why: "absent".into() }
    }

    #[test]
    fn outcomes_as_expected_are_counted() {
        let verdict = verdict(passed(), skipped(), failed(&["c.c:157"]));
        assert_eq!((verdict.passed, verdict.skipped, verdict.excused.len(), verdict.faults.len()), (1, 2, 1, 0));
    }

    #[test]
    fn expectation_that_is_not_met_is_a_fault_in_both_directions() {
        assert_eq!(verdict(skipped(), skipped(), passed()).faults.len(), 1);
        assert_eq!(verdict(failed(&["c.c:157"]), skipped(), passed()).faults.len(), 1);
        assert_eq!(
            verdict(passed(), passed(), passed()).faults,
            ["A.skip: passes now; its row in the table says skip"]
        );
        assert_eq!(verdict(Outcome::Hung, skipped(), passed()).faults.len(), 1);
    }

    #[test]
    fn test_that_asserts_nothing_is_no_pass() {
        let nothing = || Outcome::Passed { asserts: 0 };
        assert_eq!(verdict(nothing(), nothing(), passed()).faults.len(), 1);
    }

    #[test]
    fn exception_excuses_its_own_place_and_no_other() {
        assert_eq!(verdict(passed(), skipped(), failed(&["c.c:157", "c.c:160"])).faults.len(), 1);
        assert_eq!(verdict(passed(), skipped(), failed(&[])).faults.len(), 1);
        assert_eq!(verdict(passed(), skipped(), Outcome::Died { how: "SIGABRT".into() }).faults.len(), 1);
    }

    #[test]
    fn name_on_one_side_only_is_a_fault() {
        let table = Expected::parse(TABLE).unwrap();
        let names = BTreeSet::from(["A.pass".to_owned(), "A.new".to_owned(), "A.lost".to_owned()]);
        let outcomes = BTreeMap::from([("A.pass".to_owned(), passed()), ("A.new".to_owned(), passed())]);
        let faults = judge(Some((&table, Mode::Plain)), &names, &outcomes, true).faults.join("\n");
        for said in ["A.lost: listed", "A.new: not in the table", "A.skip: in the table", "A.exception: in the table"] {
            assert!(faults.contains(said), "{said} is missing in {faults}");
        }
    }

    #[test]
    fn without_a_table_failures_alone_are_faults() {
        let outcomes = BTreeMap::from([("A.a".to_owned(), skipped()), ("A.b".to_owned(), Outcome::Hung)]);
        let verdict = judge(None, &outcomes.keys().cloned().collect(), &outcomes, true);
        assert_eq!((verdict.passed, verdict.skipped, verdict.faults.len()), (0, 1, 1));
    }
}
