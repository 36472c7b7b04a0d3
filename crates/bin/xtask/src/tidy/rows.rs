//! Requirement tables in docs/conformance: rows are complete, and their tests exist.

use super::Finding;
use super::tree::{TextFile, Tree};
use crate::conformance::expected::Expected;
use crate::differential::explained::Explained;
use serde::Deserialize;
use std::collections::BTreeSet;

const FOLDER: &str = "docs/conformance/";
/// Tests that are not test functions: their files, and their names in a row.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("tests/initiator-vm/", "", "xtask vm"),
    ("crates/bin/xtask/src/crowd", ".rs", "xtask crowd"),
    ("fuzz/fuzz_targets/", ".rs", "fuzz"),
];

/// Requirement table: `[[row]]` with a section, a paraphrase of the requirement, and its status.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// Standard with its edition, and remarks for the reader.
    #[serde(default)]
    standard: Option<String>,
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    section: String,
    text: String,
    status: Status,
    /// One or several tests that prove the requirement.
    #[serde(default)]
    test: Names,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Status {
    Done,
    Exception,
    Todo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Names {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

impl Names {
    fn each(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// Finds incomplete rows, and rows that name a test which does not exist: a function, or a program such as `xtask vm
/// portals`.
pub(super) fn check(tree: &Tree, functions: &BTreeSet<String>) -> Vec<Finding> {
    let programs = tree.files.iter().filter_map(|file| program(&file.path));
    let tests: BTreeSet<String> = functions.iter().cloned().chain(programs).collect();
    let mut findings = Vec::new();
    for file in tree.ending(".toml").filter(|file| file.path.starts_with(FOLDER)) {
        // These two tables have forms of their own, and readers that check them.
        if file.path.starts_with("docs/conformance/libiscsi") {
            findings.extend(Expected::parse(&file.text).err().map(|error| unread(file, &error)));
            continue;
        }
        if file.path == "docs/conformance/differential.toml" {
            findings.extend(Explained::parse(&file.text).err().map(|error| unread(file, &error)));
            continue;
        }
        match toml::from_str::<Table>(&file.text) {
            Ok(table) => findings.extend(table.faults(&tests).into_iter().map(|what| Finding::new(&file.path, what))),
            Err(error) => findings.push(malformed(file, &error)),
        }
    }
    findings
}

fn unread(file: &TextFile, error: &anyhow::Error) -> Finding {
    Finding::new(&file.path, format!("{error:#}"))
}

/// Returns the name of the file at `path` in a row.
fn program(path: &str) -> Option<String> {
    PROGRAMS.iter().find_map(|(folder, ending, called)| {
        let name = path.strip_prefix(folder)?.strip_suffix(ending)?;
        Some(format!("{called} {name}").trim_end().to_owned())
    })
}

fn malformed(file: &TextFile, error: &toml::de::Error) -> Finding {
    let start = error.span().map_or(0, |span| span.start);
    // The parser reports a position in bytes, a person looks for a line.
    let line = file.text.get(..start).unwrap_or_default().lines().count().max(1);
    Finding::new(format!("{}:{line}", file.path), error.message().to_owned())
}

impl Table {
    fn faults(&self, tests: &BTreeSet<String>) -> Vec<String> {
        let mut faults = Vec::new();
        if self.standard.as_deref() == Some("") {
            faults.push("the standard has no name".to_owned());
        }
        for row in &self.row {
            faults
                .extend(row.faults(tests).into_iter().map(|what| format!("{} \"{}\": {what}", row.section, row.text)));
        }
        faults
    }
}

impl Row {
    fn faults(&self, tests: &BTreeSet<String>) -> Vec<String> {
        let mut faults = Vec::new();
        if self.section.trim().is_empty() || self.text.trim().is_empty() {
            faults.push("a row names its section and says what is asked".to_owned());
        }
        match self.status {
            Status::Done if self.test.each().is_empty() => {
                faults.push("`done` names the test that shows it".to_owned())
            }
            Status::Exception if self.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) => {
                faults.push("an exception has a reason".to_owned());
            }
            _ => {}
        }
        for name in self.test.each() {
            // `module::path::name` is permitted; the last segment is the function.
            let function = name.rsplit("::").next().unwrap_or(name);
            if !tests.contains(function) {
                faults.push(format!("there is no test `{name}`"));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let file = TextFile { path: "docs/conformance/rfc7143.toml".into(), text: text.into() };
        let tests = BTreeSet::from(["window_admits_in_order".to_owned()]);
        check(&Tree { files: vec![file] }, &tests).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn whole_rows_pass() {
        let text = "[[row]]\nsection = \"4.2\"\ntext = \"in order\"\nstatus = \"done\"\ntest = \"window::window_admits_in_order\"\n\
                    [[row]]\nsection = \"4.3\"\ntext = \"later\"\nstatus = \"todo\"\n\
                    [[row]]\nsection = \"4.4\"\ntext = \"never\"\nstatus = \"exception\"\nreason = \"obsolete\"\n";
        assert_eq!(faults(text), Vec::<String>::new());
    }

    #[test]
    fn done_row_without_a_test_or_with_one_that_does_not_exist_is_found() {
        let row = "[[row]]\nsection = \"4.2\"\ntext = \"in order\"\nstatus = \"done\"\n";
        assert!(faults(row)[0].contains("names the test"));
        assert!(faults(&format!("{row}test = [\"no_such_test\"]\n"))[0].contains("there is no test `no_such_test`"));
    }

    #[test]
    fn scenario_of_a_guest_load_and_fuzz_target_are_tests() {
        for (name, path) in [
            ("xtask vm portals", "tests/initiator-vm/portals"),
            ("xtask crowd", "crates/bin/xtask/src/crowd.rs"),
            ("fuzz pdu", "fuzz/fuzz_targets/pdu.rs"),
        ] {
            let row =
                format!("[[row]]\nsection = \"4.2\"\ntext = \"in order\"\nstatus = \"done\"\ntest = \"{name}\"\n");
            let table = TextFile { path: "docs/conformance/spc.toml".into(), text: row.clone() };
            let program = TextFile { path: path.into(), text: String::new() };
            assert_eq!(check(&Tree { files: vec![table, program] }, &BTreeSet::new()), Vec::new());
            assert!(faults(&row)[0].contains(&format!("there is no test `{name}`")));
        }
    }

    #[test]
    fn exception_without_a_reason_and_row_that_is_malformed_are_found() {
        let row = "[[row]]\nsection = \"4.2\"\ntext = \"in order\"\n";
        assert!(faults(&format!("{row}status = \"exception\"\n"))[0].contains("has a reason"));
        assert!(faults(&format!("{row}status = \"perhaps\"\n"))[0].starts_with("docs/conformance/rfc7143.toml:"));
        assert!(faults(&format!("{row}status = \"todo\"\ncolour = 1\n"))[0].contains("colour"));
    }

    #[test]
    fn table_of_another_kind_that_is_malformed_is_found() {
        for path in ["docs/conformance/libiscsi-1.19.toml", "docs/conformance/differential.toml"] {
            let file = TextFile { path: path.into(), text: "[[test]]\nname = 1\n".into() };
            assert_eq!(check(&Tree { files: vec![file] }, &BTreeSet::new()).len(), 1);
        }
    }
}
