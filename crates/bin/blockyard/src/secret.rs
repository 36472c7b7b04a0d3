//! Secrets: from a file, from standard input or from the environment, never from the command line.

use crate::failure::Failure;
use control::request::SecretText;
use model::{Refusal, code};
use std::io::Read;
use std::path::Path;

/// The longest secret file that is read; a secret is 255 bytes at most.
const FILE_BYTES_MAX: u64 = 4096;

/// The secret of `file` (`-` is standard input) or of the environment variable `variable`, if either is given.
///
/// One line break at the end of a file is not part of the secret.
pub fn read(file: Option<&Path>, variable: &str) -> Result<Option<SecretText>, Failure> {
    let Some(path) = file else {
        use std::os::unix::ffi::OsStrExt;
        return Ok(std::env::var_os(variable).map(|secret| SecretText::of(secret.as_bytes())));
    };
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(FILE_BYTES_MAX).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        let message = format!("the secret file {} cannot be read: {error}", path.display());
        Refusal::new(code::SECRET_INVALID, message, "name a file that holds the secret alone, or - for standard input")
    })?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(Some(SecretText::of(&bytes)))
}
