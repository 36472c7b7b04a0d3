//! Scrubbing a protected array: every block of every member is read and compared, and so is redundancy.

use crate::array::{Array, Core};
use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::{MemberSet, Role, Rows, Span};
use crate::logged::change_of;
use crate::members::{Op, Ops};
use crate::protect::Protected;
use crate::restore::parities_of;
use crate::verify::{Progress, Verified};
use block::{BlockDevice, Extent, IoError, IoErrorKind, View};
use futures_util::future::join_all;
use shard::RangeGuard;
use std::ops::Range;
use std::rc::Rc;

/// Whether a scrub puts right what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It only tells.
    Report,
    /// It writes back what redundancy gives.
    Heal,
}

/// What a scrub has found. Counts of blocks are of members' blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Stripes that were looked at.
    pub stripes: u64,
    /// Of these, stripes of which members are not in service.
    pub degraded: u64,
    /// Blocks that were not as written.
    pub mismatches: u64,
    /// Blocks that could not be read.
    pub unreadable: u64,
    /// Blocks of which nothing was known.
    pub unknown: u64,
    /// Stripes whose blocks were all as written, and whose redundancy was wrong nevertheless.
    pub parity: u64,
    /// Blocks that were put right.
    pub healed: u64,
    /// Blocks that nobody can give back.
    pub lost: u64,
}

/// A block that is not as it should be.
struct Bad {
    member: u16,
    row: u64,
    kind: FindingKind,
}

impl<D: BlockDevice + 'static> Array<D> {
    pub(crate) async fn scrub_steps(
        &self,
        stripes: Range<u64>,
        repair: Repair,
        mut pace: impl AsyncFnMut(Progress),
    ) -> Result<Scrubbed, IoError> {
        let mut total = Scrubbed::default();
        let stripes = stripes.start..stripes.end.min(self.layout().stripes());
        let steps = self.core().steps(stripes.clone());
        for step in steps {
            // Between the steps the array may take another shape.
            total.add(self.core().scrub_step(step.clone(), repair).await?);
            let (done, all) = (step.end - stripes.start, stripes.end - stripes.start);
            pace(Progress { done, total: all, front_stripe: step.end }).await;
        }
        Ok(total)
    }

    /// The same in the words of arrays without sums.
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

