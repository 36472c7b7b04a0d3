//! Language rules of `docs/style.md` that a program can check: first words of doc comments, names of types, and line
//! lengths in docs.
//!
//! Each rule counts its breaches per crate or page. The ratchet excuses what is left of older text.

use super::modules;
use super::rust::Source;
use super::tree::Tree;
use std::collections::BTreeMap;

/// Longest line of a page of docs, in characters. Tables, links, markup and code blocks are as long as they have to be.
const DOC_LINE_CHARS_MAX: usize = 120;

/// First words of doc comments that begin a clause where a noun or a verb belongs.
const CLAUSE_WORDS: [&str; 24] = [
    "what", "whatever", "who", "whoever", "whom", "whose", "which", "where", "wherever", "when", "whenever", "how",
    "whether", "why", "it", "its", "they", "their", "them", "that", "those", "such", "here", "there",
];

/// Names of types that say nothing to a storage engineer.
const DENIED_TYPES: [&str; 89] = [
    "Annex",
    "Ask",
    "Asked",
    "Asker",
    "Begins",
    "Behind",
    "Beside",
    "Blinded",
    "Brevity",
    "Brief",
    "Came",
    "Care",
    "Chores",
    "Circle",
    "Coming",
    "Desk",
    "Desks",
    "Door",
    "Elsewhere",
    "Entered",
    "Eras",
    "Errand",
    "Far",
    "Fare",
    "Forgetful",
    "Gait",
    "Gathered",
    "Gathering",
    "Ghost",
    "Gone",
    "Good",
    "Ground",
    "Had",
    "Hall",
    "Hear",
    "Heard",
    "Here",
    "Holds",
    "Home",
    "How",
    "Infirmary",
    "Joins",
    "Kept",
    "Known",
    "Lack",
    "Letter",
    "Look",
    "Looked",
    "Looking",
    "Mill",
    "Moment",
    "Need",
    "News",
    "Once",
    "Papers",
    "Parley",
    "Patience",
    "Penalty",
    "People",
    "Place",
    "Places",
    "Pulse",
    "Ran",
    "Reach",
    "Reel",
    "Room",
    "Said",
    "Seat",
    "Seen",
    "Sight",
    "Sleeves",
    "Standing",
    "Standings",
    "Steward",
    "Strangers",
    "Taken",
    "Talk",
    "Tellers",
    "Tended",
    "Ticket",
    "Tie",
    "Told",
    "Touch",
    "Turn",
    "Turns",
    "Understood",
    "Vigil",
    "Way",
    "Who",
];

/// Doc comments of a crate, and lines of its production code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Density {
    docs: usize,
    clauses: usize,
    lines: usize,
    comments: usize,
}

/// True if a doc comment with this first line begins with a clause instead of a noun or a verb.
pub(super) fn begins_with_clause(line: &str) -> bool {
    let line = line.trim_start_matches(|c: char| !c.is_alphanumeric());
    let first = line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    CLAUSE_WORDS.contains(&first.to_lowercase().as_str())
}

/// True if a type of this name needs a dictionary.
pub(super) fn is_denied_type(name: &str) -> bool {
    DENIED_TYPES.contains(&name)
}

/// Doc comments that begin with a clause, by crate.
pub(super) fn clauses(sources: &[Source]) -> BTreeMap<String, usize> {
    by_crate(sources, |source| source.clauses.len())
}

/// Types with denied names, by crate.
pub(super) fn denied_types(sources: &[Source]) -> BTreeMap<String, usize> {
    by_crate(sources, |source| source.denied_types.len())
}

fn by_crate(sources: &[Source], count: impl Fn(&Source) -> usize) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for source in sources {
        *all.entry(crate_of(&source.path).to_owned()).or_default() += count(source);
    }
    all
}

/// The crate of a source file by its floor, `fuzz` for the fuzz targets.
fn crate_of(path: &str) -> &str {
    let Some(inside) = path.strip_prefix("crates/") else { return path.split('/').next().unwrap_or_default() };
    inside.match_indices('/').nth(1).map_or(inside, |(end, _)| &inside[..end])
}

/// Lines of each page of docs that are too long to read, and to compare in a diff.
pub(super) fn long_lines(tree: &Tree) -> BTreeMap<String, usize> {
    let pages = tree.ending(".md").filter(|file| is_page(&file.path));
    pages.map(|file| (file.path.clone(), long_lines_of(&file.text))).collect()
}

