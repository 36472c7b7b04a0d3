//! Secrets from a file, from standard input or from the environment. Never from the command line, which other users can
//! read.

use crate::failure::Failure;
use control::request::SecretText;
use model::{Refusal, code};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Limit in bytes of a secret file; a secret has at most 255 bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// Reads the secret from `file` (`-` is standard input) or from the environment variable `variable`; none if neither is
/// given.
///
/// One line break at the end of a file is not part of the secret. An `encoded` secret is a constant of RFC 7143 §6.1.
pub(crate) fn read(file: Option<&Path>, variable: &str, encoded: bool) -> Result<Option<SecretText>, Failure> {
    let plain = |bytes: &[u8]| if encoded { decoded(bytes) } else { Ok(SecretText::of(bytes)) };
    let Some(path) = file else {
        // No variable has an empty name: callers without a variable pass that.
        return std::env::var_os(variable).map(|secret| plain(secret.as_bytes())).transpose();
    };
    // The allocator of this program wipes these bytes when they are freed.
    let mut bytes = bounded::source_or_stdin(path, FILE_BYTES_MAX).map_err(|error| {
        let message = format!("the secret file {} cannot be read: {error}", path.display());
        Refusal::new(
            code::SECRET_INVALID,
            message,
            "give a file that contains only the secret, or - for standard input",
        )
    })?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    plain(&bytes).map(Some)
}

/// Decodes a secret from a hexadecimal or base64 constant.
fn decoded(constant: &[u8]) -> Result<SecretText, Failure> {
    let bytes = std::str::from_utf8(constant).ok().and_then(|text| iscsi::text::binary(text.trim_end()));
    let bytes = bytes.ok_or_else(|| {
        let message = "the secret is not a 0x or 0b constant";
        Refusal::new(code::SECRET_INVALID, message, "write 0x followed by hexadecimal digits, or 0b followed by base64")
    })?;
    Ok(SecretText::of(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(bytes: &[u8], encoded: bool) -> Result<Vec<u8>, Failure> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("writes");
        let text = read(Some(file.path()), "BLOCKYARD_NO_SUCH_VARIABLE", encoded)?.expect("a file was named");
        Ok(text.secret().expect("long enough").expose().to_vec())
    }

    #[test]
    fn secrets_of_any_bytes_come_as_they_stand_in_the_file() {
        for secret in [
            &b"# blanks and \" quotes"[..],
            b"nul\0 inside and \xff\xfe",
            b"0x00112233445566778899aabb",
            b" \t\r blanks \n\n",
        ] {
            assert_eq!(read_from(secret, false).expect("is read"), secret.strip_suffix(b"\n").unwrap_or(secret));
        }
    }

    #[test]
    fn secrets_that_are_encoded_are_decoded_and_nothing_else_is_taken_for_it() {
        let bytes: Vec<u8> = (0..12).collect();
        assert_eq!(read_from(b"0x000102030405060708090a0b\n", true).expect("is read"), bytes);
        assert_eq!(read_from(b"0bAAECAwQFBgcICQoL", true).expect("is read"), bytes);
        for wrong in [&b"plain text is no constant"[..], b"0xgg", b"0b!", b"\xff"] {
            assert!(read_from(wrong, true).is_err());
        }
    }
}
