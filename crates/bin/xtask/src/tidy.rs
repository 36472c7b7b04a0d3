//! Rules of the repository that a program can check; each check has a test that shows it failing.

mod assertions;
mod edges;
mod language;
mod locks;
mod modules;
mod overflow;
mod ratchet;
mod rows;
mod rust;
mod scripts;
mod tree;

use anyhow::Result;
use std::fmt;
use std::path::Path;

/// Violation of a rule: place, and description in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    place: String,
    what: String,
}

impl Finding {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Runs every check on the checkout at `root` and prints the findings; true when there are none.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let tree = tree::Tree::read(root)?;
    let sources = rust::Source::parse_all(&tree)?;
    let ratchet = ratchet::Ratchet::read(root)?;
    let mut findings = edges::check(root)?;
    for source in &sources {
        findings.extend(source.check());
    }
    // Circles and densities are printed although they are no findings, so that their trend shows.
    for (name, circle) in modules::circles(&sources) {
        println!("{name}: {circle}");
    }
    println!("assertions: {}", assertions::summary(&sources));
    println!("{}", language::summary(&sources));
    findings.extend(ratchet.check(&sources));
    findings.extend(language::check_pages(&tree));
    findings.extend(rust::check_paths(&tree));
    findings.extend(tree::check_marks(&tree));
    findings.extend(rows::check(&tree, &rust::test_names(&sources)));
    findings.extend(scripts::check(root, &tree)?);
    findings.extend(locks::check(&tree));
    findings.extend(overflow::check(&tree)?);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} findings", tree.files.len(), findings.len());
    Ok(findings.is_empty())
}
