//! A protected array's beginning, opening and end; and a member's return.

use crate::array::{Array, Core};
use crate::bounds::{BLOCK_BYTES, MEMBERS_MAX};
use crate::error::ArrayError;
use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::{Layout, MemberSet};
use crate::locks::Locks;
use crate::members::{FailureLog, Member, MemberState, Members, Services, admit};
use crate::on_disk::anchor::{Anchor, WRITTEN_BLOCKS};
use crate::on_disk::area::{Area, ring_blocks};
use crate::on_disk::page;
use crate::on_disk::page::PageId;
use crate::on_disk::regions::Regions;
use crate::on_disk::segments::Segments;
use crate::protect::{Options, Protected, Shape};
use crate::redo::ring::Head;
use crate::sabotage::{self, Bug};
use crate::scrub::{Repair, Scrubbed};
use crate::status::Tally;
use crate::verify::Progress;
use block::{BlockDevice, Blocks, Extent, IoError, IoErrorKind, Rope, Stable, View, Written};
use futures_util::future::join_all;
use shard::{Detached, Signal};
use std::cell::Cell;
use std::cmp::Reverse;
use std::ops::Range;
use std::rc::Rc;

/// What opening a protected array has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Members whose devices were given and not used, for they are not what they should be. Nothing was
    /// written to them; the array serves without.
    pub left_out: Vec<(u16, LeftOut)>,
    /// Batches of the log that were replayed.
    pub batches: u64,
    /// Blocks that were written again from the log.
    pub images: u64,
    /// Blocks whose copies were compared to find out whether their last write had happened.
    pub judged: u64,
    /// Batches of the log that cannot be read, by their numbers, which the owner has accepted to lose
    /// ([`Options::accept_log_loss`]): what they had changed may be older than what was acknowledged.
    pub holes: Vec<Range<u64>>,
    /// The last place was not taken: its device had not joined when the array was used last. [`Array::add_member`]
    /// takes it.
    pub not_joined: bool,
}

/// Why a device is not the member that it was given as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// There is nothing of a protected array on it.
    #[error("it bears no array")]
    Blank,
    /// It belongs to another array, or to one of another shape.
    #[error("it belongs to another array")]
    OtherArray,
    /// It is another member of this array.
    #[error("it is member {0} of the array")]
    OtherMember(u16),
    /// The array went on without it.
    #[error("it is older than the others")]
    Stale,
    /// Its beginning cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(IoError),
}

/// Why a protected array was not made or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There can be no such array, or too much of it is missing.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
    /// So many devices are not what they should be that the rest cannot serve. Nothing was written.
    #[error("{} devices are not the members that they were given as", .0.len())]
    LeftOut(Vec<(u16, LeftOut)>),
    /// No copy of the headers of these batches of the log can be read, and later ones are there: nobody knows which blocks
    /// they had changed, so none may be served. Nothing was written.
    #[error(
        "{} batches of the redo log cannot be read on any member (the first is number {}), and which blocks they changed is \
         not known", .0.iter().map(|hole| hole.end - hole.start).sum::<u64>(), .0.first().map_or(0, |hole| hole.start)
    )]
    LogDamaged(Vec<Range<u64>>),
    /// Members failed while the array was made or its log replayed.
    #[error("the array cannot be brought into service: {0}")]
    Io(#[from] IoError),
}

/// Why a device did not return to its place. Nothing was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejoinError {
    /// The array has no such member, or keeps no sums.
    #[error("the array has no member {0} that could rejoin")]
    NoSuchMember(u16),
    /// Its place is taken by a member that works.
    #[error("member {0} is in service or being rebuilt")]
    InUse(u16),
    /// The device does not fit into the array.
    #[error(transparent)]
    Unfit(#[from] ArrayError),
    /// Members return once the array is reshaped.
    #[error("the array is being reshaped; a member returns after that")]
    Reshaping,
    /// It is not the device that left, or not as it left: only [`Array::replace`] takes it.
    #[error("the device is not the one that left: {0}")]
    NotTheOne(LeftOut),
}

