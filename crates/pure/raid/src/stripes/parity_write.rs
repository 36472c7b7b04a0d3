//! Stripe writes with parity: reads what the plan needs and returns the member writes.

use crate::geometry::{Band, Role, Rows, Span, Touch, bands, bytes};
use crate::members::{Op, Ops};
use crate::plan::{self, Kind, Parity, Sight};
use crate::stripes::restore::{Columns, Loaded, complete};
use crate::stripes::{Blind, Stripes};
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
    pub(crate) async fn striped(self: &Rc<Self>, span: &Span, data: &View) -> Result<Ops, IoError> {
        let stripe = span.stripes.start;
        assert_eq!(span.stripes.end, stripe + 1, "parity is kept within one stripe");
        let offset = span.extent.start.0 - stripe * self.layout.stripe_blocks();
        let mut ops = Ops::new();
        for band in bands(self.layout.chunk_blocks(), offset, span.extent.len.0) {
            ops.extend(self.banded(stripe, &band, data).await.map_err(|error| {
                // The error of a member read means that the array is stopped, or that just these blocks cannot be
                // reconstructed.
                let kind = if self.members.stopped_by().is_some() { IoErrorKind::Gone } else { IoErrorKind::Medium };
                IoError { kind, extent: span.extent, member: error.member }
            })?);
        }
        Ok(ops)
    }

    /// Plans a band and does its reads; plans again without members that turn out to be unreadable.
    async fn banded(self: &Rc<Self>, stripe: u64, band: &Band, data: &View) -> Result<Ops, IoError> {
        let mut blind = Blind::default();
        let mut reason = IoError::new(IoErrorKind::Medium, Extent::default());
        loop {
            let sight = self.sight(stripe, blind);
            // Too much is excluded for any plan.
            let Some(plan) = plan::choose(band, &sight) else {
                if blind.waits_longer() {
                    continue;
                }
                return Err(reason);
            };
            match self.load(stripe, &plan.reads, blind.patience()).await {
                Ok(loaded) => {
                    // A column computed from parity must match its checksum before new parity is computed from it.
                    if plan.kind == Kind::Restore
                        && let Some(disproved) = self.disproved(stripe, &sight, band.rows, &loaded).await
                    {
                        blind = blind.and(disproved.members);
                        // The parity that led to wrong content is excluded, and the band is planned again.
                        reason = disproved.error;
                        continue;
                    }
                    let ops = self.writes_of(stripe, band, data, (plan.kind, &sight), loaded);
                    self.tally.plan(plan.kind, plan.reads.len(), ops.len());
                    return Ok(ops);
                }
                Err(blinded) => {
                    blind = blind.and(blinded.members);
                    reason = blinded.error;
                }
            }
        }
    }

    fn writes_of(&self, stripe: u64, band: &Band, data: &View, plan: (Kind, &Sight), loaded: Loaded) -> Ops {
        let (kind, sight) = plan;
        let mut ops = Ops::new();
        let write = self.members.usable(stripe).write;
        let mut add = |role, rows, view| {
            let member = self.layout.member_of(stripe, role);
            if write.contains(member) || self.protection.is_some() {
                // A protected array logs the content of absent members, too.
                ops.push(Op::write(member, self.layout.member_extent(stripe, rows), view));
            }
        };
        for touch in &band.touches {
            add(Role::Data { column: touch.column, copy: 0 }, touch.rows, new_content(data, touch));
        }
        let (p, q) = match kind {
            Kind::Unprotected => (None, None),
            // Only parities that were read are updated; an absent one is skipped.
            Kind::ReadModifyWrite => super::parity::changed(band, data, loaded),
            Kind::FullStripe | Kind::Reconstruct => self.computed(band, data, sight, &loaded),
            Kind::Restore => {
                // The lost column is reconstructed first: the new parity must cover its old content, too.
                let columns = complete(sight, band.rows, loaded);
                self.computed(band, data, sight, &as_loaded(columns, band.rows))
            }
        };
        for (role, view) in [(Role::P, p), (Role::Q, q)] {
            if let Some(view) = view {
                add(role, band.rows, view);
            }
        }
        ops
    }

    fn computed(&self, band: &Band, data: &View, sight: &Sight, old: &Loaded) -> (Option<View>, Option<View>) {
        let (p, q) = (sight.p != Parity::Absent, sight.q != Parity::Absent);
        super::parity::computed(band, data, old, (p, q))
    }
}

/// New content of `touch`, as a slice of the written data.
pub(super) fn new_content(data: &View, touch: &Touch) -> View {
    data.slice(bytes(touch.at)..bytes(touch.at + touch.rows.len()))
}

fn as_loaded(columns: Columns, rows: Rows) -> Loaded {
    let read = |column| plan::Read { role: Role::Data { column, copy: 0 }, rows };
    (0..).zip(columns).map(|(column, view)| (read(column), view)).collect()
}
