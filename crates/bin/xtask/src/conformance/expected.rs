//! Expected outcomes of the suite's tests, from docs/conformance.

use super::mode::Mode;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Expected outcome of a test.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Expectation {
    /// All assertions hold and nothing is skipped.
    Pass,
    /// The test skips something, for the reason given.
    Skip,
    /// The test fails because of a defect of the suite, at one of the listed places and nowhere else.
    Exception,
}

/// Row of one test.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    name: String,
    expect: Expectation,
    /// Modes with another expected outcome.
    #[serde(default)]
    modes: BTreeMap<Mode, Expectation>,
    #[serde(default)]
    pub reason: String,
    /// `file.c:line` of the assertions that may fail; `crash` allows the death of the client.
    #[serde(default)]
    pub only_at: Vec<String>,
}

impl Row {
    /// Returns the expected outcome in this mode.
    pub(crate) fn expect(&self, mode: Mode) -> Expectation {
        self.modes.get(&mode).copied().unwrap_or(self.expect)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Name of the suite, for the reader.
    suite: String,
    /// Number of tests of the suite.
    count: usize,
    test: Vec<Row>,
}

/// Expected outcomes of all tests of the suite.
#[derive(Debug)]
pub(crate) struct Expected {
    pub rows: BTreeMap<String, Row>,
}

impl Expected {
    /// Parses a table; names must be unique and the count must be correct.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).context("the table is malformed")?;
        ensure!(!file.suite.is_empty(), "the table names no suite");
        ensure!(file.count == file.test.len(), "the table says {} tests and has {}", file.count, file.test.len());
        let mut rows = BTreeMap::new();
        for row in file.test {
            let name = row.name.clone();
            let ends = || row.modes.values().copied().chain([row.expect]);
            // A mode may excuse a test that passes in all others, so the ends in all modes count.
            ensure!(
                ends().all(|expect| expect == Expectation::Pass) || !row.reason.trim().is_empty(),
                "`{name}` gives no reason"
            );
            ensure!(
                ends().any(|expect| expect == Expectation::Exception) != row.only_at.is_empty(),
                "`{name}`: an exception, and nothing else, says where it may fail (`only_at`)"
            );
            ensure!(rows.insert(name.clone(), row).is_none(), "`{name}` is there twice");
        }
        Ok(Self { rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        format!("{:#}", Expected::parse(text).unwrap_err())
    }

    #[test]
    fn table_with_every_kind_of_row_is_read() {
        let text = "suite = \"x\"\ncount = 3\n[[test]]\nname = \"A.a\"\nexpect = \"pass\"\n\
                    [[test]]\nname = \"A.b\"\nexpect = \"skip\"\nreason = \"later\"\n\
                    [[test]]\nname = \"A.c\"\nexpect = \"exception\"\nreason = \"theirs\"\nonly_at = [\"c.c:157\"]\n";
        assert_eq!(Expected::parse(text).unwrap().rows.len(), 3);
    }

    #[test]
    fn row_may_say_something_else_of_a_mode() {
        let text = "suite = \"x\"\ncount = 1\n[[test]]\nname = \"A.b\"\nexpect = \"skip\"\nreason = \"one path\"\n\
                    modes = { multipath = \"pass\" }\n";
        let table = Expected::parse(text).unwrap();
        assert_eq!(table.rows["A.b"].expect(Mode::Plain), Expectation::Skip);
        assert_eq!(table.rows["A.b"].expect(Mode::Multipath), Expectation::Pass);
        assert!(error_of(&text.replace("multipath", "no-such-mode")).contains("no-such-mode"));
    }

    #[test]
    fn table_with_a_wrong_count_a_missing_reason_or_a_name_twice_is_refused() {
        let row = "[[test]]\nname = \"A.a\"\nexpect = \"pass\"\n";
        assert!(error_of(&format!("suite = \"x\"\ncount = 2\n{row}")).contains("says 2 tests and has 1"));
        assert!(error_of(&format!("suite = \"x\"\ncount = 2\n{row}{row}")).contains("twice"));
        let skip = "[[test]]\nname = \"A.b\"\nexpect = \"skip\"\n";
        assert!(error_of(&format!("suite = \"x\"\ncount = 1\n{skip}")).contains("no reason"));
        let vague = "[[test]]\nname = \"A.c\"\nexpect = \"exception\"\nreason = \"theirs\"\n";
        assert!(error_of(&format!("suite = \"x\"\ncount = 1\n{vague}")).contains("only_at"));
    }
}