impl<D: BlockDevice + 'static> Core<D> {
    pub(crate) async fn scrub_step(self: &Rc<Self>, step: Range<u64>, repair: Repair) -> Result<Scrubbed, IoError> {
        let Some(protected) = &self.protected else {
            return Err(IoError::new(IoErrorKind::Unsupported, Extent::default()));
        };
        let mut total = Scrubbed::default();
        let _still = self.hold_still().await;
        let one = |stripe| async move {
            match self.laid_out(stripe) {
                Some(core) => core.scrub_stripe(protected, stripe, repair).await,
                None => Ok(Scrubbed::default()),
            }
        };
        for scrubbed in join_all(step.map(one)).await {
            total.add(scrubbed?);
        }
        Ok(total)
    }

    async fn scrub_stripe(
        self: &Rc<Self>,
        protected: &Protected,
        stripe: u64,
        repair: Repair,
    ) -> Result<Scrubbed, IoError> {
        let range = stripe..stripe + 1;
        let guard = match repair {
            Repair::Heal => self.locks.exclusive(range.clone()).await,
            Repair::Report => self.locks.shared(range.clone()).await,
        };
        let extent = Extent::new(stripe * self.layout.stripe_blocks(), self.layout.stripe_blocks());
        self.members.serving(extent)?;
        self.settle_stripes(protected, &range).await?;
        let readable = self.members.usable(stripe).read;
        let mut scrubbed = Scrubbed { stripes: 1, ..Scrubbed::default() };
        scrubbed.degraded = u64::from(readable.len() < self.layout.members());
        let bad = self.bad_blocks(stripe, readable).await;
        if bad.is_empty() {
            if let Some(ops) = self.wrong_redundancy(stripe, readable).await {
                scrubbed.parity = 1;
                self.correct(protected, stripe, ops, repair, guard).await?;
            }
            return Ok(scrubbed);
        }
        self.restore_bad(protected, stripe, &bad, repair, guard, &mut scrubbed).await;
        self.members.failures_recorded(extent).await?;
        Ok(scrubbed)
    }

    async fn bad_blocks(self: &Rc<Self>, stripe: u64, readable: MemberSet) -> Vec<Bad> {
        let rows = self.layout.all_rows();
        let read =
            |member| async move { (member, self.read_member(member, self.layout.member_extent(stripe, rows)).await) };
        let mut bad = Vec::new();
        for (member, found) in join_all(readable.iter().map(read)).await {
            if found.is_ok() {
                continue;
            }
            for row in rows.start..rows.end {
                let extent = self.layout.member_extent(stripe, Rows::new(row, row + 1));
                match self.read_member(member, extent).await {
                    Err(error) if error.kind != IoErrorKind::Gone => {
                        bad.push(Bad { member, row, kind: self.kind_of(member, extent.start.0) });
                    }
                    _ => {}
                }
            }
        }
        bad
    }

    async fn restore_bad(
        self: &Rc<Self>,
        protected: &Protected,
        stripe: u64,
        bad: &[Bad],
        repair: Repair,
        guard: RangeGuard,
        scrubbed: &mut Scrubbed,
    ) {
        let mut ops = Ops::new();
        for bad in bad {
            let rows = Rows::new(bad.row, bad.row + 1);
            let extent = self.layout.member_extent(stripe, rows);
            let role = self.layout.role_of(stripe, bad.member);
            let part = self.salvage(stripe, role, rows, MemberSet::only(bad.member)).await;
            let content: Option<View> = part.into_iter().next().and_then(|part| part.content.ok());
            let outcome = match (&content, repair) {
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
            protected.report(Finding { member: bad.member, extent, kind: bad.kind, outcome });
            if let (Some(content), Repair::Heal) = (content, repair) {
                ops.push(Op::write(bad.member, extent, content));
            }
        }
        if !ops.is_empty() {
            self.heal(ops, guard).await;
        }
    }

    /// The writes that would make redundancy right, where it is not. All blocks are as they were written.
    async fn wrong_redundancy(self: &Rc<Self>, stripe: u64, readable: MemberSet) -> Option<Ops> {
        let rows = self.layout.all_rows();
        let extent = self.layout.member_extent(stripe, rows);
        let mut ops = Ops::new();
        let read = async |role| {
            let member = self.layout.member_of(stripe, role);
            match readable.contains(member) {
                true => self.read_member(member, extent).await.ok().map(block::Rope::into_view),
                false => None,
            }
        };
        let mut columns = Vec::new();
        for column in 0..self.layout.columns() {
            let mut first: Option<View> = None;
            for copy in 0..self.layout.copies() {
                let role = Role::Data { column, copy };
                match (read(role).await, &first) {
                    (Some(content), None) => first = Some(content),
                    (Some(content), Some(right)) if *content != **right => {
                        ops.push(Op::write(self.layout.member_of(stripe, role), extent, right.clone()));
                    }
                    _ => {}
                }
            }
            columns.extend(first);
        }
        if self.layout.has_parity() && columns.len() == usize::from(self.layout.columns()) {
            let (p, q) = parities_of(&columns, rows, self.layout.level().parities() == 2);
            for (role, right) in [(Role::P, Some(p)), (Role::Q, q)] {
                let Some(right) = right else { continue };
                if read(role).await.is_some_and(|found| *found != *right) {
                    ops.push(Op::write(self.layout.member_of(stripe, role), extent, right));
                }
            }
        }
        (!ops.is_empty()).then_some(ops)
    }

    /// Tells of wrong redundancy, and writes it anew through the log.
    async fn correct(
        self: &Rc<Self>,
        protected: &Protected,
        stripe: u64,
        ops: Ops,
        repair: Repair,
        guard: RangeGuard,
    ) -> Result<(), IoError> {
        let outcome = if repair == Repair::Heal { Outcome::Healed } else { Outcome::Served };
        for op in &ops {
            protected.report(Finding { member: op.member, extent: op.extent(), kind: FindingKind::Parity, outcome });
        }
        if repair == Repair::Report {
            return Ok(());
        }
        let start = stripe * self.layout.stripe_blocks();
        let part = Span { stripes: stripe..stripe + 1, extent: Extent::new(start, self.layout.stripe_blocks()), at: 0 };
        change_of(self, protected, &part, ops, guard).await
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
