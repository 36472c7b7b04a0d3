//! SANITIZE order: parameter list and stored form. `docs/on-disk.md` has the byte map.
#![warn(clippy::arithmetic_side_effects)]

use super::State;
use crate::cdb::Cdb;
use crate::persistence::{ParseError, Reader};
use crate::sense::Sense;
use block::{Blocks, Lba};

const OVERWRITE: u8 = 0x01;
const BLOCK_ERASE: u8 = 0x02;
const CRYPTOGRAPHIC_ERASE: u8 = 0x03;

/// Length of the parameter list header of OVERWRITE.
const HEADER_BYTES: usize = 4;
const INVERT: u8 = 0x80;
const TEST: u8 = 0x60;
const OVERWRITE_COUNT: u8 = 0x1F;

/// Flags of the stored form.
const EXITS: u8 = 1;
const INVERTS: u8 = 2;
const FAILED: u8 = 4;
const BY_KEY: u8 = 8;

/// Refuses an impossible parameter list length of OVERWRITE from the CDB, before any data is solicited.
///
/// *Errors*: 24/00.
pub(crate) fn check_list_length(cdb: Cdb, block_bytes: u32) -> Result<(), Sense> {
    let bytes = u64::from(cdb.u16_at(7));
    let header = HEADER_BYTES as u64;
    let is_possible = bytes > header && bytes <= header.saturating_add(u64::from(block_bytes));
    if cdb.u8_at(1) & 0x1F != OVERWRITE || is_possible { Ok(()) } else { Err(Sense::cdb_byte(7)) }
}

/// Sanitize method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// OVERWRITE: writes a pattern, repeated within each block, in several passes.
    Overwrite {
        pattern: Vec<u8>,
        passes: u8,
        /// INVERT: passes alternate between the pattern and its inverse; the last one writes the pattern.
        inverts: bool,
    },
    /// BLOCK ERASE: writes zeros and discards the blocks.
    BlockErase,
    /// CRYPTOGRAPHIC ERASE: replaces the encryption key and discards the blocks.
    CryptographicErase,
}

impl Method {
    /// Parses the parameter list of `action`, one of the table of operations.
    ///
    /// *Errors*: 26/00 with a field pointer.
    pub(crate) fn parse(action: u8, list: &[u8], block_bytes: u32) -> Result<Self, Sense> {
        // These methods have no parameter list.
        match action {
            BLOCK_ERASE => return Ok(Self::BlockErase),
            CRYPTOGRAPHIC_ERASE => return Ok(Self::CryptographicErase),
            _ => {}
        }
        // The length was checked together with the CDB.
        let (&[bits, reserved, high, low], pattern) = list.split_first_chunk().ok_or(Sense::cdb_byte(7))?;
        let (passes, length) = (bits & OVERWRITE_COUNT, usize::from(u16::from_be_bytes([high, low])));
        // TEST: no test patterns are supported.
        if bits & TEST != 0 {
            return Err(Sense::parameter(0, Some(6)));
        }
        // OVERWRITE COUNT of zero is invalid (SBC-4 SANITIZE).
        if passes == 0 {
            return Err(Sense::parameter(0, Some(4)));
        }
        if reserved != 0 {
            return Err(Sense::parameter(1, None));
        }
        let fits = length > 0 && length <= usize::try_from(block_bytes).unwrap_or(usize::MAX);
        let pattern = pattern.get(..length).filter(|_| fits).ok_or(Sense::parameter(2, None))?;
        Ok(Self::Overwrite { pattern: pattern.to_vec(), passes, inverts: bits & INVERT != 0 })
    }

    /// Number of passes over the medium.
    pub(crate) fn passes(&self) -> u8 {
        match self {
            Self::Overwrite { passes, .. } => *passes,
            Self::BlockErase | Self::CryptographicErase => 1,
        }
    }

    /// True when blocks read as zeros afterwards, as far as they are readable.
    pub(crate) fn leaves_zeros(&self) -> bool {
        match self {
            Self::Overwrite { pattern, .. } => pattern.iter().all(|&byte| byte == 0),
            Self::BlockErase | Self::CryptographicErase => true,
        }
    }

