//! What a SANITIZE asks for, and what of it survives power loss. `docs/on-disk.md` has the byte map.
#![warn(clippy::arithmetic_side_effects)]

use super::State;
use crate::cdb::Cdb;
use crate::keeper::{NotUnderstood, Reader};
use crate::sense::Sense;
use block::{Blocks, Lba};

const OVERWRITE: u8 = 0x01;
const BLOCK_ERASE: u8 = 0x02;
const CRYPTOGRAPHIC_ERASE: u8 = 0x03;

/// The header of the parameter list of OVERWRITE.
const HEADER_BYTES: usize = 4;
const INVERT: u8 = 0x80;
const TEST: u8 = 0x60;
const OVERWRITE_COUNT: u8 = 0x1F;

/// In the flags of what is kept.
const EXITS: u8 = 1;
const INVERTS: u8 = 2;
const FAILED: u8 = 4;
const BY_KEY: u8 = 8;

/// Refuses a parameter list length that no list of OVERWRITE can have, before any of the list comes.
///
/// *Errors*: 24/00.
pub(crate) fn check_list_length(cdb: Cdb, block_bytes: u32) -> Result<(), Sense> {
    let bytes = u64::from(cdb.u16_at(7));
    let header = HEADER_BYTES as u64;
    let is_possible = bytes > header && bytes <= header.saturating_add(u64::from(block_bytes));
    if cdb.u8_at(1) & 0x1F != OVERWRITE || is_possible { Ok(()) } else { Err(Sense::cdb_byte(7)) }
}

/// How blocks are made unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// With a pattern that each block repeats, several times.
    Overwrite {
        pattern: Vec<u8>,
        passes: u8,
        /// Of two passes one after the other, one is with the pattern's inverse; the last is not.
        inverts: bool,
    },
    /// By zeros, and by giving back their places.
    BlockErase,
    /// By losing the key of what was written, and by giving back the places.
    CryptographicErase,
}

impl Method {
    /// Reads the parameter list of `action`, which is one of the table's.
    ///
    /// *Errors*: 26/00 with a field pointer.
    pub(crate) fn parse(action: u8, list: &[u8], block_bytes: u32) -> Result<Self, Sense> {
        match action {
            BLOCK_ERASE => return Ok(Self::BlockErase),
            CRYPTOGRAPHIC_ERASE => return Ok(Self::CryptographicErase),
            _ => {}
        }
        // Its length was judged with the CDB.
        let (&[bits, reserved, high, low], pattern) = list.split_first_chunk().ok_or(Sense::cdb_byte(7))?;
        let (passes, length) = (bits & OVERWRITE_COUNT, usize::from(u16::from_be_bytes([high, low])));
        if bits & TEST != 0 {
            return Err(Sense::parameter(0, Some(6)));
        }
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

    /// How often everything is written.
    pub(crate) fn passes(&self) -> u8 {
        match self {
            Self::Overwrite { passes, .. } => *passes,
            Self::BlockErase | Self::CryptographicErase => 1,
        }
    }

    /// True when blocks read as zeros afterwards, wherever there is something to read.
    pub(crate) fn leaves_zeros(&self) -> bool {
        match self {
            Self::Overwrite { pattern, .. } => pattern.iter().all(|&byte| byte == 0),
            Self::BlockErase | Self::CryptographicErase => true,
        }
    }

    /// What a block of `block_bytes` holds after pass `pass`, which counts from zero.
    pub(crate) fn block(&self, pass: u8, block_bytes: usize) -> Vec<u8> {
        assert!(pass < self.passes(), "there are only so many passes");
        let Self::Overwrite { pattern, passes, inverts } = self else { return vec![0; block_bytes] };
        assert!(!pattern.is_empty(), "OVERWRITE has a pattern");
        let is_inverse = *inverts && passes.wrapping_sub(pass) % 2 == 0;
        let mask = if is_inverse { 0xFF } else { 0x00 };
        pattern.iter().cycle().take(block_bytes).map(|byte| byte ^ mask).collect()
    }
}

/// How far the sanitizing of a unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sanitizing {
    pub method: Method,
    /// AUSE: when it fails, EXIT FAILURE MODE may end that.
    pub exits: bool,
    /// Which pass, from zero; all are done when it is the number of passes.
    pub pass: u8,
    /// The first block that the pass has not done.
    pub at: Lba,
}

impl Sanitizing {
    pub(crate) fn new(method: Method, exits: bool) -> Self {
        Self { method, exits, pass: 0, at: Lba(0) }
    }

    /// PROGRESS INDICATION: how much is done, in 65,536ths.
    pub(crate) fn progress(&self, blocks: Blocks) -> u16 {
        let all = u128::from(blocks.0).saturating_mul(u128::from(self.method.passes())).max(1);
        let passed = u128::from(blocks.0).saturating_mul(u128::from(self.pass));
        let done = passed.saturating_add(u128::from(self.at.0)).saturating_mul(1 << 16);
        u16::try_from(done.checked_div(all).unwrap_or(0)).unwrap_or(u16::MAX)
    }
}

impl State {
    /// What is to be kept; nothing where there is nothing to go on with.
    pub(crate) fn kept(&self) -> Vec<u8> {
        let running = match self {
            Self::Idle => return Vec::new(),
            Self::Failed { exits } => &Sanitizing::new(Method::BlockErase, *exits),
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

    /// The state that [`State::kept`] gave.
    ///
    /// *Errors*: for anything else.
    pub(crate) fn restored(rest: &mut Reader<'_>) -> Result<Self, NotUnderstood> {
        let (flags, passes, pass, at, length) = (rest.u8()?, rest.u8()?, rest.u8()?, rest.u64()?, rest.u16()?);
        let pattern = rest.bytes(usize::from(length))?.to_vec();
        let exits = flags & EXITS != 0;
        let by_key = flags & BY_KEY != 0;
        let unknown = flags & !(EXITS | INVERTS | FAILED | BY_KEY) != 0 || by_key && passes > 0;
        if unknown || (passes == 0) != pattern.is_empty() || passes > OVERWRITE_COUNT {
            return Err(NotUnderstood);
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
            return Err(NotUnderstood);
        }
        Ok(Self::Running(Sanitizing { method, exits, pass, at: Lba(at) }))
    }
}