impl<D: BlockDevice + 'static> Array<D> {
    /// The members are a new protected array, all of which is unwritten: it reads as zeros.
    ///
    /// *Errors*: see [`OpenError`]; what was on the members is lost then. *Durability*: when it returns.
    pub async fn format(
        shape: &Shape,
        members: Vec<D>,
        log: Rc<dyn FailureLog>,
        options: Options,
    ) -> Result<Self, OpenError> {
        let anchor = Anchor {
            id: shape.id,
            number: 0,
            epoch: 1,
            tail_number: 1,
            tail_block: 0,
            stamp: 0,
            member: 0,
            shape: shape.words(),
            sizes: Default::default(),
            reshape: None,
            absent: MemberSet::NONE,
            given: Box::new([(0, 0); MEMBERS_MAX as usize]),
            marks: Box::new([(0, 0); MEMBERS_MAX as usize]),
            used: Regions::default(),
            missed: Regions::default(),
        };
        if members.len() != shape.members {
            return Err(ArrayError::MemberCount { expected: shape.layout()?.members(), members: members.len() }.into());
        }
        let array = Self::build(shape, members.into_iter().map(Some).collect(), log, options, anchor)?;
        let core = array.core();
        let wipe = |member| core.wipe(member);
        for wiped in join_all((0..core.members.width()).map(wipe)).await {
            wiped?;
        }
        let protected = core.protected.as_ref().expect("it was just built so");
        core.write_anchor(protected, 1, Head { number: 1, at: 0 }).await?;
        if core.members.not_in_service().is_empty() {
            return Ok(array);
        }
        Err(OpenError::Io(IoError::new(IoErrorKind::Gone, Extent::default())))
    }

    /// The array of these members, as it was when it was used last: its log is replayed.
    ///
    /// A missing member is `None`, also one that the owner knows to have failed. Hosts may be served when it
    /// returns; no resync is needed. Where [`Array::reshape`] had not ended, it is to be called again.
    ///
    /// *Shape*: as the array was formatted; the members' size may also be one to which it grew, and the number of
    /// members counts one that was to be added.
    /// *Errors*: see [`OpenError`].
    pub async fn open(
        shape: &Shape,
        mut members: Vec<Option<D>>,
        log: Rc<dyn FailureLog>,
        options: Options,
    ) -> Result<(Self, Opened), OpenError> {
        if members.len() != shape.members {
            let expected = shape.layout()?.members();
            return Err(ArrayError::MemberCount { expected, members: members.len() }.into());
        }
        let mut found =
            join_all((0..).zip(&members).map(|(member, device)| look_at(shape, member, device.as_ref()))).await;
        let mut mended = disbelieve(&mut found);
        let first = |anchors: Vec<Anchor>| anchors.into_iter().next().ok_or(LeftOut::Blank);
        let mut looked: Vec<_> = found.into_iter().map(|of| of.map(|anchors| anchors.and_then(first))).collect();
        let newest =
            looked.iter().flatten().flatten().max_by_key(|anchor| (anchor.age(), Reverse(anchor.shape[1]))).cloned();
        let mut opened = Opened::default();
        let mut shape = *shape;
        if let Some(newest) = &newest {
            (shape.member_blocks, shape.ring_blocks) = (Blocks(newest.shape[3]), newest.shape[4]);
        }
        if newest.as_ref().is_some_and(|newest| newest.shape[1] < shape.members as u64) {
            // The array never relied on it.
            shape.members -= 1;
            members.truncate(shape.members);
            looked.truncate(shape.members);
            opened.not_joined = true;
        }
        let mut taken = Vec::new();
        let mut behind = MemberSet::NONE;
        let segments = newest.as_ref().map(|newest| segments_of(&shape, newest)).transpose()?;
        for ((member, device), looked) in (0..).zip(members).zip(looked) {
            let mut judged = looked.map(|looked| looked.and_then(|anchor| judge(&anchor, newest.as_ref())));
            if let (Some(Ok(false)), Some(newest), Some(segments), Some(device)) =
                (&judged, &newest, &segments, &device)
                && is_without(device, member, newest, segments).await
            {
                judged = Some(Err(LeftOut::Stale));
            }
            if let (Some(Err(LeftOut::Blank)), Some(newest), Some(segments), Some(device)) =
                (&judged, &newest, &segments, &device)
                && is_counted(device, member, newest, segments).await
            {
                mended = mended.with(member);
                judged = Some(Ok(false));
            }
            match judged {
                Some(Ok(false)) => behind = behind.with(member),
                Some(Ok(true)) | None => {}
                Some(Err(reason)) => opened.left_out.push((member, reason)),
            }
            taken.push(device.filter(|_| matches!(judged, Some(Ok(_)))));
        }
        let layout = shape.layout()?;
        let missing = (0..).zip(&taken).filter(|(_, device)| device.is_none()).map(|(member, _)| member).collect();
        let Some(newest) = newest.filter(|_| layout.survives(missing)) else {
            if opened.left_out.is_empty() {
                let missing = usize::from(missing.len());
                return Err(ArrayError::TooManyMissing { level: shape.level, missing }.into());
            }
            return Err(OpenError::LeftOut(opened.left_out));
        };
        let array = Self::build(&shape, taken, log, options, newest)?;
        let core = array.core();
        core.replay(behind, &mut opened).await?;
        core.tell_of_anchors(mended, &opened);
        core.end_begun_stripe().await?;
        Ok((array, opened))
    }

    fn build(
        shape: &Shape,
        members: Vec<Option<D>>,
        log: Rc<dyn FailureLog>,
        options: Options,
        anchor: Anchor,
    ) -> Result<Self, ArrayError> {
        let area = shape.area()?;
        let segments = Rc::new(segments_of(shape, &anchor)?);
        let layout = |members| Layout::new(shape.level, members, shape.chunk_bytes, segments.data_blocks());
        for (member, device) in (0..).zip(&members) {
            device.as_ref().map_or(Ok(()), |device| admit(segments.member_blocks(), member, &device.geometry()))?;
        }
        let old = anchor.reshape.map(|reshape| layout(usize::from(reshape.from))).transpose()?;
        let places = members.into_iter().map(|device| Rc::new(Member::new(device, segments.clone()))).collect();
        let (background, changed) = (Rc::<Detached>::default(), Rc::<Signal>::default());
        let layout = layout(shape.members)?;
        let pause = options.pause.clone();
        let protected = Rc::new(Protected::new(shape, area, segments, anchor, options, changed.clone()));
        let missed = Some(protected.missed.clone());
        let services = Services { log, missed, pause, background: background.clone(), changed };
        let core = Core {
            layout,
            members: Rc::new(Members::new(layout, places, services)),
            moving: None,
            locks: Locks::new(layout.chunk_blocks(), background.clone()),
            background,
            tally: Rc::<Tally>::default(),
            suspect: Rc::default(),
            turn: Cell::default(),
            protected: Some(protected),
        };
        Ok(Self::of(match old {
            None => core,
            Some(old) => core.moved_from(old),
        }))
    }

    /// True for an array with sums and a log.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.core().protected.is_some()
    }

    /// What was written so far is in place, and the log begins behind it: opening would replay nothing of it.
    ///
    /// *Durability*: all that had ended before. *Errors*: `Gone` when the array has stopped.
    pub async fn checkpoint(&self) -> Result<Stable, IoError> {
        let core = self.core();
        let stable = core.flush(Written::attest()).await?;
        core.checkpoint().await?;
        Ok(stable)
    }

    /// As [`Array::checkpoint`]; for an owner who has ended all commands and lets go of the array after this.
    pub async fn close(&self) -> Result<Stable, IoError> {
        self.checkpoint().await
    }

    /// `stripes` hold what was written, on every member and in parity, or it is said what does not.
    ///
    /// With [`Repair::Heal`], what can be put right is. The host is served meanwhile. `pace` is called after
    /// every few stripes. *Errors*: `Unsupported` for an array without sums.
    pub async fn scrub(
        &self,
        stripes: Range<u64>,
        repair: Repair,
        pace: impl AsyncFnMut(Progress),
    ) -> Result<Scrubbed, IoError> {
        self.scrub_steps(stripes, repair, pace).await
    }

    /// The stripes that members which are not in service have missed, in ascending order.
    #[must_use]
    pub fn missed(&self) -> Vec<Range<u64>> {
        let core = self.core();
        core.protected.as_ref().map(|protected| protected.missed.stripes(&core.layout)).unwrap_or_default()
    }

    /// `device`, which is `member` come back as it left, is in its place; the result are the stripes that it
    /// has missed, for [`Array::rebuild`]. What it has not missed is read from it already.
    ///
    /// *Errors*: see [`RejoinError`].
    pub async fn rejoin(&self, member: u16, device: D) -> Result<Vec<Range<u64>>, RejoinError> {
        let core = self.core();
        let (Some(protected), Some(place)) = (&core.protected, core.members.find(member)) else {
            return Err(RejoinError::NoSuchMember(member));
        };
        if core.is_reshaping() {
            return Err(RejoinError::Reshaping);
        }
        admit(core.member_blocks(), member, &device.geometry())?;
        let found = newest_on(&device).await.map_err(RejoinError::NotTheOne)?;
        let own = protected.anchor.borrow().clone();
        match found {
            found if found.id != own.id => return Err(RejoinError::NotTheOne(LeftOut::OtherArray)),
            found if (found.shape, found.sizes) != (own.shape, own.sizes) => {
                return Err(RejoinError::NotTheOne(LeftOut::Stale));
            }
            found if found.member != member => {
                return Err(RejoinError::NotTheOne(LeftOut::OtherMember(found.member)));
            }
            found => {
                let (epoch, number) = own.given[usize::from(member)];
                // The last anchor may have come or not come when it left.
                let is_as_it_left = found.epoch <= epoch && found.number.abs_diff(number) <= 1;
                if !is_as_it_left && !sabotage::is(Bug::StaleMember) {
                    return Err(RejoinError::NotTheOne(LeftOut::Stale));
                }
            }
        }
        match place.state() {
            MemberState::InService | MemberState::Rebuilding { .. } => return Err(RejoinError::InUse(member)),
            MemberState::Failed | MemberState::Missing => {}
        }
        let missed = protected.missed.stripes(&core.layout);
        place.rejoin(device, &missed);
        Ok(missed)
    }
}

