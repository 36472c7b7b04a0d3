//! Formatting of a message as an e-mail.
//!
//! *Source*: RFC 5322, RFC 2045 §6.7 (quoted-printable), RFC 2047 (subjects that are not ASCII), RFC 3834 (automatic
//! mail).

use crate::message::Message;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::{EventSeverity, Name, Timestamp};
use std::fmt::Write;

/// Limit on the length of an encoded line (RFC 2045 §6.7).
const LINE_CHARS_MAX: usize = 76;
/// Limit on the bytes in an encoded word, which may have 75 characters with its delimiters (RFC 2047 §2).
const WORD_BYTES_MAX: usize = 42;

/// Returns the complete mail, with CRLF line endings.
pub(crate) fn compose(receiver: &Name, from: &str, to: &[String], message: &Message) -> String {
    let domain = from.rsplit_once('@').map_or("localhost", |(_, domain)| domain);
    let mut mail = String::new();
    let mut head = |name: &str, value: &str| {
        // A line break in a value would start another header.
        let value = value.replace(['\r', '\n'], " ");
        // Writing to a string cannot fail.
        let _ = write!(mail, "{name}: {value}\r\n");
    };
    head("From", &format!("Blockyard {} <{from}>", message.node));
    head("Subject", &title(&message.subject()));
    head("Date", &date(message.time));
    head("Message-ID", &format!("<{}@{domain}>", message.id));
    head("MIME-Version", "1.0");
    head("Content-Type", "text/plain; charset=utf-8");
    head("Content-Transfer-Encoding", "quoted-printable");
    // Keeps vacation responders from answering (RFC 3834).
    head("Auto-Submitted", "auto-generated");
    head("X-Blockyard-Receiver", receiver.as_str());
    if message.severity == EventSeverity::Critical {
        head("Importance", "high");
    }
    // One address per line, and no address contains a line break.
    let _ = write!(mail, "To: {}\r\n\r\n", to.join(",\r\n "));
    for line in message.text().lines() {
        quote(&mut mail, line);
    }
    mail
}

/// Appends a line in quoted-printable encoding.
fn quote(mail: &mut String, line: &str) {
    let (bytes, mut length) = (line.as_bytes(), 0);
    for (at, &byte) in bytes.iter().enumerate() {
        let ends = at + 1 == bytes.len();
        // A blank at the end of a line has to be encoded, because mail servers may remove it.
        let is_plain = (b'!'..=b'~').contains(&byte) && byte != b'=' || byte == b' ' && !ends;
        let width = if is_plain { 1 } else { 3 };
        // One column is left for the `=` of a soft line break (RFC 2045 §6.7).
        if length + width >= LINE_CHARS_MAX {
            // Soft line break.
            mail.push_str("=\r\n");
            length = 0;
        }
        if is_plain {
            mail.push(char::from(byte));
        } else {
            let _ = write!(mail, "={byte:02X}");
        }
        length += width;
    }
    mail.push_str("\r\n");
}

/// Encodes a subject: encoded words where it is not ASCII.
fn title(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    // ASCII needs no encoded words.
    if text.is_ascii() {
        return text;
    }
    let (mut words, mut word) = (Vec::new(), String::new());
    for c in text.chars() {
        // Split between characters, as RFC 2047 §5 requires.
        if word.len() + c.len_utf8() > WORD_BYTES_MAX {
            words.push(std::mem::take(&mut word));
        }
        word.push(c);
    }
    words.push(word);
    words.iter().map(|word| format!("=?utf-8?B?{}?=", BASE64.encode(word))).collect::<Vec<_>>().join(" ")
}

/// Formats a date as in mail headers: `Sat, 21 Nov 2026 10:19:59 +0000`.
fn date(time: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = time.to_string();
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or("00");
    let month = part(5..7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?)).unwrap_or(&"Jan");
    // 1 January 1970 was a Thursday.
    let day = usize::try_from(time.unix() / 86_400 % 7).map_or("Thu", |day| DAYS[day]);
    format!("{day}, {} {month} {} {} +0000", part(8..10), part(0..4), part(11..19))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_is_as_mail_has_it() {
        let time: Timestamp = "2026-11-21T10:19:59Z".parse().expect("a time");
        assert_eq!(date(time), "Sat, 21 Nov 2026 10:19:59 +0000");
        assert_eq!(date(Timestamp::default()), "Thu, 01 Jan 1970 00:00:00 +0000");
    }

    #[test]
    fn lines_are_quoted_short_and_end_with_no_blank() {
        let mut mail = String::new();
        quote(&mut mail, &format!("a=b ü {} ", "x".repeat(200)));
        assert!(mail.starts_with("a=3Db =C3=BC xxx") && mail.ends_with("x=20\r\n"), "{mail}");
        assert!(mail.lines().all(|line| line.len() <= LINE_CHARS_MAX), "{mail}");
    }

    #[test]
    fn title_that_is_not_ascii_is_encoded_and_has_no_line_break() {
        assert_eq!(title("plain"), "plain");
        assert_eq!(title("a\r\nBcc: x"), "a  Bcc: x");
        assert_eq!(title("über"), "=?utf-8?B?w7xiZXI=?=");
    }

    #[test]
    fn mail_has_no_line_that_somebody_else_has_written() {
        let message = Message::test("node1", "ops\r\nBcc: x@example.com", Timestamp::default());
        let mail = compose(&"ops".parse().expect("a name"), "b@x", &["a@x".to_owned()], &message);
        let (head, _) = mail.split_once("\r\n\r\n").expect("a head");
        assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{mail}");
        assert!(mail.lines().all(|line| line.len() < 998));
    }
}
