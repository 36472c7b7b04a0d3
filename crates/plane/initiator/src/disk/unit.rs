//! Properties of a logical unit over one path: identity, size, limits, caches, access state.
//!
//! Called when a path has logged in, at open and at every reconnect. It must never accept a unit of unknown identity as
//! the one that was opened.

use super::config::{BlockBytesError, OpenError};
use crate::cdb;
use crate::fence::run;
use crate::outcome::{self, Outcome};
use crate::page::{self, AccessState, Capacity, Limits};
use crate::session::Session;
use block::{Blocks, Geometry};
use iscsi::initiator::{Command, Completion};
use iscsi::pdu::Lun;
use shard::World;

/// Limit on the transfer of one command in bytes, where the target names no lower one.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Limit on the optimal transfer length in bytes; larger values of a target are cut to it.
const OPTIMAL_BYTES_MAX: u32 = 16 << 20;
/// Limit on the physical block size in bytes; larger values of a target are cut to it.
const PHYSICAL_BLOCK_BYTES_MAX: u32 = 64 << 10;
/// Codes of VPD pages.
const UNIT_SERIAL_NUMBER: u8 = 0x80;
const DEVICE_IDENTIFICATION: u8 = 0x83;
const BLOCK_LIMITS: u8 = 0xb0;
const LOGICAL_BLOCK_PROVISIONING: u8 = 0xb2;

/// Logical unit as one path reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFacts {
    /// Designators of the unit; see [`page::designators`].
    pub designators: Vec<(u8, Vec<u8>)>,
    /// Serial number.
    pub serial: Option<String>,
    /// Vendor and product.
    pub model: Option<String>,
    /// Capacity and block sizes.
    pub capacity: Capacity,
    /// Transfer limits.
    pub limits: Limits,
    /// True when UNMAP is supported.
    pub unmaps: bool,
    /// True for a volatile write cache.
    pub write_cache: bool,
    /// Target port group of the path, if the unit has such groups.
    pub port_group: Option<u16>,
}

impl UnitFacts {
    /// Queries the unit `lun` behind `session`.
    ///
    /// *Errors*: the session failed; there is no unit; a mandatory page is missing.
    pub async fn of<W: World>(session: &Session<W>, number: u16, lun: Lun) -> Result<Self, OpenError> {
        let inquiry = run(session, || cdb::inquiry(lun, None)).await?;
        if outcome::of(&inquiry) == Outcome::NotMapped {
            return Err(OpenError::NoUnit(number));
        }
        let standard = data_of("INQUIRY", &inquiry)?;
        if !page::is_disk(&standard) {
            return Err(OpenError::NoUnit(number));
        }
        let ready = run(session, || cdb::test_unit_ready(lun)).await?;
        match outcome::of(&ready) {
            // LIO answers INQUIRY on LUN 0 even where nothing is mapped.
            Outcome::NotMapped => return Err(OpenError::NoUnit(number)),
            Outcome::Failed(_) => return Err(refused("TEST UNIT READY", &ready)),
            // Still not ready after all retries: READ CAPACITY below decides.
            _ => {}
        }
        let done = run(session, || cdb::read_capacity(lun)).await?;
        let capacity = page::capacity(&data_of("READ CAPACITY (16)", &done)?);
        let capacity = capacity.ok_or(OpenError::NoUnit(number))?;
        let identification = vpd(session, lun, DEVICE_IDENTIFICATION).await?.unwrap_or_default();
        let limits = vpd(session, lun, BLOCK_LIMITS).await?.map(|page| page::limits(&page)).unwrap_or_default();
        let provisioning = vpd(session, lun, LOGICAL_BLOCK_PROVISIONING).await?.unwrap_or_default();
        let serial = vpd(session, lun, UNIT_SERIAL_NUMBER).await?.and_then(|page| page::serial(&page));
        let mode = optional(session, || cdb::mode_sense_caching(lun)).await?.unwrap_or_default();
        Ok(Self {
            designators: page::designators(&identification),
            serial,
            model: page::model(&standard),
            capacity,
            limits,
            // Thin provisioning alone is not enough: UNMAP is reported separately.
            unmaps: capacity.thin && page::unmaps(&provisioning),
            // Assumed when the unit does not report it: a flush too many is safe.
            write_cache: page::write_cache(&mode).unwrap_or(true),
            // Without asymmetric access (TPGS 0) the group has no meaning.
            port_group: page::port_group(&identification).filter(|_| page::has_port_groups(&standard)),
        })
    }

    /// True when `other`, seen over another path or later, is the same unit: they share a designator, or, where neither
    /// has one, the serial number.
    #[must_use]
    pub fn is_same_unit(&self, other: &Self) -> bool {
        match (self.designators.is_empty(), other.designators.is_empty()) {
            // By serial number only if neither has designators.
            (true, true) => self.serial.is_some() && self.serial == other.serial,
            _ => self.designators.iter().any(|designator| other.designators.contains(designator)),
        }
    }