impl<D: BlockDevice + 'static> Core<D> {
    /// Tells whose anchors were damaged, and are written again.
    fn tell_of_anchors(&self, mended: MemberSet, opened: &Opened) {
        let Some(protected) = &self.protected else { return };
        let is_in = |member: &u16| opened.left_out.iter().all(|(left_out, _)| left_out != member);
        for member in mended.iter().filter(is_in) {
            let (extent, kind) = (Extent::new(0, 1), FindingKind::Anchor);
            protected.report(Finding { member, extent, kind, outcome: Outcome::Healed });
        }
    }

    /// Nothing on the member looks like an anchor or a batch.
    pub(crate) async fn wipe(self: &Rc<Self>, member: u16) -> Result<(), IoError> {
        let place = self.members.place(member);
        let protected = self.protected.as_ref().expect("only protected arrays are formatted");
        let zeros = View::zeroed(WRITTEN_BLOCKS as usize * BLOCK_BYTES as usize);
        for slot in [0, 1] {
            let _ = place.write_beside_data(Area::anchor(slot), zeros.clone()).await?;
        }
        let _ = place.write_beside_data(protected.area.ring.start, zeros.slice(..BLOCK_BYTES as usize)).await?;
        place.flush().await.map(drop)
    }
}

/// The anchors of a device that is this member of this array, the newest first.
async fn look_at<D: BlockDevice>(
    shape: &Shape,
    member: u16,
    device: Option<&D>,
) -> Option<Result<Vec<Anchor>, LeftOut>> {
    let device = device?;
    let anchors = anchors_of(async |extent| device.read(extent).await).await;
    Some(anchors.and_then(|anchors| match &anchors[0] {
        anchor if anchor.id != shape.id || !is_shape(anchor, shape) => Err(LeftOut::OtherArray),
        anchor if anchor.member != member => Err(LeftOut::OtherMember(anchor.member)),
        _ => Ok(anchors),
    }))
}

