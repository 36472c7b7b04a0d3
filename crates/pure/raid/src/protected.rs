//! Protected array: existing content is changed through the redo log, unwritten blocks are written directly to the
//! members.
//!
//! `change` logs a change and applies it in place, `unlogged` writes whole stripes without logging their content,
//! `discard` forgets blocks. docs/raid.md, "Protected arrays", has the order in which things become durable.

mod change;
mod discard;
mod unlogged;

use crate::bounds::BLOCK_BYTES;
use crate::bug_injection::{self, InjectedBug};
use crate::checksums::cache::Pins;
use crate::checksums::{Checksums, Pages};
use crate::geometry::{Layout, Role, Rows, Span, bands, bytes};
use crate::locks::Locks;
use crate::members::{Change, Member, Members, Op, Ops};
use crate::protected::change::LoggedChange;
use crate::redo::{LogState, RedoLog};
use crate::shape::Options;
use crate::status::{ProtectionStatus, Tally};
use crate::stripes::{Protection, Stripes, parities_of};
use block::{BlockDevice, Extent, IoError, Rope, Stable, View, Written};
use futures_util::stream::{self, StreamExt};
use shard::{Detached, RangeGuard, Spawn};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// Parts of one command that are written concurrently.
const PARTS_AT_ONCE: usize = 16;

/// Requirement of a writer on the old content of the blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OldContent {
    /// A crash before the write is durable may leave the old content.
    Preserve,
    /// The old content is dead: a crash may leave the blocks unwritten.
    Dead,
}

/// Protected array in one layout. A command keeps the layout that it started with.
pub(crate) struct Protected<D> {
    pub(crate) layout: Layout,
    pub(crate) members: Rc<Members<D>>,
    pub(crate) stripes: Rc<Stripes<D>>,
    pub(crate) checksums: Rc<Checksums<D>>,
    pub(crate) log: Rc<RedoLog<D>>,
    pub(crate) locks: Locks,
    pub(crate) background: Rc<Detached>,
    pub(crate) commands: Rc<Commands>,
}

/// State shared by all layouts of a protected array, beside its members.
pub(crate) struct Shared {
    pub(crate) pages: Rc<Pages>,
    pub(crate) log: Rc<LogState>,
    pub(crate) locks: Locks,
    pub(crate) background: Rc<Detached>,
    pub(crate) tally: Rc<Tally>,
    pub(crate) commands: Rc<Commands>,
}

/// Bookkeeping of unfinished commands of a protected array.
#[derive(Default)]
pub(crate) struct Commands {
    unlogged: unlogged::Unlogged,
    /// Changes that were acknowledged from the log and are not in place yet.
    pending_in_place: Cell<u32>,
    /// True while a growth or a new member changes the shape; only one may at a time.
    pub(crate) growing: Cell<bool>,
    /// Spawns a detached task that runs to its end; from [`Options::spawn`].
    spawn: Option<Spawn>,
    /// False where members without a volatile cache may tear a block at a power cut.
    blocks_are_atomic: bool,
}

impl Commands {
    /// No commands are in flight.
    pub(crate) fn new(options: &Options) -> Self {
        let (spawn, blocks_are_atomic) = (options.spawn.clone(), options.blocks_are_atomic);
        Self { spawn, blocks_are_atomic, ..Self::default() }
    }

    /// Stripes written fresh whose entries are not in the log yet.
    pub(crate) fn fresh_stripes(&self) -> u64 {
        self.unlogged.len() as u64
    }
}

