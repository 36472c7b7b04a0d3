//! A unit that is read or written for a copy, by order of a nexus at another unit or at this one.

use super::LogicalUnit;
use crate::command::{TaskAttribute, TaskTag};
use crate::conflict::Access;
use crate::copy::CopyAsker;
use crate::failure::{Failure, read_failure};
use crate::nexus::ItNexus;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::{Claim, Ticket};
use block::{BlockDevice, Blocks, Extent, Lba, Rope, Run, View};
use std::future::poll_fn;

/// No task of a nexus is called so: the tag that iSCSI reserves.
const COPY_TAG: TaskTag = TaskTag(u32::MAX);

/// How much of a unit that cannot discard blocks is made zeros at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl<D: BlockDevice> LogicalUnit<D> {
    /// What the unit has in `extent`, as if `asker` had read it; its unit attentions stay.
    ///
    /// *Errors*: the sense that it would have got; 0D/01 for what has none.
    pub async fn copy_read(&self, asker: &CopyAsker, extent: Extent) -> Result<Rope, Sense> {
        let part = self.take_part(asker, extent, Access::Reads).await?;
        let read = self.device().read(extent).await.map_err(|error| sense_of(read_failure(error)))?;
        let bytes = extent.len.bytes(self.medium.geometry().block_bytes);
        assert_eq!(read.len() as u64, bytes, "a device reads exactly the blocks that it is asked for");
        self.medium.counters().count_read(extent.len.0);
        part.check_live().map_err(|_| failed())?;
        Ok(read)
    }

    /// The unit has `data` from `start` on, as if `asker` had written it.
    ///
    /// *Durability*: stable. *Errors*: as [`LogicalUnit::copy_read`].
    pub async fn copy_write(&self, asker: &CopyAsker, start: Lba, data: View) -> Result<(), Sense> {
        let extent = self.medium.geometry().extent_of(start, data.len());
        let extent = extent.map_err(|_| Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE))?;
        self.check_copy_writable(asker)?;
        let part = self.take_part(asker, extent, Access::Writes).await?;
        self.medium.write(start, data, true).await.map_err(sense_of)?;
        part.check_live().map_err(|_| failed())
    }

    /// The run that `extent`, which is not empty, begins with, as if `asker` had asked GET LBA STATUS.
    ///
    /// *Errors*: as [`LogicalUnit::copy_read`].
    pub async fn copy_run(&self, asker: &CopyAsker, extent: Extent) -> Result<Run, Sense> {
        let _part = self.take_part(asker, extent, Access::Reads).await?;
        if !self.medium.tells_space() {
            return Ok(Run { extent, mapped: true });
        }
        self.medium.run(extent).await.map_err(sense_of)
    }

    /// The blocks of `extent` read as zeros, as if `asker` had written or unmapped them.
    ///
    /// *Durability*: stable. *Errors*: as [`LogicalUnit::copy_read`].
    pub async fn copy_discard(&self, asker: &CopyAsker, extent: Extent) -> Result<(), Sense> {
        self.check_copy_writable(asker)?;
        let part = self.take_part(asker, extent, Access::Writes).await?;
        let discarded = self.medium.discard(extent).await.map_err(sense_of)?;
        self.medium.make_stable(discarded).await.map_err(sense_of)?;
        part.check_live().map_err(|_| failed())
    }

    /// The blocks of `extent`, which `asker` has WRITE USING TOKEN fill with zeros, are zeros: discarded, or written piece by
    /// piece.
    ///
    /// *Durability*: stable. *Errors*: how the task of `ticket` was aborted; as [`LogicalUnit::copy_read`].
    pub(super) async fn copy_zeros(
        &self,
        asker: &CopyAsker,
        extent: Extent,
        ticket: &Ticket<'_>,
    ) -> Result<(), Failure> {
        let geometry = self.medium.geometry();
        let piece_blocks = PIECE_BYTES / u64::from(geometry.block_bytes);
        ticket.check_live()?;
        if geometry.discard_zeroes {
            return Ok(self.copy_discard(asker, extent).await?);
        }
        let mut rest = extent;
        while !rest.is_empty() {
            ticket.check_live()?;
            let here = Blocks(rest.len.0.min(piece_blocks));
            let zeros = View::zeroed((here.0 * u64::from(geometry.block_bytes)) as usize);
            self.copy_write(asker, rest.start, zeros).await?;
            rest = Extent { start: rest.start + here, len: rest.len - here };
        }
        Ok(())
    }

    /// What `token`, a ROD token of this unit, stands for; `deletes` ends it.
    ///
    /// *Errors*: 23/04 and 23/07 to 23/09.
    pub fn copy_token(&self, token: &[u8; 512], deletes: bool) -> Result<Vec<Extent>, Sense> {
        self.copies.open(token, deletes, self.medium.tokens())
    }

    fn check_copy_writable(&self, asker: &CopyAsker) -> Result<(), Sense> {
        if asker.read_only || self.options.read_only || self.mode.get().software_write_protect {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
        }
        Ok(())
    }

    /// Lets a part of a copy in, which holds back what runs alone on its blocks and waits for it, and for nothing else.
    async fn take_part(&self, asker: &CopyAsker, extent: Extent, access: Access) -> Result<Ticket<'_>, Sense> {
        let geometry = self.medium.geometry();
        geometry.admit(extent).map_err(|_| Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE))?;
        let (nexus, tag, attribute) = (asker.nexus, COPY_TAG, TaskAttribute::Simple);
        let claim = Claim { nexus, tag, attribute, extent, alone: false, is_part: true };
        let ticket = self.tasks.enter_anyway(claim);
        poll_fn(|cx| ticket.poll_begun(cx)).await.map_err(|_| failed())?;
        if let Some(sense) = self.sanitize.sense(|| self.medium.geometry().blocks) {
            return Err(sense);
        }
        if let Some(sense) = self.readiness.sense() {
            return Err(sense);
        }
        if let Some(sense) = self.port_groups.through(asker.port.portal_group_tag).sense() {
            return Err(sense);
        }
        let name = ItNexus::new(asker.initiator.clone(), &asker.port);
        if self.reservations.is_kept_out(asker.nexus, access, || self.reservations.standing(&name)) {
            self.medium.counters().count_conflict();
            return Err(failed());
        }
        Ok(ticket)
    }
}

/// THIRD PARTY DEVICE FAILURE.
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
