//! Table of the supported operations. It drives dispatch, the check of reserved bits, the computation of transfer
//! lengths, and REPORT SUPPORTED OPERATION CODES.

use crate::cdb::{CDB_BYTES_MAX, Cdb};
use crate::conflict::Access;
use crate::sense::{AdditionalSense, Sense};
use std::fmt;

/// Function of an operation; CDBs of different lengths share one verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    CompareAndWrite,
    CopyOperationAbort,
    ExtendedCopy,
    GetLbaStatus,
    Inquiry,
    LogSense,
    ModeSelect,
    ModeSense,
    OrWrite,
    PersistentReserveIn,
    PersistentReserveOut,
    PopulateToken,
    PreFetch,
    PreventAllow,
    Read,
    ReadCapacity10,
    ReadCapacity16,
    ReadDefectData,
    ReceiveCopyResults,
    Release,
    ReportLuns,
    ReportSupportedOperationCodes,
    ReportSupportedTaskManagement,
    ReportTargetPortGroups,
    RequestSense,
    Reserve,
    Sanitize,
    SendDiagnostic,
    SetTargetPortGroups,
    StartStopUnit,
    SynchronizeCache,
    TestUnitReady,
    Unmap,
    Verify,
    Write,
    WriteAtomic,
    WriteAndVerify,
    WriteSame,
    WriteUsingToken,
}

/// Data transfer of an operation, and the position of its length in the CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    None,
    /// Data-in of at most the allocation length, which is in the `bytes` bytes at `at`.
    Answer {
        at: u32,
        bytes: u32,
    },
    /// Data-in of a fixed length.
    FixedAnswer(u8),
    /// Parameter list of the length in the `bytes` bytes at `at`.
    List {
        at: u32,
        bytes: u32,
    },
    /// Blocks of the extent to the initiator.
    BlocksIn,
    /// Blocks of the extent from the initiator.
    BlocksOut,
    /// Blocks of the extent twice from the initiator: to compare, and to write.
    BlocksTwice,
    /// As BYTCHK selects: no data, the blocks, or one block.
    ByteCheck,
    /// One block, or no data where NDOB is set.
    OneBlock,
}

impl Data {
    /// True when the initiator sends data, at least with some values of the CDB.
    pub(crate) fn goes_out(&self) -> bool {
        !matches!(self, Self::None | Self::Answer { .. } | Self::FixedAnswer(_) | Self::BlocksIn)
    }
}

/// Optional features of a unit on which operations depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionalFeatures {
    /// UNMAP and operations that unmap.
    pub unmap: bool,
    /// WRITE ATOMIC.
    pub atomic: bool,
    /// SANITIZE, except CRYPTOGRAPHIC ERASE.
    pub sanitize: bool,
    /// SANITIZE, CRYPTOGRAPHIC ERASE.
    pub key: bool,
    /// Removable medium: PREVENT ALLOW MEDIUM REMOVAL, LOEJ.
    pub removable: bool,
}

impl OptionalFeatures {
    /// All features, so that every row of the table is known.
    pub(crate) const ALL: Self = Self { unmap: true, atomic: true, sanitize: true, key: true, removable: true };

    /// Returns the flags of operations that the unit does not offer.
    fn missing(self) -> u16 {
        let Self { unmap, atomic, sanitize, key, removable } = self;
        // A flag that is set for a missing feature excludes every row with this flag.
        let conditions =
            [(unmap, UNMAPS), (atomic, ATOMIC), (sanitize, SANITIZES), (key, KEYED), (removable, REMOVABLE)];
        conditions.into_iter().fold(0, |missing, (is_there, flag)| if is_there { missing } else { missing | flag })
    }
}

/// Flags of operations that depend on a feature of the unit.
const CONDITIONAL: u16 = UNMAPS | ATOMIC | SANITIZES | KEYED | REMOVABLE;

