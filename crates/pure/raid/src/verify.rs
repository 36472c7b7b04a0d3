//! Walks over stripes that compare parity and mirrors with the data, and may put them right.

use crate::array::Core;
use crate::geometry::{MemberSet, Role};
use crate::members::{Op, Ops};
use crate::plan::{Parity, Read, Sight};
use crate::restore::parity_of;
use block::{BlockDevice, Extent, IoError, IoErrorKind, View};
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// How far a walk over stripes has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Stripes that are done.
    pub done: u64,
    /// Stripes in all.
    pub total: u64,
    /// The stripe behind the last that is done.
    pub front_stripe: u64,
}

/// What a walk over stripes has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Stripes that were compared.
    pub stripes: u64,
    /// Of these, stripes whose parity or mirrors disagreed with the data.
    pub mismatches: u64,
    /// Stripes that could not be compared because a member could not read them.
    pub unreadable: u64,
    /// Stripes that could not be compared because members are not in service.
    pub skipped: u64,
}

/// What one stripe turned out to be, from what matters least to what matters most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Finding {
    Skipped,
    Right,
    Unreadable,
    Wrong,
}

/// Bytes of each member that are worked on at a time.
const STEP_BYTES: u64 = 512 << 10;

impl<D: BlockDevice + 'static> Core<D> {
    pub(crate) async fn resync(
        self: &Rc<Self>,
        stripes: Range<u64>,
        pace: impl AsyncFnMut(Progress),
    ) -> Result<Verified, IoError> {
        if self.protected.is_some() {
            // Nothing is left to be resynced once the log was replayed.
            return Ok(Verified { stripes: stripes.end - stripes.start, ..Verified::default() });
        }
        self.suspect.borrow_mut().push(stripes.clone());
        self.walk(stripes, pace, true).await
    }

    pub(crate) async fn scrub_check(
        self: &Rc<Self>,
        stripes: Range<u64>,
        pace: impl AsyncFnMut(Progress),
    ) -> Result<Verified, IoError> {
        self.walk(stripes, pace, false).await
    }

    async fn walk(
        self: &Rc<Self>,
        stripes: Range<u64>,
        mut pace: impl AsyncFnMut(Progress),
        repair: bool,
    ) -> Result<Verified, IoError> {
        let mut verified = Verified::default();
        let stripes = stripes.start..stripes.end.min(self.layout.stripes());
        for step in self.steps(stripes.clone()) {
            let one = |stripe| self.verify_stripe(stripe, repair);
            for finding in join_all(step.clone().map(one)).await {
                match finding? {
                    Finding::Right => verified.stripes += 1,
                    Finding::Wrong => {
                        verified.stripes += 1;
                        verified.mismatches += 1;
                    }
                    Finding::Unreadable => verified.unreadable += 1,
                    Finding::Skipped => verified.skipped += 1,
                }
            }
            if repair {
                self.trust(&step);
            }
            let (done, total) = (step.end - stripes.start, stripes.end - stripes.start);
            pace(Progress { done, total, front_stripe: step.end }).await;
        }
        Ok(verified)
    }

    /// The mirrors of these stripes agree.
    fn trust(&self, stripes: &Range<u64>) {
        let mut suspect = self.suspect.borrow_mut();
        let left = suspect.iter().flat_map(|range| {
            let before = range.start..range.end.min(stripes.start);
            let behind = range.start.max(stripes.end)..range.end;
            [before, behind].into_iter().filter(|part| !part.is_empty())
        });
        *suspect = left.collect();
    }

    /// Cuts a range of stripes into what is worked on at a time.
    pub(crate) fn steps(&self, stripes: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<D> {
        let chunk_bytes = self.layout.chunk_blocks() * u64::from(crate::BLOCK_BYTES);
        let step = (STEP_BYTES / chunk_bytes).max(1);
        let mut at = stripes.start;
        std::iter::from_fn(move || {
            let here = at..stripes.end.min(at.saturating_add(step));
            at = here.end;
            (!here.is_empty()).then_some(here)
        })
    }

    async fn verify_stripe(self: &Rc<Self>, stripe: u64, repair: bool) -> Result<Finding, IoError> {
        let range = stripe..stripe + 1;
        let guard = if repair { self.locks.exclusive(range).await } else { self.locks.shared(range).await };
        let start = stripe * self.layout.stripe_blocks();
        let extent = Extent::new(start, self.layout.stripe_blocks());
        self.members.serving(extent)?;
        let mut corrections = Ops::new();
        let finding = if self.layout.has_parity() {
            self.compare_parity(stripe, &mut corrections).await
        } else {
            self.compare_mirrors(stripe, &mut corrections).await
        };
        if repair && !corrections.is_empty() {
            self.carry_out(corrections, guard, extent).await?;
            self.members.failures_recorded(extent).await?;
        }
        Ok(finding)
    }

    /// Compares, and adds the writes that put the stripe right to `corrections`.
    async fn compare_parity(self: &Rc<Self>, stripe: u64, corrections: &mut Ops) -> Finding {
        let sight = self.sight(stripe, MemberSet::NONE);
        if sight.lost != 0 || (sight.p, sight.q) == (Parity::Absent, Parity::Absent) {
            return Finding::Skipped;
        }
        let rows = self.layout.all_rows();
        let data = (0..sight.columns).map(|column| Read { role: Role::Data { column, copy: 0 }, rows });
        let reads: SmallVec<[Read; 8]> =
            data.chain(readable_parities(&sight).map(|role| Read { role, rows })).collect();
        let Ok(loaded) = self.load(stripe, &reads).await else { return Finding::Unreadable };
        let (data, parities) = loaded.split_at(usize::from(sight.columns));
        let columns: SmallVec<[View; 8]> = data.iter().map(|(_, view)| view.clone()).collect();
        let (p, q) = parity_of(&columns, rows);
        corrections.extend(self.wrong_parities(stripe, &sight, parities, (p, q)));
        if corrections.is_empty() { Finding::Right } else { Finding::Wrong }
    }

    /// The writes of those parities that are not as they should be, or that are written only.
    fn wrong_parities(&self, stripe: u64, sight: &Sight, found: &[(Read, View)], right: (View, View)) -> Ops {
        let mut ops = Ops::new();
        for (role, state, right) in [(Role::P, sight.p, right.0), (Role::Q, sight.q, right.1)] {
            let old = found.iter().find(|(read, _)| read.role == role).map(|(_, view)| view);
            let is_right = state == Parity::Absent || old.is_some_and(|old| **old == *right);
            if !is_right {
                let member = self.layout.member_of(stripe, role);
                ops.push(Op::write(member, self.layout.member_extent(stripe, self.layout.all_rows()), right));
            }
        }
        ops
    }

    /// Compares, and adds the writes that put the stripe right to `corrections`.
    async fn compare_mirrors(self: &Rc<Self>, stripe: u64, corrections: &mut Ops) -> Finding {
        let mut worst = Finding::Skipped;
        for column in 0..self.layout.columns() {
            worst = worst.max(self.compare_column(stripe, column, corrections).await);
        }
        worst
    }

    /// The first copy that can be read is right; the others are corrected, also those that cannot be read.
    async fn compare_column(self: &Rc<Self>, stripe: u64, column: u16, corrections: &mut Ops) -> Finding {
        let (rows, write) = (self.layout.all_rows(), self.members.usable(stripe).write);
        let holders = (0..self.layout.copies()).map(|copy| self.layout.member_of(stripe, Role::Data { column, copy }));
        let holders: MemberSet = holders.filter(|&member| write.contains(member)).collect();
        if holders.len() < 2 {
            return Finding::Skipped;
        }
        let mut blind = MemberSet::NONE;
        let Ok(right) = self.content(stripe, Role::Data { column, copy: 0 }, rows, &mut blind).await else {
            return Finding::Unreadable;
        };
        let extent = self.layout.member_extent(stripe, rows);
        let mut finding = Finding::Right;
        for member in holders.iter() {
            let found = match self.members.usable(stripe).read.contains(member) {
                true => self.read_member(member, extent).await,
                false => Err(IoError::new(IoErrorKind::Medium, extent)),
            };
            match found {
                Ok(found) if found == *right => continue,
                Ok(_) => finding = Finding::Wrong,
                Err(_) if finding == Finding::Right => finding = Finding::Unreadable,
                Err(_) => {}
            }
            corrections.push(Op::write(member, extent, right.clone()));
        }
        finding
    }
}

fn readable_parities(sight: &Sight) -> impl Iterator<Item = Role> + use<> {
    let states = [(Role::P, sight.p), (Role::Q, sight.q)];
    states.into_iter().filter(|&(_, state)| state == Parity::Readable).map(|(role, _)| role)
}
