//! Verification of stripes: compares parity and mirrors with the data, and repairs them if asked.

use crate::geometry::{MemberSet, Role};
use crate::members::{Op, Ops, ReadWait};
use crate::plain::Plain;
use crate::plan::{Availability, Parity, Read};
use crate::status::{Progress, Verified};
use crate::stripes::{Excluded, parity_of};
use block::{BlockDevice, Extent, IoError, IoErrorKind, View};
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::ops::Range;

/// Result for one stripe, in ascending order of severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Finding {
    Skipped,
    Right,
    Unreadable,
    Wrong,
}

impl<D: BlockDevice + 'static> Plain<D> {
    /// Compares and repairs `stripes`; [`Array::resync`](crate::Array::resync) calls it.
    pub(crate) async fn resync(
        &self,
        stripes: Range<u64>,
        pace: impl AsyncFnMut(Progress),
    ) -> Result<Verified, IoError> {
        // Until a stripe is compared its copies may differ, so reads use the first one.
        self.stripes.suspect.borrow_mut().push(stripes.clone());
        self.walk(stripes, pace, true).await
    }

    /// Compares `stripes` without repairing them; [`Array::scrub_check`](crate::Array::scrub_check) calls it.
    pub(crate) async fn scrub_check(
        &self,
        stripes: Range<u64>,
        pace: impl AsyncFnMut(Progress),
    ) -> Result<Verified, IoError> {
        self.walk(stripes, pace, false).await
    }

    async fn walk(
        &self,
        stripes: Range<u64>,
        mut pace: impl AsyncFnMut(Progress),
        repair: bool,
    ) -> Result<Verified, IoError> {
        let mut verified = Verified::default();
        // The owner may name the range to the end of the address space.
        let stripes = stripes.start..stripes.end.min(self.stripes.layout.stripes());
        for step in self.stripes.layout.steps(stripes.clone()) {
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
                // After the whole step: until then its stripes stay suspect.
                self.trust(&step);
            }
            let (done, total) = (step.end - stripes.start, stripes.end - stripes.start);
            pace(Progress { done, total, front_stripe: step.end }).await;
        }
        Ok(verified)
    }

    /// Makes the mirrors of the suspect stripes in `extent` agree before a host reads them.
    ///
    /// Otherwise the host could read the first copy now and, if a later read of that copy fails, a different second one.
    pub(crate) async fn settle_mirrors(&self, extent: Extent) -> Result<(), IoError> {
        if self.stripes.layout.copies() == 1 {
            return Ok(());
        }
        for stripe in self.stripes.layout.spans(extent).flat_map(|span| span.stripes) {
            if self.stripes.is_suspect_stripe(stripe) {
                self.verify_stripe(stripe, true).await?;
                self.trust(&(stripe..stripe + 1));
            }
        }
        Ok(())
    }

    /// Removes these stripes from the suspect ones: their mirrors agree now.
    fn trust(&self, stripes: &Range<u64>) {
        let mut suspect = self.stripes.suspect.borrow_mut();
        let left = suspect.iter().flat_map(|range| {
            let before = range.start..range.end.min(stripes.start);
            let behind = range.start.max(stripes.end)..range.end;
            [before, behind].into_iter().filter(|part| !part.is_empty())
        });
        *suspect = left.collect();
    }

    async fn verify_stripe(&self, stripe: u64, repair: bool) -> Result<Finding, IoError> {
        let range = stripe..stripe + 1;
        // A repair must not race with readers of redundancy; a comparison keeps only writers out.
        let guard =
            if repair { self.stripes.locks.exclusive(range).await } else { self.stripes.locks.shared(range).await };
        let start = stripe * self.stripes.layout.stripe_blocks();
        let extent = Extent::new(start, self.stripes.layout.stripe_blocks());
        self.stripes.members.serving(extent)?;
        let mut corrections = Ops::new();
        let finding = if self.stripes.layout.has_parity() {
            self.compare_parity(stripe, &mut corrections).await
        } else {
            self.compare_mirrors(stripe, &mut corrections).await
        };
        if repair && !corrections.is_empty() {
            self.stripes.execute(corrections, guard, extent).await?;
            // As for any write: the correction may have failed a member.
            self.stripes.members.failures_recorded(extent).await?;
        }
        Ok(finding)
    }

    /// Compares parity with the data, and adds the writes that repair it to `corrections`.
    async fn compare_parity(&self, stripe: u64, corrections: &mut Ops) -> Finding {
        let availability = self.stripes.availability(stripe, Excluded::default());
        // Data that is lost cannot be compared; parity is the only source for it and must not be overwritten.
        if availability.lost != 0 || (availability.p, availability.q) == (Parity::Absent, Parity::Absent) {
            return Finding::Skipped;
        }
        let rows = self.stripes.layout.all_rows();
        let data = (0..availability.columns).map(|column| Read { role: Role::Data { column, copy: 0 }, rows });
        let reads: SmallVec<[Read; 8]> =
            data.chain(readable_parities(&availability).map(|role| Read { role, rows })).collect();
        let Ok(loaded) = self.stripes.load(stripe, &reads, ReadWait::Unbounded).await else {
            return Finding::Unreadable;
        };
        // Reads come back in the order of the plan: data columns, then parities.
        let (data, parities) = loaded.split_at(usize::from(availability.columns));
        let columns: SmallVec<[View; 8]> = data.iter().map(|(_, view)| view.clone()).collect();
        let (p, q) = parity_of(&columns, rows);
        corrections.extend(self.wrong_parities(stripe, &availability, parities, (p, q)));
        if corrections.is_empty() { Finding::Right } else { Finding::Wrong }
    }

    /// Returns the writes for parities that are wrong or write-only.
    fn wrong_parities(
        &self,
        stripe: u64,
        availability: &Availability,
        found: &[(Read, View)],
        right: (View, View),
    ) -> Ops {
        let mut ops = Ops::new();
        for (role, state, right) in [(Role::P, availability.p, right.0), (Role::Q, availability.q, right.1)] {
            let old = found.iter().find(|(read, _)| read.role == role).map(|(_, view)| view);
            // A write-only parity was not read, so it is always rewritten.
            let is_right = state == Parity::Absent || old.is_some_and(|old| **old == *right);
            if !is_right {
                let member = self.stripes.layout.member_of(stripe, role);
                ops.push(Op::write(
                    member,
                    self.stripes.layout.member_extent(stripe, self.stripes.layout.all_rows()),
                    right,
                ));
            }
        }
        ops
    }

    /// Compares the mirrors of each column, and adds the writes that repair them to `corrections`.
    async fn compare_mirrors(&self, stripe: u64, corrections: &mut Ops) -> Finding {
        let mut worst = Finding::Skipped;
        for column in 0..self.stripes.layout.columns() {
            worst = worst.max(self.compare_column(stripe, column, corrections).await);
        }
        worst
    }

    /// Takes the first readable copy as correct; the others are rewritten, also unreadable ones.
    async fn compare_column(&self, stripe: u64, column: u16, corrections: &mut Ops) -> Finding {
        let (rows, write) = (self.stripes.layout.all_rows(), self.stripes.members.usable(stripe).write);
        let holders = (0..self.stripes.layout.copies())
            .map(|copy| self.stripes.layout.member_of(stripe, Role::Data { column, copy }));
        let holders: MemberSet = holders.filter(|&member| write.contains(member)).collect();
        // Nothing to compare with.
        if holders.len() < 2 {
            return Finding::Skipped;
        }
        let mut excluded = Excluded::default();
        let Ok(right) = self.stripes.content(stripe, Role::Data { column, copy: 0 }, rows, &mut excluded).await else {
            return Finding::Unreadable;
        };
        let extent = self.stripes.layout.member_extent(stripe, rows);
        let mut finding = Finding::Right;
        for member in holders.iter() {
            let found = match self.stripes.members.usable(stripe).read.contains(member) {
                true => self.stripes.read_member(member, extent, ReadWait::Unbounded).await,
                // A mirror being rebuilt is written here, too, but not read.
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

fn readable_parities(availability: &Availability) -> impl Iterator<Item = Role> + use<> {
    let states = [(Role::P, availability.p), (Role::Q, availability.q)];
    states.into_iter().filter(|&(_, state)| state == Parity::Readable).map(|(role, _)| role)
}
