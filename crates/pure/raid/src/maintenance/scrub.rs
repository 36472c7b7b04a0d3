//! Scrub of a protected array: reads and verifies every block of every member, and its redundancy.

use crate::array::Array;
use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::{MemberSet, Role, Rows, Span};
use crate::members::{Op, Ops, ReadWait};
use crate::path::Path;
use crate::protected::Protected;
use crate::status::{Progress, Verified};
use crate::stripes::{Excluded, parities_of};
use block::{BlockDevice, Extent, IoError, IoErrorKind, View};
use futures_util::future::join_all;
use shard::RangeGuard;
use std::ops::Range;
use std::rc::Rc;

/// Action of a scrub on what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Reports only.
    Report,
    /// Reports, and writes back what redundancy restores.
    Heal,
}

/// Result of a scrub. Block counts are members' blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Stripes that were read.
    pub stripes: u64,
    /// Stripes among them with members out of service.
    pub degraded: u64,
    /// Blocks that did not match their checksum.
    pub mismatches: u64,
    /// Blocks that could not be read.
    pub unreadable: u64,
    /// Blocks without a known checksum.
    pub unknown: u64,
    /// Stripes whose blocks all matched, but whose parity or mirrors were inconsistent.
    pub parity: u64,
    /// Blocks that were repaired.
    pub healed: u64,
    /// Blocks that could not be restored.
    pub lost: u64,
}

/// Block found bad, with its kind of error.
struct Bad {
    member: u16,
    row: u64,
    kind: FindingKind,
}

impl<D: BlockDevice + 'static> Array<D> {
    /// Scrubs `stripes`: verifies blocks and redundancy on every member, and reports what is wrong.
    ///
    /// With [`Repair::Heal`], what can be repaired is. The host is served meanwhile. `pace` is called after every few
    /// stripes. *Errors*: `Unsupported` for an array without checksums.
    pub async fn scrub(
        &self,
        stripes: Range<u64>,
        repair: Repair,
        mut pace: impl AsyncFnMut(Progress),
    ) -> Result<Scrubbed, IoError> {
        let mut total = Scrubbed::default();
        // The owner may name the range to the end of the address space.
        let stripes = stripes.start..stripes.end.min(self.layout().stripes());
        let steps = self.path().stripes().layout.steps(stripes.clone());
        for step in steps {
            // The array may change its shape between steps.
            total.add(scrub_step(&self.path(), step.clone(), repair).await?);
            let (done, all) = (step.end - stripes.start, stripes.end - stripes.start);
            pace(Progress { done, total: all, front_stripe: step.end }).await;
        }
        Ok(total)
    }

    /// Scrubs with report only, and returns the counts in the form used for plain arrays.
    pub(crate) async fn scrub_counts(
        &self,
        stripes: Range<u64>,
        pace: impl AsyncFnMut(Progress),
    ) -> Result<Verified, IoError> {
        let scrubbed = self.scrub(stripes, Repair::Report, pace).await?;
        Ok(Verified {
            stripes: scrubbed.stripes,
            mismatches: scrubbed.mismatches + scrubbed.parity,
            unreadable: scrubbed.unreadable + scrubbed.unknown,
            skipped: 0,
        })
    }
}

/// Scrub of one layout of the array.
struct Scrub<'a, D> {
    array: &'a Rc<Protected<D>>,
    repair: Repair,
}

/// Scrubs a few stripes; a reshape moves none of them meanwhile.
pub(crate) async fn scrub_step<D: BlockDevice + 'static>(
    path: &Path<D>,
    step: Range<u64>,
    repair: Repair,
) -> Result<Scrubbed, IoError> {
    let mut total = Scrubbed::default();
    let _still = path.pause_moves().await;
    let one = |stripe| async move {
        let array = match path {
            Path::Plain(_) => return Err(IoError::new(IoErrorKind::Unsupported, Extent::default())),
            Path::Protected(array) => Some(array),
            Path::Reshaping(array) => array.laid_out(stripe),
        };
        match array {
            Some(array) => Scrub { array, repair }.scrub_stripe(stripe).await,
            // A vacated stripe of a reshape holds nothing.
            None => Ok(Scrubbed::default()),
        }
    };
    for scrubbed in join_all(step.map(one)).await {
        total.add(scrubbed?);
    }
    Ok(total)
}

