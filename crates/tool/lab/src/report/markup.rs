//! XML that is well-formed by construction: HTML pages in XML syntax, and SVG.

use std::fmt::{Display, Write};

/// Text under way.
#[derive(Default)]
pub(super) struct Markup(String);

/// Names and values of attributes.
pub(super) type Attributes<'a> = &'a [(&'a str, &'a dyn Display)];

impl Markup {
    /// Of what was finished.
    pub(super) fn made(text: String) -> Self {
        Self(text)
    }

    /// An element with what `inside` writes.
    pub(super) fn element(&mut self, name: &str, attributes: Attributes<'_>, inside: impl FnOnce(&mut Self)) {
        self.whole(name, attributes, inside);
        self.0.push('\n');
    }

    /// An element with nothing inside.
    pub(super) fn empty(&mut self, name: &str, attributes: Attributes<'_>) {
        self.begin(name, attributes);
        self.0.push_str(" />\n");
    }

    /// An element with a text, and no room after it.
    pub(super) fn leaf(&mut self, name: &str, attributes: Attributes<'_>, text: &str) {
        self.whole(name, attributes, |inside| inside.text(text));
    }

    /// A text.
    pub(super) fn text(&mut self, text: &str) {
        self.0.push_str(&escaped(text));
    }

    /// What is markup already.
    pub(super) fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// A style sheet that is part of the program. It has none of the characters that XML would take for its own.
    pub(super) fn style(&mut self, sheet: &'static str) {
        debug_assert!(!sheet.contains(['<', '&']), "XML would read the sheet otherwise than HTML");
        self.element("style", &[], |inside| inside.0.push_str(sheet));
    }

    /// All of it.
    pub(super) fn finish(self) -> String {
        self.0
    }

    fn whole(&mut self, name: &str, attributes: Attributes<'_>, inside: impl FnOnce(&mut Self)) {
        self.begin(name, attributes);
        self.0.push('>');
        inside(self);
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
    }

    fn begin(&mut self, name: &str, attributes: Attributes<'_>) {
        self.0.push('<');
        self.0.push_str(name);
        for (name, value) in attributes {
            let value = escaped(&value.to_string());
            write!(self.0, " {name}=\"{value}\"").expect("a String takes everything");
        }
    }
}

/// Text without the characters that markup gives a meaning, nor those that XML does not have.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
