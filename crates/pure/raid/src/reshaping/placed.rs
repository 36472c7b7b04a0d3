//! Content of new stripes: read from the old layout, with parity computed for the new one.

use crate::geometry::{Role, Rows, bytes};
use crate::on_disk::batch::Records;
use crate::on_disk::entry::{Entry, guards};
use crate::reshaping::Reshaping;
use crate::stripes::{Excluded, parities_of};
use block::{BlockDevice, Buf, Extent, IoError, View};
use std::rc::Rc;

/// State of a block of the new stripe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockState {
    Unwritten,
    Known,
    Lost,
}

/// Rows of one member's chunk that are to be written.
pub(super) struct Placed {
    pub(super) member: u16,
    pub(super) block: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) content: View,
}

impl Placed {
    pub(super) fn extent(&self) -> Extent {
        Extent::new(self.block, self.entries.len() as u64)
    }

    /// True when at least one block has content to write.
    pub(super) fn has_content(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_known() && !entry.is_unwritten())
    }

    /// Logs the entries of the blocks, with their content where the member is written.
    pub(super) fn log_images(&self, records: &mut Records, is_written: bool) {
        for (n, entry) in (0..).zip(&self.entries) {
            let has_image = is_written && entry.is_known() && !entry.is_unwritten();
            let block = self.block + n;
            match has_image {
                true => records.image(self.member, block, &[*entry], &self.content.slice(bytes(n)..bytes(n + 1))),
                false => records.entries(self.member, block, &[*entry]),
            }
        }
    }

    /// Logs the entries of the blocks only.
    pub(super) fn log_entries(&self, records: &mut Records) {
        if self.entries.iter().all(|entry| entry.is_unwritten()) {
            records.unwritten(self.member, self.block, self.entries.len() as u64);
        } else {
            records.entries(self.member, self.block, &self.entries);
        }
    }
}

impl<D: BlockDevice + 'static> Reshaping<D> {
    /// Builds the changed rows of all members in `stripe` of the new layout. The caller holds the rows in both
    /// layouts, and pins the pages of the new stripe.
    ///
    /// Blocks that cannot be restored are lost in their new place, too. *Errors*: `Gone` when the array has stopped.
    pub(super) async fn place(self: &Rc<Self>, stripe: u64, rows: Rows) -> Result<Vec<Placed>, IoError> {
        let (mut columns, mut states) = (Vec::new(), Vec::new());
        for column in 0..self.new.layout.columns() {
            // Chunks are numbered in the array's addresses, which both layouts share.
            let chunk = stripe * u64::from(self.new.layout.columns()) + u64::from(column);
            let (content, state) = self.fetch(chunk, rows).await?;
            columns.push(content);
            states.push(state);
        }
        let (p, q) = parities_of(&columns, rows, self.new.layout.level().parities() == 2);
        // Parity of rows that were never written is unwritten, too.
        let row_state = |row: usize| match states.iter().all(|state| state[row] == BlockState::Unwritten) {
            true => BlockState::Unwritten,
            false => BlockState::Known,
        };
        let parity_states: Vec<BlockState> = (0..rows.len() as usize).map(row_state).collect();
        let data = (0..).zip(columns).map(|(column, view)| (Role::Data { column, copy: 0 }, view));
        let parities = [(Role::P, Some(p)), (Role::Q, q)].into_iter().filter_map(|(role, view)| Some((role, view?)));
        let mut placed = Vec::new();
        // States follow the contents: data columns, then P and Q, which have the same.
        for ((role, content), state) in
            data.chain(parities).zip(states.into_iter().chain([parity_states.clone(), parity_states]))
        {
            let member = self.new.layout.member_of(stripe, role);
            let block = self.new.layout.member_extent(stripe, rows).start.0;
            let entries = (block..).zip(guards(&content)).zip(state).map(|((block, guard), state)| match state {
                BlockState::Unwritten => Entry::UNWRITTEN,
                BlockState::Lost => Entry::LOST,
                BlockState::Known => {
                    // Generations go on from the entry of the place, so the content left there does not match.
                    self.new.checksums.entry(member, block).next(self.new.checksums.pages.binding(member, block), guard)
                }
            });
            let entries: Vec<Entry> = entries.collect();
            // A block that stays unwritten needs neither record nor page.
            let changes = (block..).zip(&entries).any(|(block, &new)| self.new.checksums.entry(member, block) != new);
            if changes {
                placed.push(Placed { member, block, entries, content });
            }
        }
        Ok(placed)
    }

    /// Reads rows of a data chunk from the old layout, with the state of each block.
    async fn fetch(&self, chunk: u64, rows: Rows) -> Result<(View, Vec<BlockState>), IoError> {
        let old = &self.old;
        let (stripe, column) = (chunk / u64::from(old.layout.columns()), chunk % u64::from(old.layout.columns()));
        let mut states = vec![BlockState::Unwritten; rows.len() as usize];
        // Behind the end of the old layout: blocks that the array gains by the reshape.
        if stripe >= old.layout.stripes() {
            return Ok((self.new.checksums.pages.zeros(bytes(rows.len())), states));
        }
        let column = u16::try_from(column).expect("a stripe has fewer columns than members");
        let role = Role::Data { column, copy: 0 };
        let (member, extent) = (old.layout.member_of(stripe, role), old.layout.member_extent(stripe, rows));
        let pins = old.checksums.hold_pages(member, extent).await;
        for (state, block) in states.iter_mut().zip(extent.start.0..) {
            if !old.checksums.entry(member, block).is_unwritten() {
                *state = BlockState::Known;
            }
        }
        drop(pins);
        if states.iter().all(|&state| state == BlockState::Unwritten) {
            return Ok((self.new.checksums.pages.zeros(bytes(rows.len())), states));
        }
        let salvaged = old.stripes.salvage(stripe, role, rows, Excluded::default()).await;
        // A stopped array must not be mistaken for lost blocks, which would be marked as lost permanently.
        self.new.members.serving(extent)?;
        old.stripes.report(stripe, column, &salvaged);
        if let [whole] = &salvaged[..]
            && let Ok(view) = &whole.content
        {
            return Ok((view.clone(), states));
        }
        // Lost rows stay zero: parity is computed over zeros there, and their entries say lost.
        let mut content = Buf::zeroed(bytes(rows.len()));
        for part in salvaged {
            match part.content {
                Ok(view) => content[rows.bytes_of(part.rows)].copy_from_slice(&view),
                Err(_) => {
                    let lost = part.rows.start - rows.start..part.rows.end - rows.start;
                    states[lost.start as usize..lost.end as usize].fill(BlockState::Lost);
                }
            }
        }
        Ok((content.freeze(), states))
    }
}
