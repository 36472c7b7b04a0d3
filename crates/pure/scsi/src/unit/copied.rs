//! Access to a unit on behalf of a third-party copy that a nexus ordered at another unit or at this one.

use super::LogicalUnit;
use crate::command::{TaskAttribute, TaskTag};
use crate::conflict::Access;
use crate::copy::CopyPrincipal;
use crate::failure::{Failure, read_failure};
use crate::nexus::ItNexus;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::{Claim, TaskGuard};
use block::{BlockDevice, Blocks, Extent, Lba, Rope, Run, View};
use std::future::poll_fn;

/// Task tag of the parts of a copy. No task of a nexus can have it: iSCSI reserves this value (RFC 7143 §11.2.1.8).
const COPY_TAG: TaskTag = TaskTag(u32::MAX);

/// Bytes written as zeros at a time to a unit that cannot discard blocks.
const PIECE_BYTES: u64 = 1 << 20;

impl<D: BlockDevice> LogicalUnit<D> {
    /// Reads `extent` as if `asker` had issued the READ; its pending unit attentions stay pending.
    ///
    /// *Errors*: the sense that the READ would have ended with; 0D/01 for a failure without sense.
    pub async fn copy_read(&self, asker: &CopyPrincipal, extent: Extent) -> Result<Rope, Sense> {
        let part = self.take_part(asker, extent, Access::Reads).await?;
        let read = self.device().read(extent).await.map_err(|error| sense_of(read_failure(error)))?;
        let bytes = extent.len.bytes(self.medium.geometry().block_bytes);
        assert_eq!(read.len() as u64, bytes, "a device reads exactly the blocks that it is asked for");
        self.medium.counters().count_read(extent.len.0);
        // An aborted part must not deliver data: the copy that it belongs to has ended.
        part.check_live().map_err(|_| failed())?;
        Ok(read)
    }