impl<D: BlockDevice + 'static> Protected<D> {
    /// The array of these members, with checksums and log for their layout.
    pub(crate) fn new(members: Members<D>, shared: Shared) -> Self {
        let Shared { pages, log, locks, background, tally, commands } = shared;
        let (layout, members) = (members.layout, Rc::new(members));
        let checksums = Rc::new(Checksums::new(members.clone(), pages));
        let log = Rc::new(RedoLog::new(members.clone(), checksums.clone(), background.clone(), log));
        // Stripes verify and log through these, so reads with redundancy obey the same rules as writes.
        let protection = Protection { checksums: checksums.clone(), log: log.clone() };
        let stripes = Stripes::new(members.clone(), locks.clone(), background.clone(), tally, Some(protection));
        Self { layout, members, stripes: Rc::new(stripes), checksums, log, locks, background, commands }
    }

    /// The same array in another layout, or with other places; shares pages, log, locks and counters.
    pub(crate) fn reshaped(&self, layout: Layout, places: Box<[Rc<Member<D>>]>) -> Self {
        let shared = Shared {
            pages: self.checksums.pages.clone(),
            log: self.log.state.clone(),
            locks: self.locks.clone(),
            background: self.background.clone(),
            tally: self.stripes.tally.clone(),
            commands: self.commands.clone(),
        };
        Self::new(self.members.reshaped(layout, places), shared)
    }

    pub(crate) fn read(&self, extent: Extent) -> impl Future<Output = Result<Rope, IoError>> {
        self.stripes.read(extent)
    }

    pub(crate) fn protection_status(&self) -> ProtectionStatus {
        let (cache, log) = (self.checksums.pages.cache.borrow(), &self.log.state);
        ProtectionStatus {
            log_blocks: log.ring.blocks,
            log_filled_blocks: log.ring.filled(),
            // Batches are numbered from 1.
            batches: log.ring.head().number.saturating_sub(1),
            checkpoints: log.checkpoints(),
            pages_held: cache.held() as u64,
            pages_dirty: cache.dirty() as u64,
            fresh_stripes: self.commands.fresh_stripes(),
        }
    }

    /// Makes every completed write durable.
    pub(crate) async fn flush(self: &Rc<Self>) -> Result<Stable, IoError> {
        let everything = Extent { start: block::Lba(0), len: self.layout.blocks() };
        self.members.serving(everything)?;
        // Overwrites are in the log since they completed; the entries of fresh writes are logged now.
        self.log_unlogged().await?;
        // A member that failed before this flush must not return with data that this flush confirms as durable
        // elsewhere.
        self.members.failures_recorded(everything).await?;
        Ok(Stable::attest())
    }

    /// Logs and executes the writes row by row, under `guard`: a whole stripe may be too large for one batch.
    pub(crate) async fn change_rows(self: &Rc<Self>, part: &Span, ops: Ops, guard: RangeGuard) -> Result<(), IoError> {
        let mut pins = Pins::new(&self.checksums.pages.cache);
        let mut changes = Vec::new();
        for op in ops {
            self.checksums.hold_more(&mut pins, op.member, op.extent()).await;
            let extent = op.extent();
            // Only writes have entries; a discard goes through `discard`.
            let Change::Write(content) = op.change else { continue };
            for n in 0..extent.len.0 {
                let row =
                    Op::write(op.member, Extent::new(extent.start.0 + n, 1), content.slice(bytes(n)..bytes(n + 1)));
                changes.push(LoggedChange::new(self, part, Ops::from_iter([row]), Vec::new()));
            }
        }
        let own = self.clone();
        let work = async move {
            let mut done = Ok(());
            // A failed row does not end the others: each row is consistent by itself.
            for change in changes {
                done = done.and(own.commit_and_apply(change).await);
            }
            drop((pins, guard));
            done
        };
        self.background.finish(work).await
    }

    pub(crate) async fn write(
        self: &Rc<Self>,
        extent: Extent,
        data: View,
        old: OldContent,
    ) -> Result<Written, IoError> {
        self.stripes.tally.add(|counters| counters.writes += 1);
        self.members.serving(extent)?;
        let mut parts = self.layout.spans(extent).flat_map(|span| self.parts(span));
        let write = |part: Span| {
            let data = data.slice(bytes(part.at)..bytes(part.at + part.extent.len.0));
            self.write_part(part, data, old)
        };
        let mut result = Ok(());
        if let Some(first) = parts.next() {
            // The common case of one part needs no stream.
            if first.extent == extent {
                result = write(first).await;
            } else {
                let all = std::iter::once(first).chain(parts);
                let mut all = stream::iter(all).map(write).buffer_unordered(PARTS_AT_ONCE);
                while let Some(one) = all.next().await {
                    result = result.and(one);
                }
            }
        }
        result?;
        self.members.failures_recorded(extent).await?;
        Ok(Written::attest())
    }

    /// Splits a span into parts that fit into a batch; whole stripes stay together, because they may be written
    /// fresh.
    fn parts(&self, span: Span) -> impl Iterator<Item = Span> + use<D> {
        let (stripe, chunk) = (self.layout.stripe_blocks(), self.layout.chunk_blocks());
        let ring = &self.log.state.ring;
        // Whole stripes may be written fresh, which needs no batch for their content.
        let is_whole = (span.extent.start.0 % stripe, span.extent.end().0 % stripe) == (0, 0);
        let most = if is_whole { span.extent.len.0 } else { self.logged_blocks_max(ring.batch_blocks_max()) };
        let columns = self.layout.columns();
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = span.extent.start.0 + at;
            let len = most.min(span.extent.len.0 - at);
            let extent = Extent::new(start, len);
            let part = Span { stripes: start / stripe..extent.end().0.div_ceil(stripe), extent, at: span.at + at };
            assert!(
                columns == 1 || part.stripes.end - part.stripes.start <= 1 || chunk == 0,
                "a part is of one stripe"
            );
            at += len;
            (len > 0).then_some(part)
        })
    }

    /// Blocks of data that fit into one batch, together with their parity or mirrors and their records.
    fn logged_blocks_max(&self, batch_blocks: u64) -> u64 {
        let block = u64::from(BLOCK_BYTES);
        let (copies, parities) = (u64::from(self.layout.copies()), u64::from(self.layout.level().parities()));
        // Worst case: a record for each block and copy.
        let each = (block + 32 * copies) * (1 + parities);
        // Cannot underflow: the smallest ring has 32 blocks, and a batch a quarter of it.
        ((batch_blocks - 3) * block / each).max(1)
    }

    /// Rows to lock for a part, in all of its columns, counted as [`Locks`] counts them.
    fn rows_of_part(&self, part: &Span) -> Range<u64> {
        let chunk = self.layout.chunk_blocks();
        let first = self.layout.locate(part.extent.start);
        // Within one column the rows are exact, so neighboring small writes do not exclude each other.
        let one_column = self.layout.columns() == 1 || first.row + part.extent.len.0 <= chunk;
        if one_column {
            let start = first.stripe * chunk + first.row;
            return start..start + part.extent.len.0;
        }
        part.stripes.start * chunk..part.stripes.end * chunk
    }

    async fn write_part(self: &Rc<Self>, part: Span, data: View, old: OldContent) -> Result<(), IoError> {
        assert!(part.stripes.end <= self.layout.stripes(), "a write is within the array");
        assert_eq!(data.len(), bytes(part.extent.len.0), "data fills its part");
        let guard = self.locks.rows_exclusive(self.rows_of_part(&part)).await;
        self.members.serving(part.extent)?;
        // An overwrite must not be logged before the fresh entries it replaces.
        self.settle_stripes(&part.stripes).await?;
        let is_whole = part.extent.len.0 == (part.stripes.end - part.stripes.start) * self.layout.stripe_blocks();
        if is_whole {
            let pins = self.checksums.hold_stripes(&part.stripes).await;
            // Decided with the rows locked and the pages pinned. There is no old content that a crash would have to
            // preserve, so the new content need not be logged.
            if old == OldContent::Dead || self.checksums.is_unwritten(&part.stripes) {
                return self.write_unlogged_stripes(part, data, pins, guard).await;
            }
            drop(pins);
            if part.extent.len.0 > self.logged_blocks_max(self.log.state.ring.batch_blocks_max()) {
                // The halves lock for themselves.
                drop(guard);
                return self.write_in_halves(part, data, old).await;
            }
        }
        self.overwrite(&part, &data, guard).await
    }

    /// Splits whole stripes whose images do not fit into one batch.
    async fn write_in_halves(self: &Rc<Self>, part: Span, data: View, old: OldContent) -> Result<(), IoError> {
        // A crash between the halves leaves one of them written, as with any multi-block write.
        let half = part.extent.len.0 / 2;
        let stripe = self.layout.stripe_blocks();
        let of = |at: u64, len: u64| {
            let extent = Extent::new(part.extent.start.0 + at, len);
            let stripes = extent.start.0 / stripe..extent.end().0.div_ceil(stripe);
            (Span { stripes, extent, at: part.at + at }, data.slice(bytes(at)..bytes(at + len)))
        };
        let ((one, first), (two, second)) = (of(0, half), of(half, part.extent.len.0 - half));
        Box::pin(self.write_cut(one, first, old)).await?;
        Box::pin(self.write_cut(two, second, old)).await
    }

    async fn write_cut(self: &Rc<Self>, part: Span, data: View, old: OldContent) -> Result<(), IoError> {
        let most = self.log.state.ring.batch_blocks_max();
        if part.extent.len.0 > self.logged_blocks_max(most) {
            return self.write_in_halves(part, data, old).await;
        }
        self.write_part(part, data, old).await
    }

    /// Logs pending fresh writes of these stripes. The caller holds the rows.
    pub(crate) async fn settle_stripes(self: &Rc<Self>, stripes: &Range<u64>) -> Result<(), IoError> {
        while self.commands.unlogged.holds(stripes)
            && !bug_injection::is_injected(InjectedBug::OverwriteBeforeFreshLogged)
        {
            self.log_unlogged().await?;
        }
        Ok(())
    }

    /// Changes blocks through the log. The guard is held until the change is in place.
    async fn overwrite(self: &Rc<Self>, part: &Span, data: &View, guard: RangeGuard) -> Result<(), IoError> {
        let mut pins = Pins::new(&self.checksums.pages.cache);
        let (mut ops, unknown) = if self.layout.has_parity() {
            self.ops_with_parity(part, data, &mut pins).await?
        } else {
            (self.mirrored_all(part, data), Vec::new())
        };
        // Pinned until the change is in place: entries are set only in pages that are in memory.
        for op in &ops {
            self.checksums.hold_more(&mut pins, op.member, op.extent()).await;
        }
        if bug_injection::is_injected(InjectedBug::WrongParity) {
            self.spoil_parity(&mut ops);
        }
        // Entries are chosen with the rows locked, so no other change can take the same generation.
        let change = LoggedChange::new(self, part, ops, unknown);
        let own = self.clone();
        let work = async move { own.commit_then_apply(change, (pins, guard)).await };
        self.background.finish(work).await
    }

    /// Flips a bit of every parity; planted by tests that must detect it.
    fn spoil_parity(&self, ops: &mut Ops) {
        for op in ops {
            let role = self.layout.role_of(op.start.0 / self.layout.chunk_blocks(), op.member);
            if let (Role::P, Change::Write(view)) = (role, &mut op.change) {
                let mut spoilt = view.clone().into_buf();
                spoilt[9] ^= 1;
                *view = spoilt.freeze();
            }
        }
    }

    /// Returns the writes of data and parity, also for absent members, and the parity extents of absent members that
    /// were not computed.
    async fn ops_with_parity(
        self: &Rc<Self>,
        part: &Span,
        data: &View,
        pins: &mut Pins,
    ) -> Result<(Ops, Vec<(u16, Extent)>), IoError> {
        let stripe = part.stripes.start;
        let ops = self.stripes.plan_stripe(part, data).await?;
        let offset = part.extent.start.0 - stripe * self.layout.stripe_blocks();
        let mut unknown = Vec::new();
        for band in bands(self.layout.chunk_blocks(), offset, part.extent.len.0) {
            for role in self.layout.parity_roles() {
                let (member, extent) =
                    (self.layout.member_of(stripe, role), self.layout.member_extent(stripe, band.rows));
                // The parity was not computed because its member is absent; without a record it would look current
                // later.
                if !ops.iter().any(|op| op.member == member && op.extent().overlaps(extent)) {
                    self.checksums.hold_more(pins, member, extent).await;
                    unknown.push((member, extent));
                }
            }
        }
        Ok((ops, unknown))
    }

    /// Returns the writes to every copy, also of absent members: the log takes their entries.
    fn mirrored_all(&self, part: &Span, data: &View) -> Ops {
        let mut ops = Ops::new();
        for piece in self.layout.pieces(part.extent) {
            let view = data.slice(bytes(piece.at)..bytes(piece.at + piece.blocks));
            for copy in 0..self.layout.copies() {
                let member =
                    self.layout.member_of(piece.position.stripe, Role::Data { column: piece.position.column, copy });
                ops.push(Op::write(member, self.stripes.member_extent(&piece), view.clone()));
            }
        }
        ops
    }

    /// Returns the writes of all chunks of whole stripes: data and parity.
    pub(crate) fn whole_ops(&self, part: &Span, data: &View) -> Ops {
        if !self.layout.has_parity() {
            return self.mirrored_all(part, data);
        }
        let (stripe, chunk) = (part.stripes.start, self.layout.chunk_blocks());
        let rows = Rows::new(0, chunk);
        // Slices of the caller's buffer: data is never copied, only parity is new.
        let column = |n: u16| data.slice(bytes(u64::from(n) * chunk)..bytes(u64::from(n + 1) * chunk));
        let columns: Vec<View> = (0..self.layout.columns()).map(column).collect();
        let extent = self.layout.member_extent(stripe, rows);
        let of = |role, view| Op::write(self.layout.member_of(stripe, role), extent, view);
        let (p, q) = parities_of(&columns, rows, self.layout.level().parities() == 2);
        let data = (0..).zip(columns).map(|(column, view)| of(Role::Data { column, copy: 0 }, view));
        data.chain([of(Role::P, p)]).chain(q.map(|q| of(Role::Q, q))).collect()
    }
}
