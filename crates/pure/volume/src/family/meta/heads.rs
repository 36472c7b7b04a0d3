//! The two slots of a map's head, each in as many copies as the map keeps.

use super::super::error::MapError;
use super::super::head::Head;
use super::Meta;
use crate::layout::BLOCK_BYTES;
use crate::sabotage::{self, Sabotage};
use crate::tree::Damage;
use block::sealed::is_blank;
use block::{BlockDevice, Buf, Stable, View, Written};

/// What the copies of one slot hold together.
enum Slot {
    Head(Head),
    /// Nothing was written there yet.
    Blank,
    /// No copy is whole.
    Damaged,
}

impl<D: BlockDevice + 'static, G: BlockDevice> Meta<D, G> {
    /// The newest head; none where none was ever written.
    ///
    /// *Errors*: `Damaged` when a newer one may be lost: no copy of a slot is whole in which there was one.
    pub(crate) async fn read_head(&self) -> Result<Option<Head>, MapError> {
        let lost = Damage("a head of the map is damaged in every copy");
        let newest = match (self.read_slot(0).await, self.read_slot(1).await) {
            (Slot::Head(even), Slot::Head(odd)) if even.generation > odd.generation => even,
            (Slot::Head(_), Slot::Head(odd)) => odd,
            // The first head is odd, and the other slot is blank until the next.
            (Slot::Blank, Slot::Head(first)) if first.generation == 1 => first,
            (Slot::Head(_), _) | (_, Slot::Head(_)) => return Err(lost.into()),
            _ => return Ok(None),
        };
        Ok(Some(newest))
    }

    /// The newest head of which a copy is whole, whatever else is lost.
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
        let best = found.iter().max_by_key(|(rank, _)| *rank).and_then(|(_, bytes)| bytes.clone());
        let newest = found.iter().filter_map(|(rank, _)| *rank).max();
        let Some(head) = best.as_ref().and_then(|bytes| Head::parse(identity, bytes)) else {
            let blank = found.iter().any(|(_, bytes)| bytes.as_ref().is_some_and(|bytes| is_blank(bytes)));
            return if blank { Slot::Blank } else { Slot::Damaged };
        };
        for (copy, (rank, _)) in found.iter().enumerate().filter(|(_, (rank, _))| *rank != newest) {
            let Some(bytes) = best.clone() else { continue };
            match rank {
                None => self.mend(slot, copy, bytes).await,
                // A checkpoint was interrupted between its copies.
                Some(_) => drop(self.write_copy(slot, copy, bytes).await),
            }
        }
        Slot::Head(head)
    }

    /// The slots of the heads and the beginning of the log hold nothing, durably: what an earlier owner left there
    /// is not taken for damage.
    pub(crate) async fn format(&self) -> Result<(), MapError> {
        let zeros = View::zeroed(2 * BLOCK_BYTES as usize);
        let _: Written = self.write(0, zeros).await?;
        self.blank.set(0);
        self.prepare_log(0).await
    }

    /// The head is on stable storage, in the slot that the one before it is not in. Its pages are, already.
    pub(crate) async fn write_head(&self, head: &Head, _pages: Stable) -> Result<Stable, MapError> {
        self.put_head(head, head.generation % 2).await
    }

    /// The slot of the head after `head` holds `head` as well: nothing of that one counts, whatever became of it.
    pub(crate) async fn supersede_head(&self, head: &Head) -> Result<Stable, MapError> {
        self.put_head(head, (head.generation + 1) % 2).await
    }

    async fn put_head(&self, head: &Head, slot: u64) -> Result<Stable, MapError> {
        let block = Buf::copy_of(&head.emit(self.identity)).freeze();
        let mut parts = vec![(slot, block.clone())];
        if sabotage::is(Sabotage::BothHeads) {
            parts.push((1 - slot, block));
            for (address, data) in parts {
                let _: Written = self.write(address, data).await?;
            }
            return self.flush().await;
        }
        self.write_in_turn(&parts).await
    }
}
