//! Assertions per function that a release build keeps: a lower bound for each crate, which may only rise.

use super::ratchet::PLACE;
use super::rust::Source;
use super::{Finding, modules};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Lower bound of a crate without a row, and the smallest value of a row.
const FLOOR: usize = 100;
/// Excess over the bound at which the row must be raised: per 1,000 functions, and in assertions for small crates.
const SLACK: (usize, usize) = (10, 5);

/// Production functions of a crate, and the assertions in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Density {
    functions: usize,
    assertions: usize,
}

impl Density {
    /// Returns the assertions per 1,000 functions, rounded down.
    fn of_a_thousand(self) -> usize {
        (self.assertions * 1000).checked_div(self.functions).unwrap_or(usize::MAX)
    }

    fn is_far_above(self, floor: usize) -> bool {
        let needed = (floor * self.functions).div_ceil(1000);
        // Both conditions, since one assertion more changes the share of a small crate by many units.
        self.of_a_thousand() > floor + SLACK.0 && self.assertions > needed + SLACK.1
    }
}

impl fmt::Display for Density {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} functions", self.assertions, self.functions)
    }
}

/// True for crates whose defects can lose data: all of `pure`, and the engine that combines them.
fn is_held(name: &str) -> bool {
    name.starts_with("pure/") || name == "plane/engine"
}

/// Returns the density of every crate, without the files of modules under `#[cfg(test)]`.
pub(super) fn densities(sources: &[Source]) -> BTreeMap<String, Density> {
    let tests: BTreeSet<String> = sources.iter().flat_map(test_files).collect();
    let is_test = |path: &str| {
        // A file below a test module belongs to it, so every part of the path is compared.
        let stem = path.strip_suffix(".rs").unwrap_or(path);
        stem.match_indices('/').map(|(end, _)| &stem[..end]).chain([stem]).any(|part| tests.contains(part))
    };
    let mut all = BTreeMap::<String, Density>::new();
    for source in sources.iter().filter(|source| !is_test(&source.path)) {
        let Some((name, _)) = modules::place(&source.path) else { continue };
        let density = all.entry(name.to_owned()).or_default();
        density.functions += source.functions.len();
        density.assertions += source.assertions;
    }
    all.retain(|_, density| density.functions > 0);
    all
}

/// Returns the paths, without extension, of the modules under `#[cfg(test)]` that the file declares.
fn test_files(source: &Source) -> Vec<String> {
    let stem = source.path.strip_suffix(".rs").unwrap_or(&source.path);
    // Modules of a crate root lie beside it, those of any other file in a folder of its name.
    let folder = ["/lib", "/main"].iter().find_map(|root| stem.strip_suffix(root)).unwrap_or(stem);
    source.test_modules.iter().map(|module| format!("{folder}/{module}")).collect()
}

/// Returns a line with the density of each crate that has a bound.
pub(super) fn summary(sources: &[Source]) -> String {
    let held = densities(sources).into_iter().filter(|(name, _)| is_held(name));
    held.map(|(name, density)| format!("{name} {density}")).collect::<Vec<_>>().join(", ")
}

/// Finds crates below their bound, and bounds far below the value of the crate.
pub(super) fn check(floors: &BTreeMap<String, usize>, found: &BTreeMap<String, Density>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, &density) in found {
        let row = floors.get(name).copied();
        let Some(floor) = row.or(is_held(name).then_some(FLOOR)) else { continue };
        let has = density.of_a_thousand();
        if has < floor {
            let what = format!("{density} assert an invariant in release; at least {floor} of 1,000");
            findings.push(Finding::new(name, what));
        } else if density.is_far_above(floor) {
            let what = format!("`{name}` asserts more than its row of [assertions] says: raise its figure to {has}");
            findings.push(Finding::new(PLACE, what));
        }
    }
    for (name, &floor) in floors {
        if !found.contains_key(name) {
            findings.push(Finding::new(PLACE, format!("`{name}` is no crate with functions: delete the row")));
        } else if floor < FLOOR {
            findings.push(Finding::new(PLACE, format!("`{name}`: no floor of assertions is below {FLOOR}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::rust::sources_of;
    use super::*;

    fn findings(row: Option<usize>, name: &str, assertions: usize) -> Vec<String> {
        let found = BTreeMap::from([(name.to_owned(), Density { functions: 500, assertions })]);
        let floors = row.map(|floor| (name.to_owned(), floor)).into_iter().collect();
        check(&floors, &found).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn crate_of_pure_without_a_row_has_the_floor_of_all() {
        assert_eq!(findings(None, "pure/new", 50), Vec::<String>::new());
        assert!(findings(None, "pure/new", 49)[0].contains("at least 100 of 1,000"));
        assert_eq!(findings(None, "plane/engine", 49).len(), 1);
        assert_eq!(findings(None, "front/api", 0), Vec::<String>::new());
    }

    #[test]
    fn crate_below_its_floor_or_far_above_it_is_found() {
        assert_eq!(findings(Some(140), "pure/raid", 70), Vec::<String>::new());
        assert_eq!(findings(Some(140), "pure/raid", 75), Vec::<String>::new());
        assert!(findings(Some(140), "pure/raid", 69)[0].contains("at least 140 of 1,000"));
        assert!(findings(Some(140), "pure/raid", 80)[0].contains("raise its figure to 160"));
    }

    #[test]
    fn small_crate_needs_no_row_for_an_assertion_or_two() {
        let found = BTreeMap::from([("pure/small".to_owned(), Density { functions: 14, assertions: 4 })]);
        assert_eq!(check(&BTreeMap::new(), &found), []);
    }

    #[test]
    fn floor_below_that_of_all_and_row_of_no_crate_are_found() {
        assert!(findings(Some(90), "pure/raid", 50)[0].contains("no floor of assertions is below 100"));
        assert!(
            check(&BTreeMap::from([("pure/gone".to_owned(), 100)]), &BTreeMap::new())[0]
                .what
                .contains("delete the row")
        );
    }

    #[test]
    fn files_of_tests_that_are_named_otherwise_are_left_out() {
        let sources = sources_of(&[
            ("crates/pure/a/src/lib.rs".into(), "#[cfg(test)] mod rig; mod b; fn f() { assert!(g()); }"),
            ("crates/pure/a/src/rig.rs".into(), "fn f() { assert!(g()); }"),
            ("crates/pure/a/src/rig/disk.rs".into(), "fn f() { assert!(g()); }"),
            ("crates/pure/a/src/b.rs".into(), "#[cfg(test)] mod oracle; fn f() {}"),
            ("crates/pure/a/src/b/oracle.rs".into(), "fn f() { assert!(g()); }"),
            ("crates/pure/a/src/oracle.rs".into(), "fn f() {}"),
        ]);
        let found = densities(&sources);
        assert_eq!(found, BTreeMap::from([("pure/a".to_owned(), Density { functions: 3, assertions: 1 })]));
    }
}
