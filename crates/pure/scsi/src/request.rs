//! A command that was judged and found possible: its operation and its blocks, and the data that came with it.
//!
//! Plain data: `judge.rs` makes a [`Request`] of a CDB, and the module of each operation carries out a [`Job`].

use crate::cdb::Cdb;
use crate::command::{DataNeed, NexusId, Status, TaskTag};
use crate::failure::Failure;
use crate::operation::{Operation, Verb};
use crate::sense::{AdditionalSense, Sense};
use block::{Extent, Geometry, View};

/// One command, understood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub operation: &'static Operation,
    pub cdb: Cdb,
    /// The blocks that it names; empty where it names none.
    pub extent: Extent,
    pub need: DataNeed,
}

impl Request {
    /// BYTCHK of VERIFY and WRITE AND VERIFY.
    pub(crate) fn byte_check(&self) -> u8 {
        (self.cdb.u8_at(1) >> 1) & 0x03
    }

    /// FUA of a WRITE. It is in the second byte of every one but WRITE (6), whose second byte is of its address.
    pub(crate) fn is_forced(&self) -> bool {
        self.cdb.operation_code() >= 0x20 && self.cdb.bit(1, 3)
    }

    /// UNMAP of WRITE SAME.
    pub(crate) fn unmaps(&self) -> bool {
        self.operation.verb == Verb::WriteSame && self.cdb.bit(1, 3)
    }

    /// NDOB of WRITE SAME (16): no data comes, and zeros are meant.
    pub(crate) fn has_no_data_out(&self) -> bool {
        self.operation.verb == Verb::WriteSame && self.cdb.bit(1, 0)
    }
}

/// A command that is neither READ nor WRITE, on its way.
pub(crate) struct Job {
    pub nexus: NexusId,
    pub tag: TaskTag,
    pub request: Request,
    pub data_out: View,
    pub data_out_expected: u64,
    pub geometry: Geometry,
}

/// The data that came with a command which needs `need` bytes: as much of it as the initiator has.
///
/// *Errors*: BUSY when data that the initiator has was not brought along (it was judged against an
/// older shape of the unit): nothing is done, and the initiator asks again.
pub(crate) fn data_of(data_out: View, expected: u64, need: u64) -> Result<View, Failure> {
    let given = usize::try_from(need.min(expected)).map_err(|_| Status::Busy)?;
    if data_out.len() < given {
        return Err(Status::Busy.into());
    }
    Ok(if data_out.len() == given { data_out } else { data_out.slice(..given) })
}

/// The blocks that came: all of them, or the first when the initiator has fewer than it names.
///
/// *Errors*: 0E/03 when what it has is no whole number of blocks; nothing is written then.
pub(crate) fn blocks_of(data_out: View, expected: u64, need: u64, geometry: Geometry) -> Result<View, Failure> {
    let data = data_of(data_out, expected, need)?;
    if data.len().is_multiple_of(geometry.block_bytes as usize) {
        Ok(data)
    } else {
        Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT).into())
    }
}

impl Job {
    /// The whole parameter list or data, exactly as long as the CDB says.
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