/// True for pages that people write: tests write the manual of the command line and the list of codes.
fn is_page(path: &str) -> bool {
    !path.starts_with("console/")
        && !path.starts_with("lab/")
        && !["docs/operate/cli.md", "docs/operate/errors.md"].contains(&path)
}

fn long_lines_of(text: &str) -> usize {
    let mut in_code = false;
    let mut count = 0;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let is_free =
            in_code || line.starts_with('|') || line.trim_start().starts_with(['[', '<']) || !line.contains(' ');
        count += usize::from(!is_free && line.chars().count() > DOC_LINE_CHARS_MAX);
    }
    count
}

/// Share of doc comments that begin with a clause, and of production lines that are comments inside code.
pub(super) fn summary(sources: &[Source]) -> String {
    let mut all = Density::default();
    for source in sources.iter().filter(|source| modules::place(&source.path).is_some()) {
        all.docs += source.docs;
        all.clauses += source.clauses.len();
        all.lines += source.production_lines + source.comment_lines;
        all.comments += source.comment_lines - source.doc_lines;
    }
    let percent = |part: usize, whole: usize| {
        let tenths = (part * 1000).checked_div(whole).unwrap_or_default();
        format!("{}.{} %", tenths / 10, tenths % 10)
    };
    format!(
        "doc comments that begin with a clause: {} of {} ({}); comments inside code: {} of {} production lines ({})",
        all.clauses,
        all.docs,
        percent(all.clauses, all.docs),
        all.comments,
        all.lines,
        percent(all.comments, all.lines)
    )
}

/// First lines of doc comments in a source text, each with its line number, in order.
pub(super) fn doc_comments(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut before = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let kind = if is_doc(line) { &line[..3] } else { "" };
        if !kind.is_empty() && kind != before {
            found.push((index + 1, line[3..].trim()));
        }
        before = kind;
    }
    found
}

/// True for a line that belongs to a doc comment.
pub(super) fn is_doc(line: &str) -> bool {
    let line = line.trim_start();
    (line.starts_with("///") && !line.starts_with("////")) || line.starts_with("//!")
}

#[cfg(test)]
mod tests {
    use super::super::rust::sources_of;
    use super::super::tree::TextFile;
    use super::*;

    fn sources(text: &str) -> Vec<Source> {
        sources_of(&[("crates/pure/raid/src/a.rs".into(), text)])
    }

    #[test]
    fn doc_comment_that_begins_with_a_clause_is_counted_once() {
        let text =
            "//! How it goes.\n\n/// What an array is,\n/// which is long.\nstruct A;\n/// A stripe.\nstruct B;\n";
        assert_eq!(clauses(&sources(text)), BTreeMap::from([("pure/raid".into(), 2)]));
        assert_eq!(clauses(&sources("/// Whatsoever.\n// What it is.\nstruct B;\n"))["pure/raid"], 0);
    }

    #[test]
    fn type_of_a_denied_name_is_counted() {
        let text = "struct Told;\nenum Way { A }\ntrait Asked {}\nfn told() {}\nstruct ToldTwice;\n";
        assert_eq!(denied_types(&sources(text))["pure/raid"], 3);
    }

    #[test]
    fn long_line_of_a_page_is_counted_unless_it_cannot_be_broken() {
        let long = "word ".repeat(30);
        let page = format!("{long}\n| {long} |\n```\n{long}\n```\n{}\n", "x".repeat(200));
        assert_eq!(long_lines_of(&page), 1);
        let file = |path: &str| TextFile { path: path.into(), text: long.clone() };
        let tree = Tree { files: vec![file("docs/raid.md"), file("docs/operate/cli.md")] };
        assert_eq!(long_lines(&tree), BTreeMap::from([("docs/raid.md".into(), 1)]));
    }

    #[test]
    fn comments_inside_code_are_told_from_documentation() {
        let text = "//! A.\n\n/// B.\nfn f() {\n    // Why.\n    g();\n}\n";
        let all = sources(text);
        assert_eq!((all[0].production_lines, all[0].comment_lines, all[0].doc_lines), (4, 3, 2));
        assert!(summary(&all).ends_with("1 of 7 production lines (14.2 %)"), "{}", summary(&all));
    }
}