/// Row of the table of operations.
#[derive(Debug)]
pub(crate) struct Operation {
    pub name: &'static str,
    pub verb: Verb,
    /// Treatment when another nexus holds a reservation.
    pub access: Access,
    pub data: Data,
    pub cdb_bytes: u8,
    flags: u16,
    /// CDB usage data of REPORT SUPPORTED OPERATION CODES: ones for bits that are evaluated.
    usage: [u8; CDB_BYTES_MAX],
    /// Mask of the bits that may have any value: evaluated or ignored ones.
    free: u128,
}

/// Needs the medium: NOT READY while the unit is stopped or the medium is absent.
const MEDIUM: u16 = 1;
/// Refused while the unit is write protected.
const WRITES: u16 = 2;
/// One of several service actions of its operation code.
const ACTION: u16 = 4;
/// Executed despite a pending unit attention, which stays pending.
const IGNORES_UNIT_ATTENTION: u16 = 8;
/// Supported only where UNMAP is offered.
const UNMAPS: u16 = 16;
/// Runs alone on its blocks.
const ALONE: u16 = 32;
/// Supported through a target port group in standby (SPC-4, standby state).
const STANDBY: u16 = 64;
/// Supported through every target port group (SPC-4, unavailable state).
const EVERYWHERE: u16 = 128;
/// Supported only where the device writes atomically.
const ATOMIC: u16 = 256;

/// Supported only where the unit can be sanitized.
const SANITIZES: u16 = 512;
/// Supported while a SANITIZE is running or has failed (SBC-4, performing a sanitize operation).
const DURING_SANITIZE: u16 = 1024;
/// Supported only where the medium is removable.
const REMOVABLE: u16 = 2048;
/// Supported only on an encrypted volume.
const KEYED: u16 = 4096;

/// FUA_NV of SBC-2. Ignored: every acknowledged block is stable.
const FUA_NV: (usize, u8) = (1, 0x02);
/// SYNC_NV of SBC-2. Ignored for the same reason.
const SYNC_NV: (usize, u8) = (1, 0x04);
/// GROUP NUMBER of CDBs of 10, 12 and 16 bytes. Ignored: no statistics are kept per group.
const GROUP_10: (usize, u8) = (6, 0x3F);
const GROUP_12: (usize, u8) = (10, 0x3F);
const GROUP_16: (usize, u8) = (14, 0x3F);
/// SCOPE and TYPE of PERSISTENT RESERVE OUT, ignored by service actions that do not use them.
const SCOPE_TYPE: (usize, u8) = (2, 0xFF);

use Access::{Always, Keys, Own, Persistent, Prevents, Reads, Starts, Writes};
use Data::{Answer, BlocksIn, BlocksOut, BlocksTwice, ByteCheck, FixedAnswer, List, None as Nothing, OneBlock};

