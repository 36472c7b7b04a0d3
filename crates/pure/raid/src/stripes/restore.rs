//! Reconstruction of chunk content from redundancy. The caller holds the lock of the stripe.

use crate::bug_injection::{self, InjectedBug};
use crate::geometry::{Role, Rows, bytes};
use crate::members::ReadWait;
use crate::plan::{self, Availability, Parity, Read};
use crate::stripes::{Excluded, Stripes};
use block::{BlockDevice, Buf, IoError, IoErrorKind, View};
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::rc::Rc;

/// Completed reads with their content, in the order of the plan.
pub(crate) type Loaded = SmallVec<[(Read, View); 8]>;
/// Content of every data column in some rows, in order.
pub(crate) type Columns = SmallVec<[View; 8]>;

/// Failed reads of a stripe: the members to exclude, and the first error.
#[derive(Debug)]
pub(crate) struct ReadsFailed {
    pub(crate) members: Excluded,
    pub(crate) error: IoError,
}

/// Result for some rows of a chunk: their content or an error, and the members that could not be read.
#[derive(Debug)]
pub(crate) struct Salvaged {
    pub(crate) rows: Rows,
    pub(crate) content: Result<View, IoError>,
    pub(crate) excluded: Excluded,
}

impl<D: BlockDevice + 'static> Stripes<D> {
    /// Determines which columns and parities of `stripe` are readable, without the members in `excluded`.
    pub(crate) fn availability(&self, stripe: u64, excluded: Excluded) -> Availability {
        let usable = self.members.usable(stripe);
        let read = usable.read - excluded.members();
        // `there` is compared first: in a level without the parity the role falls on a data member.
        let parity = |role, there| match self.layout.member_of(stripe, role) {
            member if there && read.contains(member) => Parity::Readable,
            member if there && usable.write.contains(member) => Parity::WriteOnly,
            _ => Parity::Absent,
        };
        let parities = self.layout.level().parities();
        let columns = self.layout.columns();
        let holder = |column| self.layout.member_of(stripe, Role::Data { column, copy: 0 });
        // Copy 0 only: levels with parity have a single copy.
        let lost = (0..columns).filter(|&column| !read.contains(holder(column)));
        Availability {
            columns,
            lost: lost.fold(0, |lost, column| lost | 1 << column),
            p: parity(Role::P, parities >= 1),
            q: parity(Role::Q, parities == 2),
        }
    }

    /// Executes the reads of a plan concurrently.
    pub(crate) async fn load(
        self: &Rc<Self>,
        stripe: u64,
        reads: &[Read],
        wait: ReadWait,
    ) -> Result<Loaded, ReadsFailed> {
        let one = |read: Read| async move {
            let member = self.layout.member_of(stripe, read.role);
            let rope = self.read_member(member, self.layout.member_extent(stripe, read.rows), wait).await;
            (read, member, rope)
        };
        let mut loaded = Loaded::new();
        let mut failed: Option<ReadsFailed> = None;
        // All reads are awaited, so that one new plan excludes every failed member.
        for (read, member, rope) in join_all(reads.iter().copied().map(one)).await {
            match rope {
                Ok(rope) => loaded.push((read, rope.into_view())),
                Err(error) => {
                    let known = failed.get_or_insert(ReadsFailed { members: Excluded::default(), error });
                    known.members = known.members.with(member, error);
                }
            }
        }
        failed.map_or(Ok(loaded), Err)
    }

    /// Returns every data column of `rows`, computing the lost ones. Unreadable members are added to `excluded`.
    ///
    /// *Errors*: when more is lost than parity can restore.
    pub(crate) async fn columns(
        self: &Rc<Self>,
        stripe: u64,
        rows: Rows,
        excluded: &mut Excluded,
    ) -> Result<Columns, IoError> {
        let mut reason = IoError::new(IoErrorKind::Gone, self.layout.member_extent(stripe, rows));
        loop {
            let availability = self.availability(stripe, *excluded);
            // Each round excludes at least one more member, so the loop ends.
            let Some(reads) = plan::restore(&availability, rows) else { return Err(reason) };
            match self.load(stripe, &reads, excluded.wait()).await {
                Ok(loaded) => match self.checksum_mismatch(stripe, &availability, rows, &loaded).await {
                    None => return Ok(complete(&availability, rows, loaded)),
                    Some(mismatch) => {
                        *excluded = excluded.and(mismatch.members);
                        reason = mismatch.error;
                    }
                },
                Err(failed) => {
                    *excluded = excluded.and(failed.members);
                    reason = failed.error;
                }
            }
        }
    }

    /// Returns what `role` holds, or should hold, in `rows`. Unreadable members are added to `excluded`.
    pub(crate) async fn content(
        self: &Rc<Self>,
        stripe: u64,
        role: Role,
        rows: Rows,
        excluded: &mut Excluded,
    ) -> Result<View, IoError> {
        // A block marked lost has no content anywhere; computing it would return garbage as data.
        self.admit_restoring(self.layout.member_of(stripe, role), self.layout.member_extent(stripe, rows)).await?;
        loop {
            let found = self.content_now(stripe, role, rows, excluded).await;
            if found.is_ok() || !excluded.waits_longer() {
                return found;
            }
        }
    }

    /// Reads as [`Stripes::content`], once, without the members in `excluded`.
    async fn content_now(
        self: &Rc<Self>,
        stripe: u64,
        role: Role,
        rows: Rows,
        excluded: &mut Excluded,
    ) -> Result<View, IoError> {
        let extent = self.layout.member_extent(stripe, rows);
        let mut reason = IoError::new(IoErrorKind::Gone, extent);
        if let Role::Data { column, .. } = role {
            for copy in 0..self.layout.copies() {
                let member = self.layout.member_of(stripe, Role::Data { column, copy });
                // Looked up for each copy, because a member may fail during the reads.
                if !(self.members.usable(stripe).read - excluded.members()).contains(member) {
                    continue;
                }
                let found = match bug_injection::is_injected(InjectedBug::HealUnverified) {
                    true => self.members.read_data(member, extent, excluded.wait()).await,
                    false => self.read_member(member, extent, excluded.wait()).await,
                };
                match found {
                    Ok(rope) => return Ok(rope.into_view()),
                    Err(error) => {
                        reason = error;
                        *excluded = excluded.with(member, error);
                    }
                }
            }
        }
        // All copies of a mirror have failed.
        if !self.layout.has_parity() {
            return Err(reason);
        }
        let mut columns = self.columns(stripe, rows, excluded).await?;
        Ok(match role {
            Role::Data { column, .. } => columns.swap_remove(usize::from(column)),
            Role::P => parity_of(&columns, rows).0,
            Role::Q => parity_of(&columns, rows).1,
        })
    }

    /// Returns the content of `role` in `rows`, row by row where it cannot be read as a whole.
    pub(crate) async fn salvage(
        self: &Rc<Self>,
        stripe: u64,
        role: Role,
        rows: Rows,
        excluded: Excluded,
    ) -> SmallVec<[Salvaged; 1]> {
        assert!(rows.start < rows.end && rows.end <= self.layout.chunk_blocks(), "rows are of one chunk");
        let mut seen = excluded;
        let content = self.content(stripe, role, rows, &mut seen).await;
        if content.is_ok() || rows.len() == 1 {
            return SmallVec::from_buf([Salvaged { rows, content, excluded: seen }]);
        }
        // A member that failed for all rows may still read some of them.
        let mut salvaged = SmallVec::new();
        for row in rows.start..rows.end {
            // Each row starts with all members readable: a bad block on one row says nothing about the next.
            let (rows, mut excluded) = (Rows::new(row, row + 1), Excluded::default());
            let content = self.content(stripe, role, rows, &mut excluded).await;
            salvaged.push(Salvaged { rows, content, excluded });
        }
        salvaged
    }
}

