//! Limits for files, functions, import cycles, methods per type and assertions per crate, with a list of exceptions
//! that may only shrink.

use super::rust::Source;
use super::{Finding, assertions, modules};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const CIRCLE_MODULES_MAX: usize = 0;
const METHODS_MAX: usize = 80;
pub(super) const PLACE: &str = "crates/bin/xtask/ratchet.toml";

/// Exceptions to the limits, with the permitted values.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ratchet {
    /// Production lines, by path.
    #[serde(default)]
    files: BTreeMap<String, usize>,
    /// Lines, by `path::function`; only for tables.
    #[serde(default)]
    functions: BTreeMap<String, usize>,
    /// Number of modules in the largest cycle, by crate.
    #[serde(default)]
    circles: BTreeMap<String, usize>,
    /// Number of methods, by `crate::Type`.
    #[serde(default)]
    methods: BTreeMap<String, usize>,
    /// Lower bound of assertions per 1,000 functions, by crate.
    #[serde(default)]
    assertions: BTreeMap<String, usize>,
}

impl Ratchet {
    /// Reads the list of exceptions of the checkout.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(PLACE)).with_context(|| format!("cannot read {PLACE}"))?;
        toml::from_str(&text).with_context(|| format!("{PLACE} is not as expected"))
    }

    /// Finds values above their limit, and exceptions that permit more than necessary.
    pub(super) fn check(&self, sources: &[Source]) -> Vec<Finding> {
        let files: BTreeMap<_, _> =
            sources.iter().map(|source| (source.path.clone(), source.production_lines)).collect();
        let mut functions = BTreeMap::new();
        for source in sources {
            // A name may occur several times in a file; the longest function counts.
            for function in &source.functions {
                let longest: &mut usize = functions.entry(format!("{}::{}", source.path, function.name)).or_default();
                *longest = function.lines.max(*longest);
            }
        }
        let circles =
            modules::circles(sources).into_iter().map(|(name, circle)| (name, circle.modules.len())).collect();
        let methods = modules::methods(sources);
        [
            compare(&self.files, &files, FILE_LINES_MAX, "lines"),
            compare(&self.functions, &functions, FUNCTION_LINES_MAX, "lines"),
            compare(&self.circles, &circles, CIRCLE_MODULES_MAX, "modules import each other in a circle"),
            compare(&self.methods, &methods, METHODS_MAX, "methods"),
            assertions::check(&self.assertions, &assertions::densities(sources)),
        ]
        .concat()
    }
}

fn compare(
    excused: &BTreeMap<String, usize>,
    found: &BTreeMap<String, usize>,
    limit: usize,
    unit: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, &lines) in found {
        let allowed = excused.get(name).copied().unwrap_or(limit);
        if lines > allowed {
            findings.push(Finding::new(name, format!("{lines} {unit}; at most {allowed}")));
        }
    }
    for (name, &allowed) in excused {
        match found.get(name) {
            // An exception that allows exactly the present value is as tight as it can be.
            Some(&lines) if lines >= allowed => {}
            Some(&lines) if lines > limit => {
                findings.push(Finding::new(PLACE, format!("`{name}` has shrunk: lower its figure to {lines}")));
            }
            _ => findings.push(Finding::new(PLACE, format!("`{name}` needs no exception any more: delete the row"))),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::rust::Function;
    use super::*;

    fn source(lines: usize, function_lines: usize) -> Source {
        let mut source = Source::default();
        source.path = "a.rs".into();
        source.production_lines = lines;
        source.functions = vec![Function { name: "f".into(), line: 1, lines: function_lines }];
        source
    }

    fn ratchet(files: usize, functions: usize) -> Ratchet {
        let row = |name: &str, lines| BTreeMap::from([(name.to_owned(), lines)]);
        Ratchet { files: row("a.rs", files), functions: row("a.rs::f", functions), ..Ratchet::default() }
    }

    #[test]
    fn lengths_within_the_limits_pass() {
        assert_eq!(Ratchet::default().check(&[source(600, 70)]), []);
    }

    #[test]
    fn file_and_function_that_are_too_long_are_found() {
        assert_eq!(Ratchet::default().check(&[source(601, 71)]).len(), 2);
    }

    #[test]
    fn exception_excuses_exactly_what_it_says() {
        assert_eq!(ratchet(700, 90).check(&[source(700, 90)]), []);
        assert_eq!(ratchet(700, 90).check(&[source(701, 91)]).len(), 2);
    }

    #[test]
    fn exception_that_is_no_longer_needed_or_too_generous_is_found() {
        assert!(ratchet(700, 90).check(&[source(650, 80)]).iter().all(|f| f.what.contains("lower its figure")));
        assert!(ratchet(700, 90).check(&[source(10, 10)]).iter().all(|f| f.what.contains("delete the row")));
        assert_eq!(ratchet(700, 90).check(&[]).len(), 2);
    }
}