/// Takes away anchors that the array cannot have written; on which members.
///
/// Every member that counts is given every anchor, keeps the two last ones, and the next is not begun before. So one that is
/// more than one ahead of all other members that it counts, beside none that is one before it, is damage, not news.
fn disbelieve(found: &mut [Option<Result<Vec<Anchor>, LeftOut>>]) -> MemberSet {
    let newest_of = |of: &Option<Result<Vec<Anchor>, LeftOut>>| match of {
        Some(Ok(anchors)) => anchors.first().map(|anchor| anchor.number),
        _ => None,
    };
    let numbers: Vec<Option<u64>> = found.iter().map(newest_of).collect();
    let mut disbelieved = MemberSet::NONE;
    for (member, of) in (0..).zip(found) {
        let Some(Ok(anchors)) = of else { continue };
        let newest = &anchors[0];
        let counted = (0..).zip(&numbers).filter(|&(other, _)| other != member && !newest.absent.contains(other));
        let others: Vec<u64> = counted.filter_map(|(_, number)| *number).collect();
        let is_ahead = !others.is_empty() && others.iter().all(|other| other.saturating_add(1) < newest.number);
        let has_before = anchors.iter().any(|anchor| anchor.number.checked_add(1) == Some(newest.number));
        if is_ahead && !has_before {
            anchors.remove(0);
            disbelieved = disbelieved.with(member);
        }
    }
    disbelieved
}