/// Computes P of all data columns, and Q if `with_q`.
pub(crate) fn parities_of(columns: &[View], rows: Rows, with_q: bool) -> (View, Option<View>) {
    if with_q {
        let (p, q) = parity_of(columns, rows);
        return (p, Some(q));
    }
    // P alone is an XOR, which is cheaper than the pass that computes both.
    let mut p = Buf::recycled(bytes(rows.len()));
    let columns: SmallVec<[&[u8]; 16]> = columns.iter().map(|column| &**column).collect();
    simd::xor::xor(&columns, &mut p);
    (p.freeze(), None)
}

/// Computes P and Q of all data columns.
pub(crate) fn parity_of(columns: &[View], rows: Rows) -> (View, View) {
    let len = bytes(rows.len());
    let (mut p, mut q) = (Buf::recycled(len), Buf::recycled(len));
    let columns: SmallVec<[Option<&[u8]>; 16]> = columns.iter().map(|column| Some(&**column)).collect();
    simd::parity::pq(&columns, &mut p, &mut q);
    (p.freeze(), q.freeze())
}

/// Completes the data columns from the reads that [`plan::restore`] had chosen.
pub(crate) fn complete(availability: &Availability, rows: Rows, loaded: Loaded) -> Columns {
    let mut columns: SmallVec<[Option<View>; 8]> = (0..availability.columns).map(|_| None).collect();
    let (mut p, mut q) = (None, None);
    for (read, view) in loaded {
        match read.role {
            Role::Data { column, .. } => columns[usize::from(column)] = Some(view),
            Role::P => p = Some(view),
            Role::Q => q = Some(view),
        }
    }
    for lost in 0..columns.len() {
        if columns[lost].is_some() {
            continue;
        }
        let mut out = Buf::recycled(bytes(rows.len()));
        // Each computed column counts as known for the next one.
        let known: SmallVec<[Option<&[u8]>; 16]> = columns.iter().map(|column| column.as_deref()).collect();
        simd::parity::recover(&known, p.as_deref(), q.as_deref(), lost, &mut out)
            .expect("the reads were planned to be as many as there are columns");
        drop(known);
        columns[lost] = Some(out.freeze());
    }
    columns.into_iter().map(|column| column.expect("the lost columns were computed above")).collect()
}
