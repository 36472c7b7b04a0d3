//! Writes: to every copy, or with parity kept right; one stripe's writes under its lock, to the end.

mod parity;

use crate::array::Core;
use crate::geometry::{Band, MemberSet, Role, Rows, Span, Touch, bands, bytes};
use crate::members::{Op, Ops};
use crate::plan::{self, Kind, Parity, Sight};
use crate::restore::{Columns, Loaded, complete};
use block::{BlockDevice, Extent, IoError, IoErrorKind, View, Written};
use futures_util::stream::{self, StreamExt};
use std::rc::Rc;

/// Stripes of one command that are written at once.
const STRIPES_AT_ONCE: usize = 16;

impl<D: BlockDevice + 'static> Core<D> {
    pub(crate) async fn write(self: &Rc<Self>, extent: Extent, data: View) -> Result<Written, IoError> {
        self.tally.add(|counters| counters.writes += 1);
        self.members.serving(extent)?;
        self.for_spans(extent, |span| {
            let part = data.slice(bytes(span.at)..bytes(span.at + span.extent.len.0));
            self.write_span(span, part)
        })
        .await?;
        self.members.failures_recorded(extent).await?;
        Ok(Written::attest())
    }

    /// Does `work` for every span of `extent`, several at once; the first error when all have ended.
    pub(crate) async fn for_spans<F>(&self, extent: Extent, work: impl Fn(Span) -> F) -> Result<(), IoError>
    where
        F: Future<Output = Result<(), IoError>>,
    {
        let mut spans = self.layout.spans(extent);
        let Some(first) = spans.next() else { return Ok(()) };
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

    async fn write_span(self: &Rc<Self>, span: Span, data: View) -> Result<(), IoError> {
        if self.is_bare() {
            return self.carry_out_bare(self.mirrored(&span, &data), span.extent).await;
        }
        let guard = self.locks.exclusive(span.stripes.clone()).await;
        self.members.serving(span.extent)?;
        let ops =
            if self.layout.has_parity() { self.striped(&span, &data).await? } else { self.mirrored(&span, &data) };
        self.carry_out(ops, guard, span.extent).await
    }

    /// The writes to every copy, one for each run that is contiguous on a member.
    fn mirrored(&self, span: &Span, data: &View) -> Ops {
        let mut ops = Ops::new();
        for piece in self.layout.pieces(span.extent) {
            let first = piece.place.stripe;
            let first_row = self.layout.member_extent(first, self.layout.all_rows()).start.0 + piece.place.row;
            for copy in 0..self.layout.copies() {
                let member = self.layout.member_of(first, Role::Data { column: piece.place.column, copy });
                for run in self.members.written_runs(member, Extent::new(first_row, piece.blocks)) {
                    let at = piece.at + run.start.0 - first_row;
                    ops.push(Op::write(member, run, data.slice(bytes(at)..bytes(at + run.len.0))));
                }
            }
        }
        ops
    }

    /// The writes of data and parity to one stripe, after the reads that they need.
    pub(crate) async fn striped(self: &Rc<Self>, span: &Span, data: &View) -> Result<Ops, IoError> {
        let stripe = span.stripes.start;
        let offset = span.extent.start.0 - stripe * self.layout.stripe_blocks();
        let mut ops = Ops::new();
        for band in bands(self.layout.chunk_blocks(), offset, span.extent.len.0) {
            ops.extend(self.banded(stripe, &band, data).await.map_err(|error| {
                let kind = if self.members.stopped_by().is_some() { IoErrorKind::Gone } else { IoErrorKind::Medium };
                IoError { kind, extent: span.extent, member: error.member }
            })?);
        }
        Ok(ops)
    }

    /// Plans again, without them, as long as members turn out not to be readable.
    async fn banded(self: &Rc<Self>, stripe: u64, band: &Band, data: &View) -> Result<Ops, IoError> {
        let mut blind = MemberSet::NONE;
        let mut reason = IoError::new(IoErrorKind::Medium, Extent::default());
        loop {
            let sight = self.sight(stripe, blind);
            let Some(plan) = plan::choose(band, &sight) else { return Err(reason) };
            match self.load(stripe, &plan.reads).await {
                Ok(loaded) => {
                    if plan.kind == Kind::Restore
                        && let Some(disproved) = self.disproved(stripe, &sight, band.rows, &loaded).await
                    {
                        blind = disproved.beside(blind);
                        reason = disproved.error;
                        continue;
                    }
                    let ops = self.writes_of(stripe, band, data, (plan.kind, &sight), loaded);
                    self.tally.plan(plan.kind, plan.reads.len(), ops.len());
                    return Ok(ops);
                }
                Err(blinded) => {
                    blind = blinded.beside(blind);
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
            if write.contains(member) || self.protected.is_some() {
                // The log takes what absent members should hold, too.
                ops.push(Op::write(member, self.layout.member_extent(stripe, rows), view));
            }
        };
        for touch in &band.touches {
            add(Role::Data { column: touch.column, copy: 0 }, touch.rows, new_content(data, touch));
        }
        let (p, q) = match kind {
            Kind::Unprotected => (None, None),
            Kind::ReadModifyWrite => parity::changed(band, data, loaded),
            Kind::FullStripe | Kind::Reconstruct => self.computed(band, data, sight, &loaded),
            Kind::Restore => {
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
        parity::computed(band, data, old, (p, q))
    }
}

/// The bytes that `touch` writes.
fn new_content(data: &View, touch: &Touch) -> View {
    data.slice(bytes(touch.at)..bytes(touch.at + touch.rows.len()))
}

fn as_loaded(columns: Columns, rows: Rows) -> Loaded {
    let read = |column| plan::Read { role: Role::Data { column, copy: 0 }, rows };
    (0..).zip(columns).map(|(column, view)| (read(column), view)).collect()
}
