//! ROD tokens (SPC-4, ROD token format) of the type point in time copy, change vulnerable: a token represents blocks as
//! they are when it is created, and is canceled when one of them changes.
//!
//! A nexus that presents all bytes of a token may read its blocks, provided that the unit is mapped to it and it has
//! read access. Half of the bytes are random, so tokens cannot be guessed. Tokens are kept in memory only.

use crate::designator::target_device_designator;
use crate::identity::{Identity, TargetPort};
use crate::reply::Reply;
use crate::sense::{AdditionalSense, Sense};
use block::Extent;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const TOKEN_BYTES: usize = 512;
/// Number of random bytes in a token.
pub(crate) const SECRET_BYTES: usize = 256;

/// ROD TYPE: point in time copy, change vulnerable.
pub(crate) const CHANGE_VULNERABLE: u32 = 0x0080_0001;
/// ROD TYPE of the block device zero ROD token (SBC-3).
pub(crate) const ZERO: u32 = 0xFFFF_0001;
/// ROD TOKEN LENGTH of both types.
const LENGTH: u16 = (TOKEN_BYTES - 8) as u16;

/// Inactivity timeout of a token in seconds: default and maximum.
pub(crate) const INACTIVITY_DEFAULT_S: u32 = 60;
pub(crate) const INACTIVITY_MAX_S: u32 = 600;
/// Maximum number of valid tokens of one unit, and of ended tokens whose reason is remembered.
const TOKENS_MAX: usize = 256;
const ENDED_MAX: usize = 256;

/// Offset of the length of the creator's designator, which follows it.
const CREATOR_LENGTH_AT: usize = 16 + 7;
const DESIGNATOR_BYTES_MAX: usize = 20;
const TARGET_AT: usize = 128;
const TARGET_BYTES: usize = 128;

/// Token in wire format.
pub(crate) type TokenBytes = Box<[u8; TOKEN_BYTES]>;

/// ROD tokens of one unit.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    made: RefCell<BTreeMap<u64, Token>>,
    /// Number of tokens created so far.
    count: Cell<u64>,
    /// Number of valid tokens: every write reads this cell and searches the map only when it is not zero.
    valid: Cell<usize>,
}

#[derive(Debug)]
struct Token {
    bytes: TokenBytes,
    extents: Vec<Extent>,
    inactivity: Duration,
    used: Duration,
    /// Reason for its end; `None` while it is valid.
    ended: Option<AdditionalSense>,
}

/// Data that a new token represents.
pub(crate) struct Represented<'a> {
    pub identity: &'a Identity,
    pub port: &'a TargetPort,
    pub block_bytes: u32,
    pub extents: Vec<Extent>,
}

impl Tokens {
    /// Creates a token from `secret` and the public fields.
    ///
    /// *Errors*: 55/0D when the limit on valid tokens is reached.
    pub(crate) fn make(
        &self,
        represented: Represented<'_>,
        secret: &[u8; SECRET_BYTES],
        inactivity: Duration,
        now: Duration,
    ) -> Result<TokenBytes, Sense> {
        // Tokens that have expired make room for this one.
        self.expire(now);
        if self.valid.get() >= TOKENS_MAX {
            return Err(Sense::illegal(AdditionalSense::INSUFFICIENT_RESOURCES_FOR_TOKEN));
        }
        self.forget_ended();
        let number = self.count.get() + 1;
        self.count.set(number);
        let bytes = emit(number, &represented, secret);
        let token = Token { bytes: bytes.clone(), extents: represented.extents, inactivity, used: now, ended: None };
        let before = self.made.borrow_mut().insert(number, token);
        assert!(before.is_none(), "a token has a number of its own");
        self.valid.set(self.valid.get() + 1);
        assert!(self.valid.get() <= TOKENS_MAX, "valid tokens are bounded");
        Ok(bytes)
    }

    /// Returns the extents that the token represents and restarts its inactivity timeout; `deleted` invalidates it.
    ///
    /// *Errors*: 23/04 for a token that this unit did not create, 23/07 to 23/09 for one that has ended.
    pub(crate) fn open(&self, bytes: &[u8; TOKEN_BYTES], deleted: bool, now: Duration) -> Result<Vec<Extent>, Sense> {
        self.expire(now);
        let unknown = Sense::illegal(AdditionalSense::TOKEN_UNKNOWN);
        let number = number_of(bytes);
        let mut made = self.made.borrow_mut();
        // The public number only finds the entry; all bytes decide whether it is the token.
        let token = made.get_mut(&number).filter(|token| is_same(&token.bytes, bytes)).ok_or(unknown)?;
        if let Some(why) = token.ended {
            return Err(Sense::illegal(why));
        }
        token.used = now;
        let extents = token.extents.clone();
        if deleted {
            self.end(token, AdditionalSense::TOKEN_DELETED);
        }
        Ok(extents)
    }

