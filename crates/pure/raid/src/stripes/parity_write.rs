//! Stripe writes with parity: reads what the plan needs and returns the member writes.

use crate::geometry::{Band, ColumnWrite, Role, Rows, Span, bands, bytes};
use crate::members::{Op, Ops};
use crate::plan::{self, Availability, Kind, Parity};
use crate::stripes::restore::{Columns, Loaded, complete};
use crate::stripes::{Excluded, Stripes};
use block::{BlockDevice, Extent, IoError, IoErrorKind, View};
use futures_util::stream::{self, StreamExt};
use std::rc::Rc;

/// Stripes of one command that are written concurrently.
const STRIPES_AT_ONCE: usize = 16;

impl<D: BlockDevice + 'static> Stripes<D> {
    /// Runs `work` for every span of `extent`, several at once; returns the first error after all have ended.
    pub(crate) async fn for_spans<F>(&self, extent: Extent, work: impl Fn(Span) -> F) -> Result<(), IoError>
    where
        F: Future<Output = Result<(), IoError>>,
    {
        let mut spans = self.layout.spans(extent);
        let Some(first) = spans.next() else { return Ok(()) };
        // The common case of one span needs no stream.
        if first.extent == extent {
            return work(first).await;
        }
        let mut all = stream::iter(std::iter::once(first).chain(spans)).map(work).buffer_unordered(STRIPES_AT_ONCE);
        let mut result = Ok(());
        while let Some(one) = all.next().await {
            result = result.and(one);
        }
        result
    }

    /// Returns the writes of data and parity to one stripe, after the reads that they need.
    pub(crate) async fn plan_stripe(self: &Rc<Self>, span: &Span, data: &View) -> Result<Ops, IoError> {
        let stripe = span.stripes.start;
        assert_eq!(span.stripes.end, stripe + 1, "parity is kept within one stripe");
        let offset = span.extent.start.0 - stripe * self.layout.stripe_blocks();
        let mut ops = Ops::new();
        for band in bands(self.layout.chunk_blocks(), offset, span.extent.len.0) {
            ops.extend(self.plan_band(stripe, &band, data).await.map_err(|error| {
                // The error of a member read means that the array is stopped, or that just these blocks cannot be
                // reconstructed.
                let kind = if self.members.stopped_by().is_some() { IoErrorKind::Gone } else { IoErrorKind::Medium };
                IoError { kind, extent: span.extent, member: error.member }
            })?);
        }
        Ok(ops)
    }

    /// Plans a band and does its reads; plans again without members that turn out to be unreadable.
    async fn plan_band(self: &Rc<Self>, stripe: u64, band: &Band, data: &View) -> Result<Ops, IoError> {
        let mut excluded = Excluded::default();
        let mut reason = IoError::new(IoErrorKind::Medium, Extent::default());
        loop {
            let availability = self.availability(stripe, excluded);
            // Too much is excluded for any plan.
            let Some(plan) = plan::choose(band, &availability) else {
                if excluded.waits_longer() {
                    continue;
                }
                return Err(reason);
            };
            match self.load(stripe, &plan.reads, excluded.wait()).await {
                Ok(loaded) => {
                    // A column computed from parity must match its checksum before new parity is computed from it.
                    if plan.kind == Kind::Restore
                        && let Some(mismatch) = self.checksum_mismatch(stripe, &availability, band.rows, &loaded).await
                    {
                        excluded = excluded.and(mismatch.members);
                        // The parity that led to wrong content is excluded, and the band is planned again.
                        reason = mismatch.error;
                        continue;
                    }
                    let ops = self.writes_of(stripe, band, data, (plan.kind, &availability), loaded);
                    self.tally.plan(plan.kind, plan.reads.len(), ops.len());
                    return Ok(ops);
                }
                Err(failed) => {
                    excluded = excluded.and(failed.members);
                    reason = failed.error;
                }
            }
        }
    }

    fn writes_of(&self, stripe: u64, band: &Band, data: &View, plan: (Kind, &Availability), loaded: Loaded) -> Ops {
        let (kind, availability) = plan;
        let mut ops = Ops::new();
        let write = self.members.usable(stripe).write;
        let mut add = |role, rows, view| {
            let member = self.layout.member_of(stripe, role);
            if write.contains(member) || self.protection.is_some() {
                // A protected array logs the content of absent members, too.
                ops.push(Op::write(member, self.layout.member_extent(stripe, rows), view));
            }
        };
        for column_write in &band.writes {
            add(
                Role::Data { column: column_write.column, copy: 0 },
                column_write.rows,
                new_content(data, column_write),
            );
        }
        let (p, q) = match kind {
            Kind::Unprotected => (None, None),
            // Only parities that were read are updated; an absent one is skipped.
            Kind::ReadModifyWrite => super::parity::changed(band, data, loaded),
            Kind::FullStripe | Kind::Reconstruct => self.computed(band, data, availability, &loaded),
            Kind::Restore => {
                // The lost column is reconstructed first: the new parity must cover its old content, too.
                let columns = complete(availability, band.rows, loaded);
                self.computed(band, data, availability, &as_loaded(columns, band.rows))
            }
        };
        for (role, view) in [(Role::P, p), (Role::Q, q)] {
            if let Some(view) = view {
                add(role, band.rows, view);
            }
        }
        ops
    }

    fn computed(
        &self,
        band: &Band,
        data: &View,
        availability: &Availability,
        old: &Loaded,
    ) -> (Option<View>, Option<View>) {
        let (p, q) = (availability.p != Parity::Absent, availability.q != Parity::Absent);
        super::parity::computed(band, data, old, (p, q))
    }
}

/// New content of `column_write`, as a slice of the written data.
pub(super) fn new_content(data: &View, column_write: &ColumnWrite) -> View {
    data.slice(bytes(column_write.at)..bytes(column_write.at + column_write.rows.len()))
}

fn as_loaded(columns: Columns, rows: Rows) -> Loaded {
    let read = |column| plan::Read { role: Role::Data { column, copy: 0 }, rows };
    (0..).zip(columns).map(|(column, view)| (read(column), view)).collect()
}