/// True for a member without an anchor that can be read, of which the others say that it counts, and that has the page that
/// they say it was given: its anchors have decayed, and nothing else.
async fn is_counted<D: BlockDevice>(device: &D, member: u16, newest: &Anchor, segments: &Segments) -> bool {
    let (_, stamp) = newest.marks[usize::from(member)];
    let counts = !newest.absent.contains(member) && newest.given[usize::from(member)] == newest.age();
    counts && stamp > 0 && marked_page(device, member, newest, segments).await.is_some_and(|found| found >= stamp)
}

/// The stamp of the page that the newest anchor says a member was given last, if it is there.
async fn marked_page<D: BlockDevice>(device: &D, member: u16, newest: &Anchor, segments: &Segments) -> Option<u64> {
    let (page, copy, id) = marked(member, newest);
    if page >= segments.pages() {
        return None;
    }
    let rope = device.read(Extent { start: segments.homes(page)[copy], len: Blocks(1) }).await.ok()?;
    page::parse(&rope.into_view(), newest.id, id).map(|found| found.stamp())
}

/// Which page a member was given last: its number, which of its copies, and whose.
fn marked(member: u16, newest: &Anchor) -> (u64, usize, PageId) {
    let (mark, _) = newest.marks[usize::from(member)];
    let (page, copy) = (mark >> 1, usize::from(mark & 1 != 0));
    let members = u16::try_from(newest.shape[1]).unwrap_or(MEMBERS_MAX);
    let before = (member + members - 1) % members.max(1);
    (page, copy, PageId { member: [member, before][copy], page })
}

