//! Wire format of iSCSI PDUs: one file per PDU, each a plain struct of the header fields with the same pair of
//! functions, `parse` and `emit`.
//!
//! A header is 48 bytes ([`Bhs`]). The segments that follow it (additional header segments, data) are described by
//! [`SegmentLengths`] and never accessed here. Reserved bits are ignored when parsed and zero when emitted.
//!
//! *Source*: RFC 7143 §11.

mod ahs;
mod async_message;
mod data_in;
mod data_out;
mod field;
mod lengths;
mod login_request;
mod login_response;
mod logout_request;
mod logout_response;
mod nop_in;
mod nop_out;
mod number;
mod opcode;
mod r2t;
mod reject;
mod scsi_command;
mod scsi_response;
mod snack;
mod tag;
mod task_management_request;
mod task_management_response;
mod text_request;
mod text_response;

#[cfg(test)]
mod tests;

pub use ahs::Ahs;
pub use async_message::{AsyncEvent, AsyncMessage};
pub use data_in::{DataIn, DataInStatus};
pub use data_out::DataOut;
pub use lengths::{SegmentLengths, padded};
pub use login_request::{LoginRequest, Stage, Transit};
pub use login_response::LoginResponse;
pub use logout_request::{LogoutReason, LogoutRequest};
pub use logout_response::{LogoutOutcome, LogoutResponse};
pub use nop_in::NopIn;
pub use nop_out::NopOut;
pub use number::{CmdSn, DataSn, R2tSn, StatSn};
pub use opcode::Opcode;
pub use r2t::R2t;
pub use reject::{Reject, RejectReason};
pub use scsi_command::{ScsiCommand, TaskAttribute};
pub use scsi_response::{Residual, ScsiResponse, ServiceResponse};
pub use snack::{Snack, SnackType};
pub use tag::{Cid, InitiatorTaskTag, Isid, Lun, TargetTransferTag, Tsih};
pub use task_management_request::{TaskFunction, TaskManagementRequest};
pub use task_management_response::{TaskFunctionOutcome, TaskManagementResponse};
pub use text_request::TextRequest;
pub use text_response::TextResponse;

use crate::Violation;

/// Length of a basic header segment in bytes.
pub const BHS_BYTES: usize = 48;

/// Basic header segment in wire format.
pub type Bhs = [u8; BHS_BYTES];

/// Header of a PDU that an initiator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitiatorPdu {
    /// §11.18
    NopOut(NopOut),
    /// §11.3
    ScsiCommand(ScsiCommand),
    /// §11.5
    TaskManagement(TaskManagementRequest),
    /// §11.12
    Login(LoginRequest),
    /// §11.10
    Text(TextRequest),
    /// §11.7
    DataOut(DataOut),
    /// §11.14
    Logout(LogoutRequest),
    /// §11.16
    Snack(Snack),
}

impl InitiatorPdu {
    /// Parses a header that an initiator may send.
    ///
    /// *Errors*: the violated rule; an opcode that only targets send is one of them.
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let opcode = Opcode::of(header)?;
        // Only a SCSI Command may have additional header segments (RFC 7143 §11.2.1.5).
        if opcode != Opcode::ScsiCommand {
            lengths::refuse_ahs(header)?;
        }
        Ok(match opcode {
            Opcode::ScsiCommand => Self::ScsiCommand(ScsiCommand::parse(header)?),
            Opcode::DataOut => Self::DataOut(DataOut::parse(header)?),
            Opcode::NopOut => Self::NopOut(NopOut::parse(header)?),
            Opcode::TaskManagementRequest => Self::TaskManagement(TaskManagementRequest::parse(header)?),
            Opcode::LoginRequest => Self::Login(LoginRequest::parse(header)?),
            Opcode::TextRequest => Self::Text(TextRequest::parse(header)?),
            Opcode::LogoutRequest => Self::Logout(LogoutRequest::parse(header)?),
            Opcode::SnackRequest => Self::Snack(Snack::parse(header)?),
            _ => return Err(Violation::OpcodeOfTheOtherRole),
        })
    }
}

/// Returns ExpStatSN, which every PDU of an initiator carries at the same offset.
pub(crate) fn exp_stat_sn(header: &Bhs) -> StatSn {
    StatSn(field::u32_at::<28>(header))
}

/// Header of a PDU that a target sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetPdu {
    /// §11.19
    NopIn(NopIn),
    /// §11.4
    ScsiResponse(ScsiResponse),
    /// §11.6
    TaskManagement(TaskManagementResponse),
    /// §11.13
    Login(LoginResponse),
    /// §11.11
    Text(TextResponse),
    /// §11.7
    DataIn(DataIn),
    /// §11.15
    Logout(LogoutResponse),
    /// §11.8
    R2t(R2t),
    /// §11.9
    Async(AsyncMessage),
    /// §11.17
    Reject(Reject),
}

impl TargetPdu {
    /// Parses a header that a target may send.
    ///
    /// *Errors*: the violated rule; an opcode that only initiators send is one of them.
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        // A target never sends additional header segments.
        lengths::refuse_ahs(header)?;
        Ok(match Opcode::of(header)? {
            Opcode::DataIn => Self::DataIn(DataIn::parse(header)?),
            Opcode::ScsiResponse => Self::ScsiResponse(ScsiResponse::parse(header)?),
            Opcode::R2t => Self::R2t(R2t::parse(header)?),
            Opcode::NopIn => Self::NopIn(NopIn::parse(header)?),
            Opcode::TaskManagementResponse => Self::TaskManagement(TaskManagementResponse::parse(header)?),
            Opcode::LoginResponse => Self::Login(LoginResponse::parse(header)?),
            Opcode::TextResponse => Self::Text(TextResponse::parse(header)?),
            Opcode::LogoutResponse => Self::Logout(LogoutResponse::parse(header)?),
            Opcode::AsyncMessage => Self::Async(AsyncMessage::parse(header)?),
            Opcode::Reject => Self::Reject(Reject::parse(header)?),
            _ => return Err(Violation::OpcodeOfTheOtherRole),
        })
    }
}
