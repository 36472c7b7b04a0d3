//! Quotations of foreign text in errors.

use std::ops::Range;

/// Limit on characters quoted from a parser's message.
const CHARS_MAX: usize = 400;
/// Limit on characters of a quoted word.
const WORD_CHARS_MAX: usize = 100;
/// Limit on characters quoted from an erroneous line, starting at the error.
const NEAR_CHARS_MAX: usize = 40;

/// Returns `text` with control characters escaped and line breaks kept, cut after 400 characters.
///
/// For messages of parsers, which repeat the line that they could not parse, whatever its length and content.
#[must_use]
pub fn excerpt(text: &str) -> String {
    shown(text.trim_end(), CHARS_MAX)
}

/// Returns the word in quotes, with control characters escaped, cut after 100 characters.
#[must_use]
pub fn quoted(word: &str) -> String {
    format!("\"{}\"", shown(word, WORD_CHARS_MAX))
}

/// Formats position and reason of an error in a text: `line 3: unclosed array, at "[1, 2" (column 7)`.
///
/// `span` is in bytes of `text`; without it the message is returned alone.
#[must_use]
pub fn complaint(text: &str, span: Option<Range<usize>>, message: &str) -> String {
    // Parsers spread a message over several lines; an error is a single one.
    let why = excerpt(&message.replace('\n', ", "));
    // A span that lies outside of the text or inside of a character gives the message alone.
    let Some((before, from)) = span.and_then(|span| text.split_at_checked(span.start)) else { return why };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |begun| begun.chars().count()) + 1;
    let near = from.lines().next().unwrap_or("").trim_end();
    let near = if near.is_empty() { String::new() } else { format!(", at \"{}\"", shown(near, NEAR_CHARS_MAX)) };
    format!("line {line}: {why}{near} (column {column})")
}

fn shown(text: &str, chars_max: usize) -> String {
    // A character has at most four bytes: a long text must not reserve its own length.
    let mut shown = String::with_capacity(text.len().min(chars_max * 4));
    for (at, letter) in text.chars().enumerate() {
        if at == chars_max {
            shown.push('…');
            break;
        }
        match letter {
            '\n' => shown.push('\n'),
            // Bidirectional controls, too: they would make the terminal show another text than the one that is there.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => shown.extend(letter.escape_unicode()),
            other if other.is_control() => shown.extend(other.escape_default()),
            other => shown.push(other),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_short_and_leaves_a_terminal_as_it_is() {
        assert_eq!(excerpt("line 1: expected `]`\n  |\n"), "line 1: expected `]`\n  |");
        assert_eq!(excerpt("a\x1b[2Jb\u{202e}c"), "a\\u{1b}[2Jb\\u{202e}c");
        let long = excerpt(&"[".repeat(1_000_000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (CHARS_MAX + 1, true));
        assert_eq!(quoted("web\t1"), "\"web\\t1\"");
        assert_eq!(quoted(&"x".repeat(1_000_000)).chars().count(), WORD_CHARS_MAX + 3);
    }

    #[test]
    fn complaint_names_line_and_column_and_quotes_what_is_there() {
        let text = "a = 1\nb = [1, 2\nc = 3\n";
        assert_eq!(complaint(text, Some(10..16), "unclosed array"), "line 2: unclosed array, at \"[1, 2\" (column 5)");
        assert_eq!(complaint(text, Some(9_999..10_000), "no end"), "no end");
        assert_eq!(complaint(text, None, "two\nlines"), "two, lines");
        let brackets = "[".repeat(100_000);
        assert!(complaint(&brackets, Some(80..81), &brackets).chars().count() < 600);
    }
}
