//! Opcode: the first byte of a header, which identifies sender and type of a PDU.

use super::{Bhs, field};
use crate::Violation;

/// I bit: immediate delivery.
pub(super) const IMMEDIATE: u8 = 0x40;

/// Opcodes that this crate supports.
///
/// *Source*: RFC 7143 §11.2.1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum Opcode {
    NopOut = 0x00,
    ScsiCommand = 0x01,
    TaskManagementRequest = 0x02,
    LoginRequest = 0x03,
    TextRequest = 0x04,
    DataOut = 0x05,
    LogoutRequest = 0x06,
    SnackRequest = 0x10,
    NopIn = 0x20,
    ScsiResponse = 0x21,
    TaskManagementResponse = 0x22,
    LoginResponse = 0x23,
    TextResponse = 0x24,
    DataIn = 0x25,
    LogoutResponse = 0x26,
    R2t = 0x31,
    AsyncMessage = 0x32,
    Reject = 0x3f,
}

impl Opcode {
    /// Returns the opcode of the header.
    ///
    /// *Errors*: [`Violation::OpcodeUnknown`] for reserved and vendor-specific ones.
    #[inline]
    pub fn of(header: &Bhs) -> Result<Self, Violation> {
        // The upper two bits are reserved and the I bit (RFC 7143 §11.2.1).
        Ok(match field::u8_at::<0>(header) & 0x3f {
            0x00 => Self::NopOut,
            0x01 => Self::ScsiCommand,
            0x02 => Self::TaskManagementRequest,
            0x03 => Self::LoginRequest,
            0x04 => Self::TextRequest,
            0x05 => Self::DataOut,
            0x06 => Self::LogoutRequest,
            0x10 => Self::SnackRequest,
            0x20 => Self::NopIn,
            0x21 => Self::ScsiResponse,
            0x22 => Self::TaskManagementResponse,
            0x23 => Self::LoginResponse,
            0x24 => Self::TextResponse,
            0x25 => Self::DataIn,
            0x26 => Self::LogoutResponse,
            0x31 => Self::R2t,
            0x32 => Self::AsyncMessage,
            0x3f => Self::Reject,
            _ => return Err(Violation::OpcodeUnknown),
        })
    }
}

/// True when the I bit (immediate delivery) is set.
#[inline]
pub(super) fn is_immediate(header: &Bhs) -> bool {
    field::u8_at::<0>(header) & IMMEDIATE != 0
}
