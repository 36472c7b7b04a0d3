//! Secrets: CHAP secrets, keys of pools and volumes, passwords that the array sends.
//!
//! A secret is in memory once, however many owners it has: a clone is another owner of the same bytes. The bytes are in
//! pages that the kernel neither writes to swap (`mlock`) nor into a core dump (`MADV_DONTDUMP`), and are overwritten
//! when the last owner is dropped. No code may copy a secret to the heap; where an answer or a file requires it, the
//! copy is wiped (`zeroize`).

mod pages;

pub use pages::all_are_locked;

use pages::Storage;
use std::fmt;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Secret bytes. Never shown by `Debug`.
#[derive(Clone)]
pub struct Secret(Arc<Storage>);

impl Secret {
    /// Stores `bytes` as a secret, and wipes the memory that they came in.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        // `into` reuses the memory of a vector, so the wrapper wipes the caller's bytes.
        Self(Arc::new(Storage::with(&Zeroizing::new(bytes.into()))))
    }

    /// The bytes themselves.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl PartialEq for Secret {
    /// Constant-time comparison: the duration does not depend on the position of a difference.
    fn eq(&self, other: &Self) -> bool {
        // In constant time: the duration must not reveal a common prefix.
        self.expose().ct_eq(other.expose()).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags of the mapping that contains this address, as reported by the kernel.
    fn flags_of(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
        let mut inside = false;
        for line in maps.lines() {
            if let Some((from, to)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
                let bound = |text| usize::from_str_radix(text, 16).ok();
                inside = bound(from).zip(bound(to)).is_some_and(|(from, to)| (from..to).contains(&address));
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
                return flags.to_owned();
            }
        }
        panic!("no mapping has {address:x}");
    }

    #[test]
    fn secret_lies_once_in_pages_that_are_locked_and_not_dumped() {
        let secret = Secret::new(b"correct horse battery".to_vec());
        let other = secret.clone();
        assert_eq!(secret.expose(), b"correct horse battery");
        assert_eq!(secret.expose().as_ptr(), other.expose().as_ptr(), "a clone is no copy");
        let flags = flags_of(secret.expose().as_ptr().addr());
        assert!(flags.contains(" dd"), "it would be dumped: {flags}");
        assert!(
            flags.contains(" lo") || !all_are_locked(),
            "where little may be locked (RLIMIT_MEMLOCK), it is told: {flags}"
        );
    }

    #[test]
    fn secret_equality_sees_length_and_bytes() {
        let secret = |text: &str| Secret::new(text.as_bytes());
        assert_eq!(secret("abcdefghijkl"), secret("abcdefghijkl"));
        assert_ne!(secret("abcdefghijkl"), secret("abcdefghijkm"));
        assert_ne!(secret("abcdefghijkl"), secret("abcdefghijklm"));
        assert_eq!(secret(""), secret(""));
    }

    #[test]
    fn secret_shows_itself_to_no_log_and_may_be_long() {
        let secret = Secret::new(vec![7; 10_000]);
        assert_eq!((secret.expose().len(), format!("{secret:?}")), (10_000, "Secret(…)".to_owned()));
    }
}
