//! Self-checking metadata on arrays without checksums: of the copies of a block the best-ranked one counts.
//!
//! A mirror whose copies differ cannot tell which one is correct, and a wrong answer of one disk would pass for
//! content. The owner of metadata can tell, because each of its blocks carries a checksum. [`Plain::read_best`] reads
//! every copy, or what parity restores, and rewrites the others.

use crate::geometry::{MemberSet, Role, Rows, StripePosition};
use crate::members::{Op, Ops, ReadWait};
use crate::plain::Plain;
use crate::stripes::Excluded;
use block::{BestCopy, BlockDevice, Buf, Extent, GenerationFn, IoError, Lba, View};

/// Copy of a block: its member, the content or the error, and its rank.
struct Copy {
    member: u16,
    content: Result<View, IoError>,
    rank: Option<u64>,
}

impl<D: BlockDevice + 'static> Plain<D> {
    /// Reads as [`BlockDevice::read_best`], for an array without checksums.
    pub(crate) async fn read_best(&self, extent: Extent, rank: GenerationFn<'_>) -> Result<BestCopy, IoError> {
        let block = crate::BLOCK_BYTES as usize;
        // RAID-0 has one copy, so there is nothing to choose.
        if self.stripes.has_no_redundancy() {
            return Ok(BestCopy { content: self.stripes.read(extent).await?.into_view(), repaired: 0 });
        }
        let mirrors = self.stripes.layout.copies() > 1;
        let read = self.stripes.read(extent).await;
        let (mut content, is_whole) = match read {
            Ok(rope) => (rope.into_view().into_buf(), true),
            Err(_) => (Buf::zeroed(extent.len.0 as usize * block), false),
        };
        let mut repaired = 0;
        for (lba, into) in (extent.start.0..).zip(content.chunks_exact_mut(block)) {
            // A mirror may be intact and yet older than another.
            if is_whole && !mirrors && rank(into).is_some() {
                continue;
            }
            let (best, mended) = self.best_of(Lba(lba), rank).await?;
            repaired += mended;
            match best {
                Some(best) => into.copy_from_slice(&best),
                // No copy has a rank, so the content of the first read stands.
                None if is_whole => {}
                // Read alone, because the first read may have failed for another block.
                None => into.copy_from_slice(&self.stripes.read(Extent::new(lba, 1)).await?.into_view()),
            }
        }
        Ok(BestCopy { content: content.freeze(), repaired })
    }

    /// Returns the best copy of a block, if any has a rank, and how many others were rewritten.
    async fn best_of(&self, lba: Lba, rank: GenerationFn<'_>) -> Result<(Option<View>, u64), IoError> {
        let place = self.stripes.layout.locate(lba);
        let copies = self.copies_of(place, rank).await;
        let best = copies.iter().filter_map(|copy| copy.rank).max();
        let is_even = |copies: &[Copy]| copies.iter().all(|copy| copy.rank == best);
        if best.is_none() || is_even(&copies) {
            return Ok((content_of(copies, best), 0));
        }
        // A write in progress looks the same; under the lock the difference is conclusive.
        let guard = self.stripes.locks.exclusive(place.stripe..place.stripe + 1).await;
        let copies = self.copies_of(place, rank).await;
        let best = copies.iter().filter_map(|copy| copy.rank).max();
        // Also unreadable copies, whose rank is `None`: writing them again repairs them.
        let wrong: Vec<u16> = copies.iter().filter(|copy| copy.rank != best).map(|copy| copy.member).collect();
        let Some(content) = content_of(copies, best) else { return Ok((None, 0)) };
        let extent = self.stripes.layout.member_extent(place.stripe, Rows::new(place.row, place.row + 1));
        let ops: Ops = wrong.iter().map(|&member| Op::write(member, extent, content.clone())).collect();
        self.stripes.execute(ops, guard, Extent { start: lba, len: block::Blocks(1) }).await?;
        self.stripes.members.failures_recorded(extent).await?;
        Ok((Some(content), wrong.len() as u64))
    }

    /// Reads each copy of a block; with parity the member's copy, and if that has no rank what each parity restores.
    async fn copies_of(&self, place: StripePosition, rank: GenerationFn<'_>) -> Vec<Copy> {
        let rows = Rows::new(place.row, place.row + 1);
        let extent = self.stripes.layout.member_extent(place.stripe, rows);
        let readable = self.stripes.members.usable(place.stripe).read;
        let role = |copy| Role::Data { column: place.column, copy };
        let judged = |member, content: Result<View, IoError>| {
            let rank = content.as_ref().ok().and_then(|content| rank(content));
            Copy { member, content, rank }
        };
        let mut copies = Vec::new();
        for copy in 0..self.stripes.layout.copies() {
            let member = self.stripes.layout.member_of(place.stripe, role(copy));
            if readable.contains(member) {
                // Without a deadline, because the copy of a slow member may be the newest.
                let content = self
                    .stripes
                    .members
                    .read_data(member, extent, ReadWait::Unbounded)
                    .await
                    .map(block::Rope::into_view);
                copies.push(judged(member, content));
            }
        }
        if !self.stripes.layout.has_parity() || copies.iter().any(|copy| copy.rank.is_some()) {
            return copies;
        }
        let holder = self.stripes.layout.member_of(place.stripe, role(0));
        let p = self.stripes.layout.member_of(place.stripe, Role::P);
        // First without the member itself, from P; then without P, too, from Q.
        for mut excluded in [MemberSet::only(holder), MemberSet::only(holder).with(p)].map(Excluded::of) {
            let content = self.stripes.content(place.stripe, role(0), rows, &mut excluded).await;
            let found = judged(holder, content);
            if found.rank.is_some() {
                copies.push(found);
                break;
            }
        }
        copies
    }
}

fn content_of(copies: Vec<Copy>, best: Option<u64>) -> Option<View> {
    best?;
    copies.into_iter().find(|copy| copy.rank == best)?.content.ok()
}
