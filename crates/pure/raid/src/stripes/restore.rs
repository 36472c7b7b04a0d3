//! The content of a chunk, also when the member that holds it cannot tell. The caller holds the stripe.

use crate::geometry::{Role, Rows, bytes};
use crate::members::Patience;
use crate::plan::{self, Parity, Read, Sight};
use crate::sabotage::{self, Bug};
use crate::stripes::{Blind, Stripes};
use block::{BlockDevice, Buf, IoError, IoErrorKind, View};
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::rc::Rc;

/// What was read, in the order of the reads.
pub(crate) type Loaded = SmallVec<[(Read, View); 8]>;
/// The rows of every data column, in order.
pub(crate) type Columns = SmallVec<[View; 8]>;

/// Why reads of a stripe did not all succeed: which members could not tell, and the first error.
#[derive(Debug)]
pub(crate) struct Blinded {
    pub(crate) members: Blind,
    pub(crate) error: IoError,
}

/// Rows of a chunk and their content, or why there is none; and the members that could not tell.
#[derive(Debug)]
pub(crate) struct Salvaged {
    pub(crate) rows: Rows,
    pub(crate) content: Result<View, IoError>,
    pub(crate) blind: Blind,
}

impl<D: BlockDevice + 'static> Stripes<D> {
    /// What can be read of `stripe`, not counting the members in `blind`.
    pub(crate) fn sight(&self, stripe: u64, blind: Blind) -> Sight {
        let usable = self.members.usable(stripe);
        let read = usable.read - blind.members();
        let parity = |role, there| match self.layout.member_of(stripe, role) {
            member if there && read.contains(member) => Parity::Readable,
            member if there && usable.write.contains(member) => Parity::WriteOnly,
            _ => Parity::Absent,
        };
        let parities = self.layout.level().parities();
        let columns = self.layout.columns();
        let holder = |column| self.layout.member_of(stripe, Role::Data { column, copy: 0 });
        let lost = (0..columns).filter(|&column| !read.contains(holder(column)));
        Sight {
            columns,
            lost: lost.fold(0, |lost, column| lost | 1 << column),
            p: parity(Role::P, parities >= 1),
            q: parity(Role::Q, parities == 2),
        }
    }

    /// Carries out the reads of a plan, all at once.
    pub(crate) async fn load(
        self: &Rc<Self>,
        stripe: u64,
        reads: &[Read],
        patience: Patience,
    ) -> Result<Loaded, Blinded> {
        let one = |read: Read| async move {
            let member = self.layout.member_of(stripe, read.role);
            let rope = self.read_member(member, self.layout.member_extent(stripe, read.rows), patience).await;
            (read, member, rope)
        };
        let mut loaded = Loaded::new();
        let mut blinded: Option<Blinded> = None;
        for (read, member, rope) in join_all(reads.iter().copied().map(one)).await {
            match rope {
                Ok(rope) => loaded.push((read, rope.into_view())),
                Err(error) => {
                    let known = blinded.get_or_insert(Blinded { members: Blind::default(), error });
                    known.members = known.members.with(member, error);
                }
            }
        }
        blinded.map_or(Ok(loaded), Err)
    }

    /// Every data column of `rows`, the lost ones computed. Members that cannot tell are put in `blind`.
    ///
    /// *Errors*: when more is lost than parity can give back.
    pub(crate) async fn columns(
        self: &Rc<Self>,
        stripe: u64,
        rows: Rows,
        blind: &mut Blind,
    ) -> Result<Columns, IoError> {
        let mut reason = IoError::new(IoErrorKind::Gone, self.layout.member_extent(stripe, rows));
        loop {
            let sight = self.sight(stripe, *blind);
            let Some(reads) = plan::restore(&sight, rows) else { return Err(reason) };
            match self.load(stripe, &reads, blind.patience()).await {
                Ok(loaded) => match self.disproved(stripe, &sight, rows, &loaded).await {
                    None => return Ok(complete(&sight, rows, loaded)),
                    Some(disproved) => {
                        *blind = blind.and(disproved.members);
                        reason = disproved.error;
                    }
                },
                Err(blinded) => {
                    *blind = blind.and(blinded.members);
                    reason = blinded.error;
                }
            }
        }
    }

    /// What `role` holds, or should hold, in `rows`. Members that cannot tell are put in `blind`.
    pub(crate) async fn content(
        self: &Rc<Self>,
        stripe: u64,
        role: Role,
        rows: Rows,
        blind: &mut Blind,
    ) -> Result<View, IoError> {
        self.admit_restoring(self.layout.member_of(stripe, role), self.layout.member_extent(stripe, rows)).await?;
        loop {
            let found = self.content_now(stripe, role, rows, blind).await;
            if found.is_ok() || !blind.waits_longer() {
                return found;
            }
        }
    }

    /// As [`Stripes::content`], from members that are not in `blind`.
    async fn content_now(
        self: &Rc<Self>,
        stripe: u64,
        role: Role,
        rows: Rows,
        blind: &mut Blind,
    ) -> Result<View, IoError> {
        let extent = self.layout.member_extent(stripe, rows);
        let mut reason = IoError::new(IoErrorKind::Gone, extent);
        if let Role::Data { column, .. } = role {
            for copy in 0..self.layout.copies() {
                let member = self.layout.member_of(stripe, Role::Data { column, copy });
                if !(self.members.usable(stripe).read - blind.members()).contains(member) {
                    continue;
                }
                let found = match sabotage::is(Bug::HealUnverified) {
                    true => self.members.read_data(member, extent, blind.patience()).await,
                    false => self.read_member(member, extent, blind.patience()).await,
                };
                match found {
                    Ok(rope) => return Ok(rope.into_view()),
                    Err(error) => {
                        reason = error;
                        *blind = blind.with(member, error);
                    }
                }
            }
        }
        if !self.layout.has_parity() {
            return Err(reason);
        }
        let mut columns = self.columns(stripe, rows, blind).await?;
        Ok(match role {
            Role::Data { column, .. } => columns.swap_remove(usize::from(column)),
            Role::P => parity_of(&columns, rows).0,
            Role::Q => parity_of(&columns, rows).1,
        })
    }

    /// What `role` holds in `rows`, block by block where not all of it can be had.
    pub(crate) async fn salvage(
        self: &Rc<Self>,
        stripe: u64,
        role: Role,
        rows: Rows,
        blind: Blind,
    ) -> SmallVec<[Salvaged; 1]> {
        assert!(rows.start < rows.end && rows.end <= self.layout.chunk_blocks(), "rows are of one chunk");
        let mut seen = blind;
        let content = self.content(stripe, role, rows, &mut seen).await;
        if content.is_ok() || rows.len() == 1 {
            return SmallVec::from_buf([Salvaged { rows, content, blind: seen }]);
        }
        // A member that failed over all rows may still tell some of them.
        let mut salvaged = SmallVec::new();
        for row in rows.start..rows.end {
            let (rows, mut blind) = (Rows::new(row, row + 1), Blind::default());
            let content = self.content(stripe, role, rows, &mut blind).await;
            salvaged.push(Salvaged { rows, content, blind });
        }
        salvaged
    }
}