    /// True when a write may affect a token.
    pub(crate) fn are_some_valid(&self) -> bool {
        self.valid.get() > 0
    }

    /// Cancels the tokens that represent any block of `extent`. Must be called before the blocks are changed.
    pub(crate) fn cancel(&self, extent: Extent) {
        if !self.are_some_valid() {
            return;
        }
        for token in self.made.borrow_mut().values_mut() {
            if token.extents.iter().any(|own| own.overlaps(extent)) {
                self.end(token, AdditionalSense::TOKEN_CANCELLED);
            }
        }
    }

    fn expire(&self, now: Duration) {
        for token in self.made.borrow_mut().values_mut() {
            if now.saturating_sub(token.used) > token.inactivity {
                self.end(token, AdditionalSense::TOKEN_EXPIRED);
            }
        }
    }

    fn end(&self, token: &mut Token, why: AdditionalSense) {
        if token.ended.is_none() {
            token.ended = Some(why);
            self.valid.set(self.valid.get() - 1);
        }
    }

    /// Drops the oldest ended tokens beyond the limit.
    fn forget_ended(&self) {
        let mut made = self.made.borrow_mut();
        while made.len() - self.valid.get() >= ENDED_MAX {
            // More tokens are known than valid, so at least one has ended.
            let oldest = made.iter().find(|(_, token)| token.ended.is_some()).map(|(&number, _)| number);
            made.remove(&oldest.expect("there are some that have ended"));
        }
        assert!(made.len() < TOKENS_MAX + ENDED_MAX, "tokens are bounded");
    }
}

/// Content of a token, parsed from its public fields.
pub(crate) enum Kind {
    /// Zero ROD token: all zeros, without a source unit.
    Zero,
    /// Blocks of the unit with this NAA designator.
    Blocks { naa: Vec<u8> },
}

/// Parses the type and creator of a token.
///
/// *Errors*: 23/0A for a wrong length, 23/01 for an unsupported type, 23/05 for an invalid creator.
pub(crate) fn kind_of(bytes: &[u8; TOKEN_BYTES]) -> Result<Kind, Sense> {
    let [a, b, c, d, _, _, high, low, ..] = *bytes;
    if u16::from_be_bytes([high, low]) != LENGTH {
        return Err(Sense::illegal(AdditionalSense::INVALID_TOKEN_LENGTH));
    }
    match u32::from_be_bytes([a, b, c, d]) {
        ZERO => Ok(Kind::Zero),
        CHANGE_VULNERABLE => {
            // The token comes from an initiator, so its length byte may exceed the field.
            let length = usize::from(bytes[CREATOR_LENGTH_AT]);
            let naa = bytes.get(CREATOR_LENGTH_AT + 1..).and_then(|rest| rest.get(..length));
            let naa = naa.filter(|naa| naa.len() <= DESIGNATOR_BYTES_MAX);
            Ok(Kind::Blocks { naa: naa.ok_or(Sense::illegal(AdditionalSense::TOKEN_CORRUPT))?.to_vec() })
        }
        _ => Err(Sense::illegal(AdditionalSense::UNSUPPORTED_TOKEN_TYPE)),
    }
}

fn number_of(bytes: &[u8; TOKEN_BYTES]) -> u64 {
    bytes[8..].first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// Compares two tokens in constant time, so that timing does not reveal a matching prefix.
fn is_same(one: &[u8; TOKEN_BYTES], other: &[u8; TOKEN_BYTES]) -> bool {
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn emit(number: u64, of: &Represented<'_>, secret: &[u8; SECRET_BYTES]) -> TokenBytes {
    let blocks: u64 = of.extents.iter().map(|extent| extent.len.0).sum();
    let mut token = Reply::new();
    token.u32(CHANGE_VULNERABLE).u16(0).u16(LENGTH).u64(number);
    // CREATOR LOGICAL UNIT DESCRIPTOR: an identification descriptor CSCD descriptor.
    token.u8(0xE4).u8(0).u16(0).u8(0x01).u8(0x03).u8(0).u8(of.identity.naa.len() as u8).bytes(&of.identity.naa);
    token.pad_to(44).u32(of.block_bytes);
    // BYTES REPRESENTED has 128 bits; the upper half is always zero.
    token.u64(0).u64(blocks * u64::from(of.block_bytes));
    // Device type specific data: LOGICAL BLOCK LENGTH IN BYTES.
    token.pad_to(96).u32(of.block_bytes).pad_to(TARGET_AT);
    let target = target_device_designator(of.port);
    // A target name that does not fit is omitted; the field is informative.
    if target.len() <= TARGET_BYTES {
        token.bytes(&target);
    }
    token.pad_to(TARGET_AT + TARGET_BYTES).bytes(secret);
    assert_eq!(token.len(), TOKEN_BYTES, "half of a token is secret");
    let bytes = token.as_bytes().first_chunk().copied();
    Box::new(bytes.expect("a token is as long as it is"))
}