/// True for an array of this shape, also where the owner says the size to which it grew, or counts a member that is to
/// be added.
fn is_shape(anchor: &Anchor, shape: &Shape) -> bool {
    let [level, members, chunk_bytes, member_blocks, ring_blocks] = shape.words();
    let is_size = (member_blocks, ring_blocks) == (anchor.shape[3], anchor.shape[4]);
    (level, chunk_bytes) == (anchor.shape[0], anchor.shape[2])
        && (members == anchor.shape[1] || members == anchor.shape[1] + 1)
        && (is_size || member_blocks != 0 && anchor.sizes.contains(&member_blocks))
}

/// Where everything lies on members of an array that says this of itself.
fn segments_of(shape: &Shape, anchor: &Anchor) -> Result<Segments, ArrayError> {
    let segments = Segments::new(&shape.area()?, shape.member_blocks);
    for size in anchor.sizes.into_iter().filter(|&size| size != 0).map(Blocks) {
        segments.add(segments.next(size, shape.layout()?.chunk_blocks())?, size);
    }
    Ok(segments)
}

/// True when a member that is one anchor behind does not have what it had been given before the newest one: its last
/// writes were not interrupted, they are gone.
async fn is_without<D: BlockDevice>(device: &D, member: u16, newest: &Anchor, segments: &Segments) -> bool {
    let (_, stamp) = newest.marks[usize::from(member)];
    let (page, copy, id) = marked(member, newest);
    if stamp == 0 || page >= segments.pages() || sabotage::is(Bug::BehindBelieved) {
        return false;
    }
    match device.read(Extent { start: segments.homes(page)[copy], len: Blocks(1) }).await {
        Ok(rope) => {
            let block = rope.into_view();
            // What is a page no more has decayed; what never was one was written after this.
            let is_older = |found: page::Found| found.stamp() < stamp;
            page::parse(&block, newest.id, id).map_or_else(|| !page::is_meant(&block), is_older)
        }
        Err(_) => false,
    }
}

/// True for the newest anchor, false for the one before.
fn judge(anchor: &Anchor, newest: Option<&Anchor>) -> Result<bool, LeftOut> {
    let Some(newest) = newest else { return Err(LeftOut::Blank) };
    // Every member that counts is given every anchor, and the next is not begun before it has it.
    let is_behind = anchor.number + 1 < newest.number || newest.absent.contains(anchor.member);
    if is_behind && !sabotage::is(Bug::StaleMember) {
        return Err(LeftOut::Stale);
    }
    Ok(anchor.age() == newest.age())
}

async fn newest_on<D: BlockDevice>(device: &D) -> Result<Anchor, LeftOut> {
    newest_of(async |extent| device.read(extent).await).await
}

/// The newest anchor in what `read` gives of a member.
pub(crate) async fn newest_of(read: impl AsyncFn(Extent) -> Result<Rope, IoError>) -> Result<Anchor, LeftOut> {
    anchors_of(read).await.map(|mut anchors| anchors.swap_remove(0))
}

/// The anchors in what `read` gives of a member, one or both, the newest first.
async fn anchors_of(read: impl AsyncFn(Extent) -> Result<Rope, IoError>) -> Result<Vec<Anchor>, LeftOut> {
    let slot = async |slot| {
        let extent = Extent { start: Area::anchor(slot), len: Blocks(WRITTEN_BLOCKS) };
        read(extent).await.map(|rope| Anchor::parse(&rope.into_view()))
    };
    match (slot(0).await, slot(1).await) {
        (Err(error), Err(_)) => Err(LeftOut::Unreadable(error)),
        (a, b) => {
            let mut found: Vec<Anchor> = [a.ok().flatten(), b.ok().flatten()].into_iter().flatten().collect();
            found.sort_by_key(|anchor| Reverse(anchor.age()));
            if found.is_empty() { Err(LeftOut::Blank) } else { Ok(found) }
        }
    }
}