impl<D: BlockDevice + 'static> Scrub<'_, D> {
    async fn scrub_stripe(&self, stripe: u64) -> Result<Scrubbed, IoError> {
        let range = stripe..stripe + 1;
        let guard = match self.repair {
            // A repair writes, so it excludes other writers; a report only has to keep them out while it compares.
            Repair::Heal => self.array.locks.exclusive(range.clone()).await,
            Repair::Report => self.array.locks.shared(range.clone()).await,
        };
        let extent = Extent::new(stripe * self.array.layout.stripe_blocks(), self.array.layout.stripe_blocks());
        self.array.members.serving(extent)?;
        // Fresh entries are logged first, because a repair of these blocks is logged after them.
        self.array.settle_stripes(&range).await?;
        let readable = self.array.members.usable(stripe).read;
        let mut scrubbed = Scrubbed { stripes: 1, ..Scrubbed::default() };
        scrubbed.degraded = u64::from(readable.len() < self.array.layout.members());
        let bad = self.bad_blocks(stripe, readable).await;
        // Only where every block matches: with a bad block it is not known which side is wrong.
        if bad.is_empty() {
            if let Some(ops) = self.wrong_redundancy(stripe, readable).await {
                scrubbed.parity = 1;
                self.correct(stripe, ops, guard).await?;
            }
            return Ok(scrubbed);
        }
        self.restore_bad(stripe, &bad, guard, &mut scrubbed).await;
        self.array.members.failures_recorded(extent).await?;
        Ok(scrubbed)
    }

    async fn bad_blocks(&self, stripe: u64, readable: MemberSet) -> Vec<Bad> {
        let rows = self.array.layout.all_rows();
        let read = |member| async move {
            let extent = self.array.layout.member_extent(stripe, rows);
            (member, self.array.stripes.read_member(member, extent, ReadWait::Deadline).await)
        };
        // Whole chunks first, which without damage is one read of each member.
        let mut bad = Vec::new();
        for (member, found) in join_all(readable.iter().map(read)).await {
            if found.is_ok() {
                continue;
            }
            // Row by row: one bad block must not hide the others.
            for row in rows.start..rows.end {
                let extent = self.array.layout.member_extent(stripe, Rows::new(row, row + 1));
                match self.array.stripes.read_member(member, extent, ReadWait::Deadline).await {
                    // A member that is gone or late is not a bad block.
                    Err(error) if !matches!(error.kind, IoErrorKind::Gone | IoErrorKind::TimedOut) => {
                        bad.push(Bad { member, row, kind: self.array.stripes.kind_of(member, extent.start.0) });
                    }
                    _ => {}
                }
            }
        }
        bad
    }

    async fn restore_bad(&self, stripe: u64, bad: &[Bad], guard: RangeGuard, scrubbed: &mut Scrubbed) {
        let mut ops = Ops::new();
        for bad in bad {
            let rows = Rows::new(bad.row, bad.row + 1);
            let extent = self.array.layout.member_extent(stripe, rows);
            let role = self.array.layout.role_of(stripe, bad.member);
            let part = self.array.stripes.salvage(stripe, role, rows, Excluded::of(MemberSet::only(bad.member))).await;
            // A single row, so there is a single part.
            let content: Option<View> = part.into_iter().next().and_then(|part| part.content.ok());
            let outcome = match (&content, self.repair) {
                (None, _) => Outcome::Lost,
                (Some(_), Repair::Report) => Outcome::Served,
                (Some(_), Repair::Heal) => Outcome::Healed,
            };
            match bad.kind {
                FindingKind::Mismatch => scrubbed.mismatches += 1,
                FindingKind::Unknown => scrubbed.unknown += 1,
                _ => scrubbed.unreadable += 1,
            }
            scrubbed.healed += u64::from(outcome == Outcome::Healed);
            scrubbed.lost += u64::from(outcome == Outcome::Lost);
            self.array.checksums.pages.report(
                Finding::new(bad.member, extent, bad.kind, outcome)
                    .of_lost(self.array.layout.lba_on(bad.member, extent.start.0)),
            );
            if let (Some(content), Repair::Heal) = (content, self.repair) {
                ops.push(Op::write(bad.member, extent, content));
            }
        }
        if !ops.is_empty() {
            // The guard goes along: nothing may be written between the read and its repair.
            self.array.stripes.heal(ops, guard).await;
        }
    }

