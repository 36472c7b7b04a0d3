//! Bounded reading of foreign input (files, standard input), bounded quoting of it in errors, and a descriptor reserve.
//!
//! Every reader of a file that others write goes through here: configuration, documents, scenarios, secrets,
//! certificates. A file that exceeds its limit is an error with both figures. It is never truncated, because everything
//! after the cut would silently count as absent. Quotations are short and free of control characters, because they go
//! to terminals and logs. This crate parses nothing.

pub mod descriptors;
mod excerpt;

pub use excerpt::{complaint, excerpt, quoted};

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reason why input was not read.
#[derive(Debug)]
pub enum ReadError {
    /// Error of the operating system.
    System(io::Error),
    /// The input exceeds its limit.
    TooLong {
        /// Size in bytes; `None` where the input has no size, such as a pipe.
        bytes: Option<u64>,
        /// Limit in bytes.
        bytes_max: u64,
    },
    /// A folder, a pipe or a device where a regular file is required.
    NoFile,
    /// Not valid UTF-8.
    NoText,
}

impl ReadError {
    /// True when the file does not exist.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::System(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => error.fmt(f),
            Self::TooLong { bytes: Some(bytes), bytes_max } => {
                write!(f, "it has {} bytes, and the limit is {} bytes", grouped(*bytes), grouped(*bytes_max))
            }
            Self::TooLong { bytes: None, bytes_max } => {
                write!(f, "it has more than {} bytes, which is the limit", grouped(*bytes_max))
            }
            Self::NoFile => f.write_str("it is no regular file"),
            Self::NoText => f.write_str("it is no text in UTF-8"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Reads a regular file. For a daemon, which must not block on the other end of a pipe.
///
/// *Errors*: it cannot be read, is not a regular file, or exceeds the limit.
pub fn file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
    // Checked before the open, which would block on a pipe until there is a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(ReadError::NoFile);
    }
    source(path, bytes_max)
}

/// Reads a regular file as text, as [`file`].
///
/// *Errors*: those of [`file`], or it is not valid UTF-8.
pub fn text_file(path: &Path, bytes_max: u64) -> Result<String, ReadError> {
    text_of(file(path, bytes_max)?)
}

/// Reads a file or a pipe. For a command line, where `<(…)` is a pipe.
///
/// *Errors*: it cannot be read, or exceeds the limit.
pub fn source(path: &Path, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
    let opened = File::open(path)?;
    // Of the open file: the path may lead to another one by now.
    let found = opened.metadata()?;
    if found.is_dir() {
        return Err(ReadError::NoFile);
    }
    // Checked first, so that a file that is far too long is not read at all.
    if found.len() > bytes_max {
        return Err(ReadError::TooLong { bytes: Some(found.len()), bytes_max });
    }
    // A pipe has no length and passes the check; `reader` bounds it while reading.
    reader(opened, bytes_max)
}

/// Reads a file or a pipe, or standard input where the path is `-`.
///
/// *Errors*: it cannot be read, or exceeds the limit.
pub fn source_or_stdin(path: &Path, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
    if path == Path::new("-") { reader(io::stdin().lock(), bytes_max) } else { source(path, bytes_max) }
}

/// Reads to the end of `from`.
///
/// *Errors*: it cannot be read, or exceeds the limit.
pub fn reader(from: impl Read, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    // One byte more, to distinguish input of exactly the limit from longer input.
    from.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(ReadError::TooLong { bytes: None, bytes_max }) } else { Ok(bytes) }
}

/// Converts bytes to text.
///
/// *Errors*: they are not valid UTF-8.
pub fn text_of(bytes: Vec<u8>) -> Result<String, ReadError> {
    String::from_utf8(bytes).map_err(|_| ReadError::NoText)
}

/// Formats a number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_as_long_as_its_limit_is_whole_and_a_longer_one_is_refused_with_both_figures() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 1000]).expect("writes");
        assert_eq!(file(&path, 1000).expect("it fits"), [7; 1000]);
        let refused = file(&path, 999).expect_err("too long").to_string();
        assert_eq!(refused, "it has 1,000 bytes, and the limit is 999 bytes");
        let refused = reader(&[7; 1000][..], 999).expect_err("too long").to_string();
        assert_eq!(refused, "it has more than 999 bytes, which is the limit");
        assert_eq!(reader(&[7; 1000][..], 1000).expect("it fits").len(), 1000);
    }

    #[test]
    fn file_that_is_away_a_folder_without_end_or_no_text_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(file(&folder.path().join("nothing"), 10).expect_err("absent").is_absent());
        assert!(matches!(file(folder.path(), 10), Err(ReadError::NoFile)));
        assert!(matches!(source(folder.path(), 10), Err(ReadError::NoFile)));
        assert!(matches!(file(Path::new("/dev/zero"), 10), Err(ReadError::NoFile)));
        assert!(matches!(source(Path::new("/dev/zero"), 10), Err(ReadError::TooLong { bytes: None, bytes_max: 10 })));
        std::fs::write(folder.path().join("binary"), [0xff]).expect("writes");
        assert!(matches!(text_file(&folder.path().join("binary"), 10), Err(ReadError::NoText)));
    }
}
