//! Syntactic checks of Rust sources: names, lengths, `unsafe`, and unfinished work.

mod visit;

use super::Finding;
use super::tree::{TextFile, Tree};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Words without meaning in names.
const EMPTY_WORDS: [&str; 10] =
    ["manager", "managers", "util", "utils", "utility", "common", "helper", "helpers", "misc", "mgr"];
/// First words of function names that add nothing to the noun.
const EMPTY_VERBS: [&str; 3] = ["get", "do", "process"];

/// Function: its first line, and its lines from `fn` to the closing brace without comments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// Facts about a source file that the checks use.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub path: String,
    /// Lines outside `#[cfg(test)]` that are not comments; zero for a test file.
    pub production_lines: usize,
    /// Lines outside `#[cfg(test)]` that are comments; zero for a test file.
    pub comment_lines: usize,
    /// Documentation lines among `comment_lines`.
    pub doc_lines: usize,
    /// Lines where a doc comment begins with a clause.
    clauses: Vec<usize>,
    /// Types whose names are denied, with their lines.
    denied_types: Vec<(String, usize)>,
    /// Functions outside `#[cfg(test)]`.
    pub functions: Vec<Function>,
    /// Paths outside `#[cfg(test)]` that begin with `crate`, `super` or `self`.
    pub paths: Vec<Vec<String>>,
    /// Paths of `use` items that begin with a module of the file itself: re-exports of a crate root.
    pub root_exports: Vec<Vec<String>>,
    /// Assertions outside `#[cfg(test)]` that a release build keeps.
    pub assertions: usize,
    /// Modules under `#[cfg(test)]` with files of their own.
    pub test_modules: Vec<String>,
    /// Number of methods in inherent impls outside `#[cfg(test)]`, by type.
    pub methods: BTreeMap<String, usize>,
    /// Names that the file defines, with their lines.
    names: Vec<(Name, usize)>,
    unsafe_lines: Vec<usize>,
    unfinished: Vec<(String, usize)>,
    tests: Vec<String>,
}

#[derive(Debug)]
enum Name {
    Function(String),
    Other(String),
}

impl Source {
    /// Parses every Rust file of the tree.
    pub(super) fn parse_all(tree: &Tree) -> Result<Vec<Self>> {
        tree.ending(".rs").map(Self::parse).collect()
    }

    fn parse(file: &TextFile) -> Result<Self> {
        let syntax = syn::parse_file(&file.text).with_context(|| format!("{} does not parse", file.path))?;
        Ok(visit::read(&file.path, &file.text, &syntax))
    }

    /// Finds violations within the file.
    pub(super) fn check(&self) -> Vec<Finding> {
        let at = |line: usize| format!("{}:{line}", self.path);
        let mut findings = Vec::new();
        if !may_be_unsafe(&self.path) {
            let what = "`unsafe` lives in a `sys` module of base/simd or a crate of world";
            findings.extend(self.unsafe_lines.iter().map(|&line| Finding::new(at(line), what)));
        }
        for (what, line) in &self.unfinished {
            findings.push(Finding::new(at(*line), format!("`{what}` is unfinished work")));
        }
        for &line in &self.clauses {
            findings.push(Finding::new(at(line), "the doc comment begins with a clause; begin with a noun or a verb"));
        }
        for (name, line) in &self.denied_types {
            findings.push(Finding::new(at(*line), format!("`{name}` is on the deny list of type names")));
        }
        for (name, line) in &self.names {
            findings.extend(name.fault().map(|what| Finding::new(at(*line), what)));
        }
        findings
    }
}

impl Name {
    fn fault(&self) -> Option<String> {
        let (Self::Function(name) | Self::Other(name)) = self;
        let words = words_of(name);
        if let Some(word) = words.iter().find(|word| EMPTY_WORDS.contains(&word.as_str())) {
            return Some(format!("`{name}`: \"{word}\" says nothing; name what it is"));
        }
        // A verb alone is the whole name, and may be the right word.
        let first = words.first().filter(|_| matches!(self, Self::Function(_)) && words.len() > 1)?;
        EMPTY_VERBS
            .contains(&first.as_str())
            .then(|| format!("`{name}`: \"{first}_\" says nothing; name what is true when it returns"))
    }
}

/// Splits a name in snake case or camel case into lower-case words.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower_before = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && lower_before) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("there is always a word").extend(c.to_lowercase());
        }
        lower_before = c.is_lowercase() || c.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

fn may_be_unsafe(path: &str) -> bool {
    let in_crate = path.starts_with("crates/base/simd/") || path.starts_with("crates/world/uring/");
    in_crate && path.split('/').any(|part| part == "sys" || part == "sys.rs")
}

/// Finds source files and folders with names without meaning.
pub(super) fn check_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = BTreeSet::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with("crates/")) {
        for part in file.path.split('/') {
            if let Some(what) = Name::Other(part.to_owned()).fault() {
                findings.insert(Finding::new(&file.path, what));
            }
        }
    }
    findings.into_iter().collect()
}

/// Parses sources from paths and texts.
#[cfg(test)]
pub(super) fn sources_of(files: &[(String, &str)]) -> Vec<Source> {
    let file = |(path, text): &(String, &str)| TextFile { path: path.clone(), text: (*text).to_owned() };
    files.iter().map(|one| Source::parse(&file(one)).expect("it parses")).collect()
}

/// Returns the names of all tests in the sources.
pub(super) fn test_names(sources: &[Source]) -> BTreeSet<String> {
    sources.iter().flat_map(|source| source.tests.iter().cloned()).collect()
}

#[cfg(test)]
mod tests;