    /// Returns the writes that would make redundancy consistent, where it is not. All blocks match their checksums.
    async fn wrong_redundancy(&self, stripe: u64, readable: MemberSet) -> Option<Ops> {
        let rows = self.array.layout.all_rows();
        let extent = self.array.layout.member_extent(stripe, rows);
        let mut ops = Ops::new();
        let read = async |role| {
            let member = self.array.layout.member_of(stripe, role);
            match readable.contains(member) {
                true => self
                    .array
                    .stripes
                    .read_member(member, extent, ReadWait::Deadline)
                    .await
                    .ok()
                    .map(block::Rope::into_view),
                false => None,
            }
        };
        let mut columns = Vec::new();
        for column in 0..self.array.layout.columns() {
            let mut first: Option<View> = None;
            for copy in 0..self.array.layout.copies() {
                let role = Role::Data { column, copy };
                match (read(role).await, &first) {
                    (Some(content), None) => first = Some(content),
                    // Every copy matches its checksum, so neither is wrong by itself; the first one is kept.
                    (Some(content), Some(right)) if *content != **right => {
                        ops.push(Op::write(self.array.layout.member_of(stripe, role), extent, right.clone()));
                    }
                    _ => {}
                }
            }
            columns.extend(first);
        }
        // Parity covers all columns, so one that could not be read leaves nothing to compare with.
        if self.array.layout.has_parity() && columns.len() == usize::from(self.array.layout.columns()) {
            let (p, q) = parities_of(&columns, rows, self.array.layout.level().parities() == 2);
            for (role, right) in [(Role::P, Some(p)), (Role::Q, q)] {
                let Some(right) = right else { continue };
                if read(role).await.is_some_and(|found| *found != *right) {
                    ops.push(Op::write(self.array.layout.member_of(stripe, role), extent, right));
                }
            }
        }
        (!ops.is_empty()).then_some(ops)
    }

    /// Reports inconsistent redundancy, and rewrites it through the log.
    async fn correct(&self, stripe: u64, ops: Ops, guard: RangeGuard) -> Result<(), IoError> {
        let outcome = if self.repair == Repair::Heal { Outcome::Healed } else { Outcome::Served };
        for op in &ops {
            let finding = Finding::new(op.member, op.extent(), FindingKind::Parity, outcome);
            self.array.checksums.pages.report(finding);
        }
        if self.repair == Repair::Report {
            return Ok(());
        }
        let start = stripe * self.array.layout.stripe_blocks();
        let part =
            Span { stripes: stripe..stripe + 1, extent: Extent::new(start, self.array.layout.stripe_blocks()), at: 0 };
        // Through the log: a crash must not leave a stripe half corrected.
        self.array.change_rows(&part, ops, guard).await
    }
}

impl Scrubbed {
    fn add(&mut self, other: Self) {
        self.stripes += other.stripes;
        self.degraded += other.degraded;
        self.mismatches += other.mismatches;
        self.unreadable += other.unreadable;
        self.unknown += other.unknown;
        self.parity += other.parity;
        self.healed += other.healed;
        self.lost += other.lost;
    }
}