/// All operations in order of operation code and service action. The last column lists the ignored bits.
#[rustfmt::skip]
pub(crate) static OPERATIONS: [Operation; 74] = [
    row("TEST UNIT READY", Verb::TestUnitReady, Persistent, Nothing, MEDIUM, &[0x00, 0, 0, 0, 0, 0], &[]),
    row("REQUEST SENSE", Verb::RequestSense, Always, Answer { at: 4, bytes: 1 }, IGNORES_UNIT_ATTENTION | EVERYWHERE | DURING_SANITIZE, &[0x03, 0x01, 0, 0, 0xFF, 0], &[]),
    row("READ (6)", Verb::Read, Reads, BlocksIn, MEDIUM, &[0x08, 0x1F, 0xFF, 0xFF, 0xFF, 0], &[]),
    row("WRITE (6)", Verb::Write, Writes, BlocksOut, MEDIUM | WRITES, &[0x0A, 0x1F, 0xFF, 0xFF, 0xFF, 0], &[]),
    row("INQUIRY", Verb::Inquiry, Always, Answer { at: 3, bytes: 2 }, IGNORES_UNIT_ATTENTION | EVERYWHERE | DURING_SANITIZE, &[0x12, 0x01, 0xFF, 0xFF, 0xFF, 0], &[]),
    row("MODE SELECT (6)", Verb::ModeSelect, Writes, List { at: 4, bytes: 1 }, STANDBY, &[0x15, 0x11, 0, 0, 0xFF, 0], &[]),
    row("RESERVE (6)", Verb::Reserve, Own, Nothing, ALONE, &[0x16, 0, 0, 0, 0, 0], &[(1, 0x0E), (2, 0xFF), (3, 0xFF), (4, 0xFF)]),
    row("RELEASE (6)", Verb::Release, Own, Nothing, ALONE, &[0x17, 0, 0, 0, 0, 0], &[(1, 0x0E), (2, 0xFF)]),
    row("MODE SENSE (6)", Verb::ModeSense, Reads, Answer { at: 4, bytes: 1 }, STANDBY, &[0x1A, 0x08, 0xFF, 0xFF, 0xFF, 0], &[]),
    row("START STOP UNIT", Verb::StartStopUnit, Starts, Nothing, 0, &[0x1B, 0x01, 0, 0, 0xF7, 0], &[]),
    row("SEND DIAGNOSTIC", Verb::SendDiagnostic, Writes, List { at: 3, bytes: 2 }, MEDIUM, &[0x1D, 0xF7, 0, 0xFF, 0xFF, 0], &[]),
    row("PREVENT ALLOW MEDIUM REMOVAL", Verb::PreventAllow, Prevents, Nothing, REMOVABLE, &[0x1E, 0, 0, 0, 0x01, 0], &[]),
    row("READ CAPACITY (10)", Verb::ReadCapacity10, Persistent, FixedAnswer(8), STANDBY, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
    row("READ (10)", Verb::Read, Reads, BlocksIn, MEDIUM, &[0x28, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0], &[FUA_NV, GROUP_10]),
    row("WRITE (10)", Verb::Write, Writes, BlocksOut, MEDIUM | WRITES, &[0x2A, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0], &[FUA_NV, GROUP_10]),
    row("WRITE AND VERIFY (10)", Verb::WriteAndVerify, Writes, BlocksOut, MEDIUM | WRITES | ALONE, &[0x2E, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0], &[GROUP_10]),
    row("VERIFY (10)", Verb::Verify, Reads, ByteCheck, MEDIUM, &[0x2F, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0], &[GROUP_10]),
    row("PRE-FETCH (10)", Verb::PreFetch, Reads, Nothing, MEDIUM, &[0x34, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0], &[GROUP_10]),
    row("SYNCHRONIZE CACHE (10)", Verb::SynchronizeCache, Writes, Nothing, MEDIUM, &[0x35, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0], &[SYNC_NV, GROUP_10]),
    row("READ DEFECT DATA (10)", Verb::ReadDefectData, Reads, Answer { at: 7, bytes: 2 }, MEDIUM, &[0x37, 0, 0x1F, 0, 0, 0, 0, 0xFF, 0xFF, 0], &[]),
    row("WRITE SAME (10)", Verb::WriteSame, Writes, OneBlock, MEDIUM | WRITES, &[0x41, 0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0], &[GROUP_10]),
    row("UNMAP", Verb::Unmap, Writes, List { at: 7, bytes: 2 }, MEDIUM | WRITES | UNMAPS, &[0x42, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], &[GROUP_10]),
    row("SANITIZE, OVERWRITE", Verb::Sanitize, Writes, List { at: 7, bytes: 2 }, MEDIUM | WRITES | ACTION | ALONE | SANITIZES, &[0x48, 0xA1, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], &[]),
    row("SANITIZE, BLOCK ERASE", Verb::Sanitize, Writes, Nothing, MEDIUM | WRITES | ACTION | ALONE | SANITIZES | UNMAPS, &[0x48, 0xA2, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
    row("SANITIZE, CRYPTOGRAPHIC ERASE", Verb::Sanitize, Writes, Nothing, MEDIUM | WRITES | ACTION | ALONE | SANITIZES | KEYED, &[0x48, 0xA3, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
    row("SANITIZE, EXIT FAILURE MODE", Verb::Sanitize, Writes, Nothing, MEDIUM | WRITES | ACTION | ALONE | SANITIZES, &[0x48, 0xBF, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
    row("LOG SENSE", Verb::LogSense, Always, Answer { at: 7, bytes: 2 }, STANDBY, &[0x4D, 0, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], &[]),
    row("MODE SELECT (10)", Verb::ModeSelect, Writes, List { at: 7, bytes: 2 }, STANDBY, &[0x55, 0x11, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], &[]),
    row("RESERVE (10)", Verb::Reserve, Own, Nothing, ALONE, &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[(2, 0xFF), (3, 0xFF), (7, 0xFF), (8, 0xFF)]),
    row("RELEASE (10)", Verb::Release, Own, Nothing, ALONE, &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[(2, 0xFF), (3, 0xFF), (7, 0xFF), (8, 0xFF)]),
    row("MODE SENSE (10)", Verb::ModeSense, Reads, Answer { at: 7, bytes: 2 }, STANDBY, &[0x5A, 0x18, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0], &[]),
    row("PERSISTENT RESERVE IN, READ KEYS", Verb::PersistentReserveIn, Keys, Answer { at: 7, bytes: 2 }, ACTION | STANDBY, &[0x5E, 0x00, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], &[]),
    row("PERSISTENT RESERVE IN, READ RESERVATION", Verb::PersistentReserveIn, Keys, Answer { at: 7, bytes: 2 }, ACTION | STANDBY, &[0x5E, 0x01, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], &[]),
    row("PERSISTENT RESERVE IN, REPORT CAPABILITIES", Verb::PersistentReserveIn, Keys, Answer { at: 7, bytes: 2 }, ACTION | STANDBY, &[0x5E, 0x02, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], &[]),
    row("PERSISTENT RESERVE IN, READ FULL STATUS", Verb::PersistentReserveIn, Keys, Answer { at: 7, bytes: 2 }, ACTION | STANDBY, &[0x5E, 0x03, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0], &[]),
    row("PERSISTENT RESERVE OUT, REGISTER", Verb::PersistentReserveOut, Keys, List { at: 5, bytes: 4 }, ACTION | ALONE | STANDBY, &[0x5F, 0x00, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], &[SCOPE_TYPE]),
    row("PERSISTENT RESERVE OUT, RESERVE", Verb::PersistentReserveOut, Keys, List { at: 5, bytes: 4 }, ACTION | ALONE | STANDBY, &[0x5F, 0x01, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], &[]),
    row("PERSISTENT RESERVE OUT, RELEASE", Verb::PersistentReserveOut, Keys, List { at: 5, bytes: 4 }, ACTION | ALONE | STANDBY, &[0x5F, 0x02, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], &[]),
    row("PERSISTENT RESERVE OUT, CLEAR", Verb::PersistentReserveOut, Keys, List { at: 5, bytes: 4 }, ACTION | ALONE | STANDBY, &[0x5F, 0x03, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], &[SCOPE_TYPE]),
    row("PERSISTENT RESERVE OUT, PREEMPT", Verb::PersistentReserveOut, Keys, List { at: 5, bytes: 4 }, ACTION | ALONE | STANDBY, &[0x5F, 0x04, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], &[]),
    row("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", Verb::PersistentReserveOut, Keys, List { at: 5, bytes: 4 }, ACTION | ALONE | STANDBY, &[0x5F, 0x05, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], &[]),
    row("PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", Verb::PersistentReserveOut, Keys, List { at: 5, bytes: 4 }, ACTION | ALONE | STANDBY, &[0x5F, 0x06, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], &[SCOPE_TYPE]),
    row("PERSISTENT RESERVE OUT, REGISTER AND MOVE", Verb::PersistentReserveOut, Keys, List { at: 5, bytes: 4 }, ACTION | ALONE | STANDBY, &[0x5F, 0x07, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0], &[SCOPE_TYPE]),
    row("EXTENDED COPY (LID1)", Verb::ExtendedCopy, Writes, List { at: 10, bytes: 4 }, ACTION, &[0x83, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("EXTENDED COPY (LID4)", Verb::ExtendedCopy, Writes, List { at: 10, bytes: 4 }, ACTION, &[0x83, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("POPULATE TOKEN", Verb::PopulateToken, Reads, List { at: 10, bytes: 4 }, MEDIUM | ACTION | ALONE, &[0x83, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("WRITE USING TOKEN", Verb::WriteUsingToken, Writes, List { at: 10, bytes: 4 }, MEDIUM | WRITES | ACTION, &[0x83, 0x11, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("COPY OPERATION ABORT", Verb::CopyOperationAbort, Writes, Nothing, ACTION, &[0x83, 0x1C, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
    row("RECEIVE COPY RESULTS, COPY STATUS", Verb::ReceiveCopyResults, Reads, Answer { at: 10, bytes: 4 }, ACTION, &[0x84, 0x00, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("RECEIVE COPY RESULTS, OPERATING PARAMETERS", Verb::ReceiveCopyResults, Reads, Answer { at: 10, bytes: 4 }, ACTION, &[0x84, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("RECEIVE COPY STATUS (LID4)", Verb::ReceiveCopyResults, Reads, Answer { at: 10, bytes: 4 }, ACTION, &[0x84, 0x05, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("RECEIVE ROD TOKEN INFORMATION", Verb::ReceiveCopyResults, Reads, Answer { at: 10, bytes: 4 }, ACTION, &[0x84, 0x07, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("READ (16)", Verb::Read, Reads, BlocksIn, MEDIUM, &[0x88, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[FUA_NV, GROUP_16]),
    row("COMPARE AND WRITE", Verb::CompareAndWrite, Writes, BlocksTwice, MEDIUM | WRITES | ALONE, &[0x89, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0, 0], &[FUA_NV, GROUP_16]),
    row("WRITE (16)", Verb::Write, Writes, BlocksOut, MEDIUM | WRITES, &[0x8A, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[FUA_NV, GROUP_16]),
    row("ORWRITE (16)", Verb::OrWrite, Writes, BlocksOut, MEDIUM | WRITES | ALONE, &[0x8B, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[FUA_NV, GROUP_16]),
    row("WRITE AND VERIFY (16)", Verb::WriteAndVerify, Writes, BlocksOut, MEDIUM | WRITES | ALONE, &[0x8E, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[GROUP_16]),
    row("VERIFY (16)", Verb::Verify, Reads, ByteCheck, MEDIUM, &[0x8F, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[GROUP_16]),
    row("PRE-FETCH (16)", Verb::PreFetch, Reads, Nothing, MEDIUM, &[0x90, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[GROUP_16]),
    row("SYNCHRONIZE CACHE (16)", Verb::SynchronizeCache, Writes, Nothing, MEDIUM, &[0x91, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[SYNC_NV, GROUP_16]),
    row("WRITE SAME (16)", Verb::WriteSame, Writes, OneBlock, MEDIUM | WRITES, &[0x93, 0x09, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[GROUP_16]),
    row("WRITE ATOMIC (16)", Verb::WriteAtomic, Writes, BlocksOut, MEDIUM | WRITES | ALONE | ATOMIC, &[0x9C, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[GROUP_16]),
    row("READ CAPACITY (16)", Verb::ReadCapacity16, Persistent, Answer { at: 10, bytes: 4 }, ACTION | STANDBY, &[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("GET LBA STATUS (16)", Verb::GetLbaStatus, Reads, Answer { at: 10, bytes: 4 }, MEDIUM | ACTION, &[0x9E, 0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("REPORT LUNS", Verb::ReportLuns, Always, Answer { at: 6, bytes: 4 }, IGNORES_UNIT_ATTENTION | EVERYWHERE | DURING_SANITIZE, &[0xA0, 0, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("REPORT TARGET PORT GROUPS", Verb::ReportTargetPortGroups, Always, Answer { at: 6, bytes: 4 }, ACTION | EVERYWHERE | DURING_SANITIZE, &[0xA3, 0xEA, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("REPORT SUPPORTED OPERATION CODES", Verb::ReportSupportedOperationCodes, Reads, Answer { at: 6, bytes: 4 }, ACTION | STANDBY | DURING_SANITIZE, &[0xA3, 0x0C, 0x87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", Verb::ReportSupportedTaskManagement, Reads, Answer { at: 6, bytes: 4 }, ACTION | STANDBY | DURING_SANITIZE, &[0xA3, 0x0D, 0x80, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("SET TARGET PORT GROUPS", Verb::SetTargetPortGroups, Writes, List { at: 6, bytes: 4 }, ACTION | ALONE | EVERYWHERE, &[0xA4, 0x0A, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
    row("READ (12)", Verb::Read, Reads, BlocksIn, MEDIUM, &[0xA8, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[FUA_NV, GROUP_12]),
    row("WRITE (12)", Verb::Write, Writes, BlocksOut, MEDIUM | WRITES, &[0xAA, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[FUA_NV, GROUP_12]),
    row("WRITE AND VERIFY (12)", Verb::WriteAndVerify, Writes, BlocksOut, MEDIUM | WRITES | ALONE, &[0xAE, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[GROUP_12]),
    row("VERIFY (12)", Verb::Verify, Reads, ByteCheck, MEDIUM, &[0xAF, 0x16, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[GROUP_12]),
    row("READ DEFECT DATA (12)", Verb::ReadDefectData, Reads, Answer { at: 6, bytes: 4 }, MEDIUM, &[0xB7, 0x1F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], &[]),
];

const fn row(
    name: &'static str,
    verb: Verb,
    access: Access,
    data: Data,
    flags: u16,
    used: &'static [u8],
    ignored: &'static [(usize, u8)],
) -> Operation {
    // Evaluated at compile time, as all assertions of this function: a wrong row does not compile.
    assert!(matches!(used.len(), 6 | 10 | 12 | 16), "a CDB has the length of its group");
    let mut usage = [0; CDB_BYTES_MAX];
    let mut free = [0; CDB_BYTES_MAX];
    let mut byte = 0;
    while byte < used.len() {
        usage[byte] = used[byte];
        free[byte] = used[byte];
        byte += 1;
    }
    while byte < CDB_BYTES_MAX {
        // Bytes behind the CDB in the 16-byte field are padding of the transport.
        free[byte] = 0xFF;
        byte += 1;
    }
    // Operation code and service action were evaluated to find the row.
    free[0] = 0xFF;
    if flags & ACTION != 0 {
        free[1] |= 0x1F;
    }
    let mut at = 0;
    while at < ignored.len() {
        // A bit cannot be both evaluated and ignored.
        assert!(usage[ignored[at].0] & ignored[at].1 == 0, "a bit is looked at or ignored");
        free[ignored[at].0] |= ignored[at].1;
        at += 1;
    }
    Operation { name, verb, access, data, cdb_bytes: used.len() as u8, flags, usage, free: u128::from_be_bytes(free) }
}

/// Index of the first row of each operation code; 255 for an unknown code.
static FIRST_ROW: [u8; 256] = {
    let mut rows = [0xFF; 256];
    let mut at = OPERATIONS.len();
    assert!(OPERATIONS.len() < 0xFF, "255 stands for no row");
    // Filled from the last row to the first, so that the first row of a code wins.
    while at > 0 {
        at -= 1;
        rows[OPERATIONS[at].usage[0] as usize] = at as u8;
    }
    rows
};

impl Operation {
    /// Finds the row for `cdb`.
    ///
    /// *Errors*: 20/00 for an unknown operation code; 24/00 at the service action field for an unknown service action.
    #[inline]
    pub(crate) fn find(cdb: Cdb, offered: OptionalFeatures) -> Result<&'static Self, Sense> {
        // An unknown code has the index 255, which lies beyond the table.
        match OPERATIONS.get(usize::from(FIRST_ROW[usize::from(cdb.operation_code())])) {
            // Fast path: the row is the only one of its code, and every unit supports it.
            Some(row) if row.flags & (ACTION | CONDITIONAL) == 0 => Ok(row),
            _ => Self::find_among(cdb, offered),
        }
    }

    fn find_among(cdb: Cdb, offered: OptionalFeatures) -> Result<&'static Self, Sense> {
        let mut rows = Self::of_code(cdb.operation_code(), offered).peekable();
        // An unknown code and an unknown service action have different sense codes.
        if rows.peek().is_none() {
            return Err(Sense::illegal(AdditionalSense::INVALID_OPERATION_CODE));
        }
        let action = cdb.u8_at(1) & 0x1F;
        // The field pointer names the highest bit of SERVICE ACTION.
        rows.find(|row| row.action().is_none_or(|own| own == action)).ok_or(Sense::cdb_bit(1, 4))
    }

    /// Iterates over the rows of an operation code: one, or one for each service action.
    pub(crate) fn of_code(code: u8, offered: OptionalFeatures) -> impl Iterator<Item = &'static Self> {
        let first = usize::from(FIRST_ROW[usize::from(code)]);
        let rows = OPERATIONS.get(first..).unwrap_or_default().iter();
        // The rows of one code are adjacent, because the table is sorted.
        rows.take_while(move |row| row.code() == code).filter(move |row| row.is_known(offered))
    }

    pub(crate) fn code(&self) -> u8 {
        self.usage[0]
    }

    pub(crate) fn action(&self) -> Option<u8> {
        self.has(ACTION).then_some(self.usage[1] & 0x1F)
    }

    pub(crate) fn needs_medium(&self) -> bool {
        self.has(MEDIUM)
    }

    /// True when the operation reports the capacity.
    pub(crate) fn tells_size(&self) -> bool {
        matches!(self.verb, Verb::ReadCapacity10 | Verb::ReadCapacity16)
    }

    /// True when the operation is executed while the device is absent, because its data does not come from the device.
    pub(crate) fn is_served_without_device(&self) -> bool {
        matches!(
            self.verb,
            Verb::Inquiry
                | Verb::LogSense
                | Verb::ModeSense
                | Verb::ReadCapacity10
                | Verb::ReadCapacity16
                | Verb::ReportLuns
                | Verb::ReportSupportedOperationCodes
                | Verb::ReportSupportedTaskManagement
                | Verb::ReportTargetPortGroups
                | Verb::RequestSense
        )
    }

    pub(crate) fn writes(&self) -> bool {
        self.has(WRITES)
    }

    pub(crate) fn ignores_unit_attention(&self) -> bool {
        self.has(IGNORES_UNIT_ATTENTION)
    }

    pub(crate) fn is_served_in_standby(&self) -> bool {
        self.has(STANDBY | EVERYWHERE)
    }

    /// True when the operation is executed through groups that serve neither data nor parameters (unavailable, offline,
    /// transitioning).
    pub(crate) fn is_served_without_access(&self) -> bool {
        self.has(EVERYWHERE)
    }

    pub(crate) fn is_sanitize(&self) -> bool {
        self.verb == Verb::Sanitize
    }

    /// True when the operation is executed while a SANITIZE is running.
    pub(crate) fn is_served_during_sanitize(&self) -> bool {
        self.has(DURING_SANITIZE)
    }

    pub(crate) fn runs_alone(&self) -> bool {
        self.has(ALONE)
    }

    /// True when a unit with these features supports the operation.
    pub(crate) fn is_known(&self, offered: OptionalFeatures) -> bool {
        // Unconditional rows are known to every unit.
        !self.has(CONDITIONAL) || !self.has(offered.missing())
    }

    /// Refuses a CDB with a reserved bit set; the field pointer names the first such bit.
    #[inline]
    pub(crate) fn check_reserved(&self, cdb: Cdb) -> Result<(), Sense> {
        // One AND over the whole CDB instead of a loop over its bytes.
        let reserved = cdb.word() & !self.free;
        if reserved == 0 { Ok(()) } else { Err(first_bit(reserved)) }
    }

    /// Returns the CDB usage data, with the length of the CDB.
    pub(crate) fn usage(&self, offered: OptionalFeatures) -> Vec<u8> {
        let mut usage = self.usage[..usize::from(self.cdb_bytes)].to_vec();
        // Bits that only optional features define are reserved where the feature is absent.
        if self.verb == Verb::WriteSame && !offered.unmap {
            usage[1] &= !UNMAP_BIT;
        }
        if self.verb == Verb::StartStopUnit && !offered.removable {
            usage[4] &= !EJECT_BITS;
        }
        usage
    }

    /// Recommended command timeout in seconds; 0 is no recommendation.
    pub(crate) fn timeout_s(&self) -> u32 {
        if self.has(MEDIUM) { 60 } else { 0 }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Cdb {
    /// Returns the name of the operation in the standards, or "unknown operation".
    #[must_use]
    pub fn operation_name(self) -> &'static str {
        Operation::find(self, OptionalFeatures::ALL).map_or("unknown operation", |operation| operation.name)
    }
}

impl fmt::Debug for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.operation_name())?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cold]
fn first_bit(reserved: u128) -> Sense {
    let bit = reserved.leading_zeros();
    // In range: `reserved` is not zero, so at most 127 zeros lead.
    Sense::cdb_bit((bit / 8) as u16, (7 - bit % 8) as u8)
}

/// UNMAP in byte 1 of WRITE SAME.
const UNMAP_BIT: u8 = 0x08;
/// LOEJ and POWER CONDITION in byte 4 of START STOP UNIT: reserved unless the medium is removable.
pub(crate) const EJECT_BITS: u8 = 0xF2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_in_order_and_found_by_their_codes() {
        for pair in OPERATIONS.windows(2) {
            assert!((pair[0].code(), pair[0].action()) < (pair[1].code(), pair[1].action()), "{}", pair[1].name);
        }
        for row in &OPERATIONS {
            let found = Operation::find(Cdb::new(&row.usage), OptionalFeatures::ALL).expect("the row is in the table");
            assert_eq!(found.name, row.name);
        }
    }

    #[test]
    fn operation_that_is_unknown_is_refused_as_code_or_as_service_action() {
        assert_eq!(
            Operation::find(Cdb::new(&[0xFF]), OptionalFeatures::ALL).unwrap_err().code,
            AdditionalSense(0x20, 0)
        );
        assert_eq!(Operation::find(Cdb::new(&[0x9E, 0x1F]), OptionalFeatures::ALL).unwrap_err(), Sense::cdb_bit(1, 4));
        assert_eq!(
            Operation::find(Cdb::new(&[0x42]), OptionalFeatures { unmap: false, ..OptionalFeatures::ALL })
                .unwrap_err()
                .code,
            AdditionalSense(0x20, 0)
        );
        assert!(Operation::find(Cdb::new(&[0x42]), OptionalFeatures::ALL).is_ok());
        let without = OptionalFeatures { atomic: false, ..OptionalFeatures::ALL };
        assert_eq!(Operation::find(Cdb::new(&[0x9C]), without).unwrap_err().code, AdditionalSense(0x20, 0));
    }

    #[test]
    fn operation_codes_say_how_long_their_cdb_is() {
        for row in &OPERATIONS {
            let expected = match row.code() >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                _ => unreachable!("no row has such a code"),
            };
            assert_eq!(row.cdb_bytes, expected, "{}", row.name);
        }
    }
}
