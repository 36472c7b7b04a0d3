//! The two head slots of a map, each with as many copies as the map keeps.

use super::super::error::MapError;
use super::super::head::Head;
use super::Meta;
use crate::bug_injection::{self, InjectedBug};
use crate::layout::BLOCK_BYTES;
use crate::tree::Damage;
use block::frame::is_blank;
use block::{BlockDevice, Buf, Stable, View, Written};

/// Combined content of the copies of one slot.
enum Slot {
    Head(Head),
    /// Never written.
    Blank,
    /// No intact copy.
    Damaged,
}

impl<D: BlockDevice + 'static, G: BlockDevice> Meta<D, G> {
    /// Reads the newest head; none where no head was ever written.
    ///
    /// *Errors*: `Damaged` when a newer head may be lost: a slot that once had a head has no intact copy.
    pub(crate) async fn read_head(&self) -> Result<Option<Head>, MapError> {
        let lost = Damage("a head of the map is damaged in every copy");
        let newest = match (self.read_slot(0).await, self.read_slot(1).await) {
            (Slot::Head(even), Slot::Head(odd)) if even.generation > odd.generation => even,
            (Slot::Head(_), Slot::Head(odd)) => odd,
            // The first head has generation 1 (odd); slot 0 stays blank until generation 2.
            (Slot::Blank, Slot::Head(first)) if first.generation == 1 => first,
            (Slot::Head(_), _) | (_, Slot::Head(_)) => return Err(lost.into()),
            _ => return Ok(None),
        };
        Ok(Some(newest))
    }

    /// Reads the newest head with an intact copy, whatever else is lost; for repair.
    pub(crate) async fn read_any_head(&self) -> Option<Head> {
        let slots = [self.read_slot(0).await, self.read_slot(1).await];
        let heads = slots.into_iter().filter_map(|slot| if let Slot::Head(head) = slot { Some(head) } else { None });
        heads.max_by_key(|head| head.generation)
    }

    async fn read_slot(&self, slot: u64) -> Slot {
        let identity = self.identity;
        let rank = |bytes: &[u8]| Head::parse(identity, bytes).map(|head| head.generation);
        let mut found: Vec<(Option<u64>, Option<View>)> = Vec::new();
        for copy in 0..self.copies(slot) {
            let read = self.read_copy(slot, 1, copy, &rank).await.pop().expect("one block was asked for").ok();
            found.push((read.as_ref().and_then(|bytes| rank(bytes)), read));
        }
        // The newest intact copy decides; the others are brought to it below.
        let best = found.iter().max_by_key(|(rank, _)| *rank).and_then(|(_, bytes)| bytes.clone());
        let newest = found.iter().filter_map(|(rank, _)| *rank).max();
        let Some(head) = best.as_ref().and_then(|bytes| Head::parse(identity, bytes)) else {
            // One blank copy suffices: a power loss may have torn the first write of the slot in the other
            // copy.
            let blank = found.iter().any(|(_, bytes)| bytes.as_ref().is_some_and(|bytes| is_blank(bytes)));
            return if blank { Slot::Blank } else { Slot::Damaged };
        };
        for (copy, (rank, _)) in found.iter().enumerate().filter(|(_, (rank, _))| *rank != newest) {
            let Some(bytes) = best.clone() else { continue };
            match rank {
                None => self.rewrite_copy(slot, copy, bytes).await,
                // A checkpoint was interrupted between its copies, which is not a disk error and not reported.
                Some(_) => drop(self.write_copy(slot, copy, bytes).await),
            }
        }
        Slot::Head(head)
    }

    /// Zeroes the head slots and the start of the log, durably, so that content of an earlier owner is not
    /// taken for damage.
    pub(crate) async fn format(&self) -> Result<(), MapError> {
        let zeros = View::zeroed(2 * BLOCK_BYTES as usize);
        // Made stable by the flush of `prepare_log`, which covers all groups of the map.
        let _: Written = self.write(0, zeros).await?;
        self.prepared.set(0);
        self.prepare_log(0).await
    }

    /// Writes the head durably to the slot that its predecessor does not use. `_pages` attests that its pages
    /// are stable.
    pub(crate) async fn write_head(&self, head: &Head, _pages: Stable) -> Result<Stable, MapError> {
        self.put_head(head, head.generation % 2).await
    }

    /// Writes `head` to the other slot as well, which invalidates the head after it, whether or not that
    /// reached the disks.
    pub(crate) async fn supersede_head(&self, head: &Head) -> Result<Stable, MapError> {
        self.put_head(head, (head.generation + 1) % 2).await
    }

    async fn put_head(&self, head: &Head, slot: u64) -> Result<Stable, MapError> {
        let block = Buf::copy_of(&head.emit(self.identity)).freeze();
        let mut parts = vec![(slot, block.clone())];
        if bug_injection::is_injected(InjectedBug::BothHeads) {
            parts.push((1 - slot, block));
            for (address, data) in parts {
                let _: Written = self.write(address, data).await?;
            }
            return self.flush().await;
        }
        self.write_in_turn(&parts).await
    }
}
