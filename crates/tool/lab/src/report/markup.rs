//! Markup that is well-formed by construction: HTML in XML syntax, and SVG.

use std::fmt::{Display, Write};

/// Markup under construction.
#[derive(Default)]
pub(super) struct Markup(String);

/// Names and values of attributes.
pub(super) type Attributes<'a> = &'a [(&'a str, &'a dyn Display)];

impl Markup {
    /// Wraps finished markup.
    pub(super) fn made(text: String) -> Self {
        Self(text)
    }

    /// Writes an element with the content of `inside`.
    pub(super) fn element(&mut self, name: &str, attributes: Attributes<'_>, inside: impl FnOnce(&mut Self)) {
        self.whole(name, attributes, inside);
        self.0.push('\n');
    }

    /// Writes an element without content.
    pub(super) fn empty(&mut self, name: &str, attributes: Attributes<'_>) {
        self.begin(name, attributes);
        self.0.push_str(" />\n");
    }

    /// Writes an element with a text, without whitespace after it.
    pub(super) fn leaf(&mut self, name: &str, attributes: Attributes<'_>, text: &str) {
        self.whole(name, attributes, |inside| inside.text(text));
    }

    /// Writes a text.
    pub(super) fn text(&mut self, text: &str) {
        self.0.push_str(&escaped(text));
    }

    /// Appends finished markup.
    pub(super) fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// Writes a style sheet of the program, which contains no characters that XML treats specially.
    pub(super) fn style(&mut self, sheet: &'static str) {
        debug_assert!(!sheet.contains(['<', '&']), "XML would read the sheet otherwise than HTML");
        self.element("style", &[], |inside| inside.0.push_str(sheet));
    }

    /// Returns the markup.
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

/// Escapes characters with a meaning in markup, and replaces those that XML does not allow.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML replaces line breaks and tabs of attribute values by spaces (XML 1.0 §3.3.3); texts are treated
            // alike.
            '\n' | '\t' => escaped.push(' '),
            // XML 1.0 §2.2: control characters and noncharacters cannot even be written as references.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
