//! Validated command: operation, blocks, and the data that came with it.
//!
//! Plain data: `judge.rs` makes a [`Request`] of a CDB, and the module of each operation executes a [`Job`].

use crate::cdb::Cdb;
use crate::command::{DataNeed, NexusId, Status, TaskTag};
use crate::failure::Failure;
use crate::operation::{Operation, Verb};
use crate::sense::{AdditionalSense, Sense};
use block::{Extent, Geometry, View};

/// Parsed and validated CDB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub operation: &'static Operation,
    pub cdb: Cdb,
    /// Blocks that the CDB names; empty where it names none.
    pub extent: Extent,
    pub need: DataNeed,
}

impl Request {
    /// BYTCHK of VERIFY and WRITE AND VERIFY.
    pub(crate) fn byte_check(&self) -> u8 {
        (self.cdb.u8_at(1) >> 1) & 0x03
    }

    /// FUA of a WRITE: in byte 1 of every CDB but WRITE (6), where byte 1 is part of the address.
    pub(crate) fn is_forced(&self) -> bool {
        self.cdb.operation_code() >= 0x20 && self.cdb.bit(1, 3)
    }

    /// UNMAP of WRITE SAME.
    pub(crate) fn unmaps(&self) -> bool {
        self.operation.verb == Verb::WriteSame && self.cdb.bit(1, 3)
    }

    /// NDOB of WRITE SAME (16): no data-out, and zeros are written.
    pub(crate) fn has_no_data_out(&self) -> bool {
        self.operation.verb == Verb::WriteSame && self.cdb.bit(1, 0)
    }
}

/// Command other than READ and WRITE, on its way through the task set.
pub(crate) struct Job {
    pub nexus: NexusId,
    pub tag: TaskTag,
    pub request: Request,
    pub data_out: View,
    pub data_out_expected: u64,
    pub geometry: Geometry,
}

/// Returns the data-out of a command that takes `need` bytes, as far as the initiator has it.
///
/// *Errors*: BUSY when data that the initiator has was not transferred, because the command was validated against a
/// stale shape of the unit. Nothing is done, and the initiator retries.
pub(crate) fn data_of(data_out: View, expected: u64, need: u64) -> Result<View, Failure> {
    // What the initiator does not announce is never awaited; the residual count tells it of the rest.
    let given = usize::try_from(need.min(expected)).map_err(|_| Status::Busy)?;
    if data_out.len() < given {
        return Err(Status::Busy.into());
    }
    Ok(if data_out.len() == given { data_out } else { data_out.slice(..given) })
}

/// Returns the data-out of a write command: all blocks, or the first ones when the initiator has fewer than the CDB
/// names.
///
/// *Errors*: 0E/03 unless the data is a whole number of blocks; nothing is written then.
pub(crate) fn blocks_of(data_out: View, expected: u64, need: u64, geometry: Geometry) -> Result<View, Failure> {
    let data = data_of(data_out, expected, need)?;
    if data.len().is_multiple_of(geometry.block_bytes as usize) {
        Ok(data)
    } else {
        Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT).into())
    }
}

impl Job {
    /// Returns the complete parameter list or data, with exactly the length of the CDB.
    ///
    /// *Errors*: 0E/03 when the initiator has less.
    pub(crate) fn whole_data(&self) -> Result<View, Failure> {
        let need = self.request.need.data_out;
        if self.data_out_expected < need {
            return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT).into());
        }
        let data = data_of(self.data_out.clone(), self.data_out_expected, need)?;
        assert_eq!(data.len() as u64, need, "whole data is as long as the CDB says");
        Ok(data)
    }
}