    /// Name of the unit for messages.
    #[must_use]
    pub fn name(&self) -> String {
        page::name_of(&self.designators)
            .or_else(|| self.serial.clone())
            .unwrap_or_else(|| "without identity".to_owned())
    }

    /// Number of the unit's blocks per block of `block_bytes`.
    ///
    /// *Errors*: it is not a whole number; one command of the unit transfers less than a block of `block_bytes`.
    pub fn factor(&self, block_bytes: u32) -> Result<u32, BlockBytesError> {
        let own = self.capacity.block_bytes;
        if !block_bytes.is_multiple_of(own) || block_bytes < own {
            return Err(BlockBytesError::Indivisible { found: own, wanted: block_bytes });
        }
        let (factor, most) = (block_bytes / own, self.limits.transfer_blocks_max);
        // A block is one command at least, and the unit would refuse each of them (SBC-4, MAXIMUM TRANSFER LENGTH).
        if (1..factor).contains(&most) {
            return Err(BlockBytesError::TransferTooShort { found: most.saturating_mul(own), wanted: block_bytes });
        }
        Ok(factor)
    }

    /// Geometry of the disk in blocks of `block_bytes`, each made of `factor` blocks of the unit.
    #[must_use]
    pub fn geometry(&self, block_bytes: u32, factor: u32) -> Geometry {
        assert_eq!(u64::from(factor) * u64::from(self.capacity.block_bytes), u64::from(block_bytes));
        let physical_block_bytes = self.capacity.physical_block_bytes.min(PHYSICAL_BLOCK_BYTES_MAX);
        let optimal = self.limits.optimal_blocks.saturating_mul(self.capacity.block_bytes);
        Geometry {
            block_bytes,
            // A remainder of less than one block is not used.
            blocks: Blocks(self.capacity.blocks / u64::from(factor)),
            physical_block_bytes,
            // A geometry has no optimal write below its physical block.
            optimal_bytes: optimal.min(OPTIMAL_BYTES_MAX).max(physical_block_bytes.max(block_bytes)),
            volatile_cache: self.write_cache,
            // UNMAP may leave blocks mapped (SBC-4, 4.7.3.4), so zeros cannot be guaranteed.
            discard_zeroes: false,
            prefers_unlogged: false,
        }
    }

    /// Limit on the blocks of one command, in device blocks of `factor` unit blocks; at least one.
    #[must_use]
    pub fn transfer_blocks_max(&self, factor: u32) -> u64 {
        let block_bytes = self.capacity.block_bytes.saturating_mul(factor);
        let own = TRANSFER_BYTES_MAX / block_bytes;
        let target = match self.limits.transfer_blocks_max {
            // Zero: the target reports no limit.
            0 => u32::MAX,
            blocks => blocks / factor,
        };
        // At least one: a block may exceed the own limit. `factor` refuses a target whose limit is below one block.
        u64::from(own.min(target).max(1))
    }

    /// Limit on the range of one UNMAP, in device blocks of `factor` unit blocks. Zero when no block can be unmapped:
    /// the unit does not support UNMAP, or one command unmaps less than a block.
    #[must_use]
    pub fn unmap_blocks_max(&self, factor: u32) -> u64 {
        let most = match self.limits.unmap_blocks_max {
            _ if !self.unmaps => 0,
            // Zero: the target reports no limit.
            0 => 1 << 21,
            most => most,
        };
        u64::from(most / factor)
    }
}

/// Returns the access state of the target port group `group`; active/optimized where the unit does not report it.
///
/// *Errors*: the session failed.
pub(super) async fn access_of<W: World>(session: &Session<W>, lun: Lun, group: u16) -> Result<AccessState, OpenError> {
    let answer = optional(session, || cdb::report_target_port_groups(lun)).await?;
    Ok(answer.and_then(|page| page::access_state(&page, group)).unwrap_or_default())
}

async fn vpd<W: World>(session: &Session<W>, lun: Lun, page: u8) -> Result<Option<Vec<u8>>, OpenError> {
    optional(session, || cdb::inquiry(lun, Some(page))).await
}

/// Runs a command that not every unit supports; returns `None` where it is refused.
async fn optional<W: World>(session: &Session<W>, make: impl Fn() -> Command) -> Result<Option<Vec<u8>>, OpenError> {
    let done = run(session, make).await?;
    Ok(data_of("", &done).ok())
}

fn data_of(command: &'static str, done: &Completion) -> Result<Vec<u8>, OpenError> {
    match outcome::of(done) {
        Outcome::Done => Ok(done.data_in.as_deref().unwrap_or_default().to_vec()),
        _ => Err(refused(command, done)),
    }
}

fn refused(command: &'static str, done: &Completion) -> OpenError {
    OpenError::Refused { command, status: done.status, sense: done.sense.to_vec() }
}