/// P of all data columns, and Q where it is asked for.
pub(crate) fn parities_of(columns: &[View], rows: Rows, with_q: bool) -> (View, Option<View>) {
    if with_q {
        let (p, q) = parity_of(columns, rows);
        return (p, Some(q));
    }
    let mut p = Buf::recycled(bytes(rows.len()));
    let columns: SmallVec<[&[u8]; 16]> = columns.iter().map(|column| &**column).collect();
    simd::xor::xor(&columns, &mut p);
    (p.freeze(), None)
}

/// P and Q of all data columns.
pub(crate) fn parity_of(columns: &[View], rows: Rows) -> (View, View) {
    let len = bytes(rows.len());
    let (mut p, mut q) = (Buf::recycled(len), Buf::recycled(len));
    let columns: SmallVec<[Option<&[u8]>; 16]> = columns.iter().map(|column| Some(&**column)).collect();
    simd::parity::pq(&columns, &mut p, &mut q);
    (p.freeze(), q.freeze())
}

/// All data columns from what [`plan::restore`] had read.
pub(crate) fn complete(sight: &Sight, rows: Rows, loaded: Loaded) -> Columns {
    let mut columns: SmallVec<[Option<View>; 8]> = (0..sight.columns).map(|_| None).collect();
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
        let known: SmallVec<[Option<&[u8]>; 16]> = columns.iter().map(|column| column.as_deref()).collect();
        simd::parity::recover(&known, p.as_deref(), q.as_deref(), lost, &mut out)
            .expect("the reads were planned to be as many as there are columns");
        drop(known);
        columns[lost] = Some(out.freeze());
    }
    columns.into_iter().map(|column| column.expect("the lost columns were computed above")).collect()
}
