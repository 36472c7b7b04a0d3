//! Language rules of `docs/style.md` that a program can check: first words of doc comments, names of types, and line
//! lengths in docs.
//!
//! Each rule is absolute: a breach is a finding at its line.

use super::rust::Source;
use super::tree::Tree;
use super::{Finding, modules};

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

/// True if a doc comment with this first line begins with a clause instead of a noun or a verb.
pub(super) fn begins_with_clause(line: &str) -> bool {
    // Markup such as `**` or a bracket is not a word.
    let line = line.trim_start_matches(|c: char| !c.is_alphanumeric());
    let first = line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    CLAUSE_WORDS.contains(&first.to_lowercase().as_str())
}

/// True if a type of this name needs a dictionary.
pub(super) fn is_denied_type(name: &str) -> bool {
    DENIED_TYPES.contains(&name)
}

/// Finds lines of docs that are too long to read, and to compare in a diff.
pub(super) fn check_pages(tree: &Tree) -> Vec<Finding> {
    let pages = tree.ending(".md").filter(|file| is_page(&file.path));
    let what = format!("the line is longer than {DOC_LINE_CHARS_MAX} characters");
    pages
        .flat_map(|file| long_lines(&file.text).into_iter().map(|line| format!("{}:{line}", file.path)))
        .map(|place| Finding::new(place, &*what))
        .collect()
}

/// True for pages that people write: tests write the manual of the command line and the list of codes.
fn is_page(path: &str) -> bool {
    !path.starts_with("console/")
        && !path.starts_with("lab/")
        && !["docs/operate/cli.md", "docs/operate/errors.md"].contains(&path)
}

/// Numbers of the lines that are too long although they could be broken.
fn long_lines(text: &str) -> Vec<usize> {
    let mut in_code = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let is_free =
            in_code || line.starts_with('|') || line.trim_start().starts_with(['[', '<']) || !line.contains(' ');
        if !is_free && line.chars().count() > DOC_LINE_CHARS_MAX {
            found.push(index + 1);
        }
    }
    found
}

/// Share of production lines that are comments inside code.
pub(super) fn summary(sources: &[Source]) -> String {
    let (mut comments, mut lines) = (0, 0);
    for source in sources.iter().filter(|source| modules::place(&source.path).is_some()) {
        // Doc lines are among the comment lines, so the difference is not negative.
        comments += source.comment_lines - source.doc_lines;
        lines += source.production_lines + source.comment_lines;
    }
    let tenths = (comments * 1000).checked_div(lines).unwrap_or_default();
    format!("comments inside code: {comments} of {lines} production lines ({}.{} %)", tenths / 10, tenths % 10)
}

/// First lines of doc comments in a source text, each with its line number, in order.
pub(super) fn doc_comments(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut before = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let kind = if is_doc(line) { &line[..3] } else { "" };
        // Only the first line of a comment begins a sentence that the rule is about.
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

    fn places(text: &str) -> Vec<String> {
        sources(text)[0].check().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn doc_comment_that_begins_with_a_clause_is_found_once() {
        let text =
            "//! How it goes.\n\n/// What an array is,\n/// which is long.\nstruct A;\n/// A stripe.\nstruct B;\n";
        let found = places(text);
        assert!(found[0].starts_with("crates/pure/raid/src/a.rs:1: ") && found[1].contains("a.rs:3: "), "{found:?}");
        assert_eq!(found.len(), 2);
        assert_eq!(places("/// Whatsoever.\n// What it is.\nstruct B;\n"), Vec::<String>::new());
    }

    #[test]
    fn type_of_a_denied_name_is_found() {
        let text = "struct Told;\nenum Way { A }\ntrait Asked {}\nfn told() {}\nstruct ToldTwice;\n";
        assert_eq!(places(text).len(), 3);
    }

    #[test]
    fn long_line_of_a_page_is_found_unless_it_cannot_be_broken() {
        let long = "word ".repeat(30);
        let page = format!("{long}\n| {long} |\n```\n{long}\n```\n{}\n", "x".repeat(200));
        assert_eq!(long_lines(&page), [1]);
        let file = |path: &str| TextFile { path: path.into(), text: long.clone() };
        let tree = Tree { files: vec![file("docs/raid.md"), file("docs/operate/cli.md")] };
        let what = "the line is longer than 120 characters";
        assert_eq!(check_pages(&tree), [Finding::new("docs/raid.md:1", what)]);
    }

    #[test]
    fn comments_inside_code_are_told_from_documentation() {
        let text = "//! A.\n\n/// B.\nfn f() {\n    // Why.\n    g();\n}\n";
        let all = sources(text);
        assert_eq!((all[0].production_lines, all[0].comment_lines, all[0].doc_lines), (4, 3, 2));
        assert!(summary(&all).ends_with("1 of 7 production lines (14.2 %)"), "{}", summary(&all));
    }
}