    /// Writes `data` from `start` on, as if `asker` had issued the WRITE.
    ///
    /// *Durability*: stable. *Errors*: as [`LogicalUnit::copy_read`].
    pub async fn copy_write(&self, asker: &CopyPrincipal, start: Lba, data: View) -> Result<(), Sense> {
        let extent = self.medium.geometry().extent_of(start, data.len());
        let extent = extent.map_err(|_| Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE))?;
        self.check_copy_writable(asker)?;
        let part = self.take_part(asker, extent, Access::Writes).await?;
        // Written with FUA: the copy reports GOOD for stable blocks, even where the write cache is enabled.
        self.medium.write(start, data, true).await.map_err(sense_of)?;
        part.check_live().map_err(|_| failed())
    }

    /// Returns the first run of equal provisioning state in the non-empty `extent`, as if `asker` had issued GET LBA
    /// STATUS.
    ///
    /// *Errors*: as [`LogicalUnit::copy_read`].
    pub async fn copy_run(&self, asker: &CopyPrincipal, extent: Extent) -> Result<Run, Sense> {
        // Held during the query, so that no task that runs alone changes the blocks meanwhile.
        let _part = self.take_part(asker, extent, Access::Reads).await?;
        if !self.medium.tells_space() {
            // Without provisioning information every block counts as mapped.
            return Ok(Run { extent, mapped: true });
        }
        self.medium.run(extent).await.map_err(sense_of)
    }

    /// Makes the blocks of `extent` read as zeros, as if `asker` had written or unmapped them.
    ///
    /// *Durability*: stable. *Errors*: as [`LogicalUnit::copy_read`].
    pub async fn copy_discard(&self, asker: &CopyPrincipal, extent: Extent) -> Result<(), Sense> {
        self.check_copy_writable(asker)?;
        let part = self.take_part(asker, extent, Access::Writes).await?;
        let discarded = self.medium.discard(extent).await.map_err(sense_of)?;
        self.medium.make_stable(discarded).await.map_err(sense_of)?;
        part.check_live().map_err(|_| failed())
    }

    /// Zeros the blocks of `extent` for a WRITE USING TOKEN with the zero ROD token: discards them, or writes zeros
    /// piece by piece.
    ///
    /// *Durability*: stable. *Errors*: the abort reason of the task of `ticket`; else as [`LogicalUnit::copy_read`].
    pub(super) async fn copy_zeros(
        &self,
        asker: &CopyPrincipal,
        extent: Extent,
        ticket: &TaskGuard<'_>,
    ) -> Result<(), Failure> {
        let geometry = self.medium.geometry();
        let piece_blocks = PIECE_BYTES / u64::from(geometry.block_bytes);
        ticket.check_live()?;
        // Discarding is faster, and keeps a thin unit thin.
        if geometry.discard_zeroes {
            return Ok(self.copy_discard(asker, extent).await?);
        }
        let mut rest = extent;
        while !rest.is_empty() {
            // A long zero fill is checked for an abort before each piece.
            ticket.check_live()?;
            let here = Blocks(rest.len.0.min(piece_blocks));
            let zeros = View::zeroed((here.0 * u64::from(geometry.block_bytes)) as usize);
            self.copy_write(asker, rest.start, zeros).await?;
            rest = Extent { start: rest.start + here, len: rest.len - here };
        }
        Ok(())
    }

    /// Returns the extents that `token`, a ROD token of this unit, represents; `deletes` invalidates it.
    ///
    /// *Errors*: 23/04 and 23/07 to 23/09.
    pub fn copy_token(&self, token: &[u8; 512], deletes: bool) -> Result<Vec<Extent>, Sense> {
        self.copies.open(token, deletes, self.medium.tokens())
    }

    fn check_copy_writable(&self, asker: &CopyPrincipal) -> Result<(), Sense> {
        // Write protection applies to copies as to WRITE.
        if asker.read_only || self.options.read_only || self.mode.get().software_write_protect {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
        }
        Ok(())
    }

    /// Admits a part of a copy. The part blocks tasks that run alone on its blocks and is blocked by them, and by
    /// nothing else.
    async fn take_part(&self, asker: &CopyPrincipal, extent: Extent, access: Access) -> Result<TaskGuard<'_>, Sense> {
        let geometry = self.medium.geometry();
        // The capacity may have changed since the copy was resolved.
        geometry.admit(extent).map_err(|_| Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE))?;
        let (nexus, tag, attribute) = (asker.nexus, COPY_TAG, TaskAttribute::Simple);
        let claim = Claim { nexus, tag, attribute, extent, alone: false, is_part: true };
        // Limits on the number of tasks do not apply: the copy holds a place already, and a refusal would fail it
        // halfway.
        let ticket = self.tasks.enter_unlimited(claim);
        poll_fn(|cx| ticket.poll_begun(cx)).await.map_err(|_| failed())?;
        // These checks run after the wait, since the state may have changed meanwhile.
        if let Some(sense) = self.sanitize.sense(|| self.medium.geometry().blocks) {
            return Err(sense);
        }
        if let Some(sense) = self.readiness.sense() {
            return Err(sense);
        }
        if let Some(sense) = self.port_groups.through(asker.port.portal_group_tag).sense() {
            return Err(sense);
        }
        // Found by name, because the nexus need not be attached to this unit.
        let name = ItNexus::new(asker.initiator.clone(), &asker.port);
        // The reservation is checked for the nexus that ordered the copy, not for the unit that executes it.
        if self.reservations.has_conflict(asker.nexus, access, || self.reservations.role(&name)) {
            self.medium.counters().count_conflict();
            return Err(failed());
        }
        Ok(ticket)
    }
}

/// THIRD PARTY DEVICE FAILURE (A/0D/01).
fn failed() -> Sense {
    Sense::new(SenseKey::CopyAborted, AdditionalSense::THIRD_PARTY_DEVICE_FAILURE)
}

fn sense_of(failure: Failure) -> Sense {
    match failure {
        Failure::Check(sense) => sense,
        Failure::CheckBehind(behind) => behind.0,
        Failure::Status(_) => failed(),
    }
}