    /// Returns the content of a block after pass `pass`, counted from zero.
    pub(crate) fn block(&self, pass: u8, block_bytes: usize) -> Vec<u8> {
        assert!(pass < self.passes(), "there are only so many passes");
        let Self::Overwrite { pattern, passes, inverts } = self else { return vec![0; block_bytes] };
        assert!(!pattern.is_empty(), "OVERWRITE has a pattern");
        // Counted from the end, so that the last pass writes the pattern itself.
        let is_inverse = *inverts && passes.wrapping_sub(pass) % 2 == 0;
        let mask = if is_inverse { 0xFF } else { 0x00 };
        pattern.iter().cycle().take(block_bytes).map(|byte| byte ^ mask).collect()
    }
}

/// Running order with its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SanitizeOperation {
    pub method: Method,
    /// AUSE: after a failure, EXIT FAILURE MODE may clear it.
    pub exits: bool,
    /// Current pass, from zero; equal to the number of passes when all are complete.
    pub pass: u8,
    /// First block that the current pass has not written.
    pub at: Lba,
}

impl SanitizeOperation {
    pub(crate) fn new(method: Method, exits: bool) -> Self {
        Self { method, exits, pass: 0, at: Lba(0) }
    }

    /// PROGRESS INDICATION in 65,536ths.
    pub(crate) fn progress(&self, blocks: Blocks) -> u16 {
        // At least one, because an empty unit has no blocks.
        let all = u128::from(blocks.0).saturating_mul(u128::from(self.method.passes())).max(1);
        let passed = u128::from(blocks.0).saturating_mul(u128::from(self.pass));
        let done = passed.saturating_add(u128::from(self.at.0)).saturating_mul(1 << 16);
        u16::try_from(done.checked_div(all).unwrap_or(0)).unwrap_or(u16::MAX)
    }
}

impl State {
    /// Emits the stored form; empty when idle.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let running = match self {
            Self::Idle => return Vec::new(),
            // A failed operation stores no progress: it is never resumed.
            Self::Failed { exits } => &SanitizeOperation::new(Method::BlockErase, *exits),
            Self::Running(running) => running,
        };
        let failed = if matches!(self, Self::Failed { .. }) { FAILED } else { 0 };
        let exits = if running.exits { EXITS } else { 0 };
        let (passes, inverts, pattern) = match &running.method {
            Method::Overwrite { pattern, passes, inverts } => (*passes, *inverts, pattern.as_slice()),
            Method::BlockErase | Method::CryptographicErase => (0, false, &[][..]),
        };
        let by_key = if running.method == Method::CryptographicErase { BY_KEY } else { 0 };
        let flags = failed | exits | by_key | if inverts { INVERTS } else { 0 };
        let length = u16::try_from(pattern.len()).expect("a pattern is no longer than a block");
        let mut out = vec![flags, passes, running.pass];
        out.extend(running.at.0.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend(pattern);
        out
    }

    /// Parses what [`State::emit`] emitted.
    ///
    /// *Errors*: for anything else.
    pub(crate) fn parse(rest: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (flags, passes, pass, at, length) = (rest.u8()?, rest.u8()?, rest.u8()?, rest.u64()?, rest.u16()?);
        let pattern = rest.bytes(usize::from(length))?.to_vec();
        let exits = flags & EXITS != 0;
        let by_key = flags & BY_KEY != 0;
        // Unknown flags belong to a newer version, whose state must not be misread.
        let unknown = flags & !(EXITS | INVERTS | FAILED | BY_KEY) != 0 || by_key && passes > 0;
        // A pattern exists exactly for OVERWRITE.
        if unknown || (passes == 0) != pattern.is_empty() || passes > OVERWRITE_COUNT {
            return Err(ParseError);
        }
        if flags & FAILED != 0 {
            return Ok(Self::Failed { exits });
        }
        let method = match passes {
            0 if by_key => Method::CryptographicErase,
            0 => Method::BlockErase,
            passes => Method::Overwrite { pattern, passes, inverts: flags & INVERTS != 0 },
        };
        if pass > method.passes() {
            return Err(ParseError);
        }
        Ok(Self::Running(SanitizeOperation { method, exits, pass, at: Lba(at) }))
    }
}
