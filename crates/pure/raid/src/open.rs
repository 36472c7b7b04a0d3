//! Formatting, opening and closing of protected arrays.
//!
//! Opening decides from the anchors which devices are current members, then hands the array to `recovery`. A device
//! that is refused is never written.

use crate::array::Array;
use crate::bounds::MEMBERS_MAX;
use crate::bug_injection::{self, InjectedBug};
use crate::checksums::Pages;
use crate::error::{ArrayError, OpenError, Opened, Rejected};
use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::{Layout, MemberSet};
use crate::locks::Locks;
use crate::members::{FailureLog, Member, Members, MissedRegions, Services, admit};
use crate::on_disk::anchor::Anchor;
use crate::on_disk::page;
use crate::on_disk::page::PageId;
use crate::on_disk::regions::Regions;
use crate::on_disk::segments::Segments;
use crate::path::{Path, on_path};
use crate::protected::{self, Commands, Protected};
use crate::recovery::Recovery;
use crate::redo::LogState;
use crate::redo::anchors::anchors_of;
use crate::redo::ring::Head;
use crate::reshaping::Reshaping;
use crate::shape::{Options, Shape};
use block::{BlockDevice, Blocks, Extent, IoError, IoErrorKind, Stable};
use futures_util::future::join_all;
use shard::{Detached, Signal};
use std::cmp::Reverse;
use std::rc::Rc;

impl<D: BlockDevice + 'static> Array<D> {
    /// Formats the members as a new protected array that is entirely unwritten: every block reads as zeros.
    ///
    /// *Errors*: see [`OpenError`]; the previous content of the members is lost even then. *Durability*: when it
    /// returns.
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
            last_anchor: Box::new([(0, 0); MEMBERS_MAX as usize]),
            last_pages: Box::new([(0, 0); MEMBERS_MAX as usize]),
            used: Regions::default(),
            missed: Regions::default(),
        };
        if members.len() != shape.members {
            return Err(ArrayError::MemberCount { expected: shape.layout()?.members(), members: members.len() }.into());
        }
        let array = Self::build(shape, members.into_iter().map(Some).collect(), log, options, anchor)?;
        let path = array.path();
        let Protected { members, log, .. } = &**path.protected().expect("it was just built so");
        // A member may carry the log of an earlier array, whose anchors and first batch must not be found again.
        let wipe = |member| log.wipe(member);
        for wiped in join_all((0..members.counted_len()).map(wipe)).await {
            wiped?;
        }
        log.write_anchor(1, Head { number: 1, at: 0 }).await?;
        // A new array starts with all of its members in service, or not at all.
        if members.not_in_service().is_empty() {
            return Ok(array);
        }
        Err(OpenError::Io(IoError::new(IoErrorKind::Gone, Extent::default())))
    }

    /// Opens a protected array as it was last used, and replays its redo log.
    ///
    /// A missing member is `None`, also one that the owner knows to have failed. Hosts may be served as soon as this
    /// returns; no resync is needed. Where [`Array::reshape`] had not finished, call it again.
    ///
    /// *Shape*: as the array was formatted; the members' size may also be one to which it grew, and the number of
    /// members includes one whose addition was recorded. *Errors*: see [`OpenError`].
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
            join_all((0..).zip(&members).map(|(member, device)| read_anchors(shape, member, device.as_ref()))).await;
        let mut mended = discard_implausible(&mut found);
        let first = |anchors: Vec<Anchor>| anchors.into_iter().next().ok_or(Rejected::Blank);
        let mut looked: Vec<_> = found.into_iter().map(|of| of.map(|anchors| anchors.and_then(first))).collect();
        // Of two anchors of equal age the one with fewer members wins: a failed `add_member` may have left the other
        // one on the new member alone.
        let newest =
            looked.iter().flatten().flatten().max_by_key(|anchor| (anchor.age(), Reverse(anchor.shape[1]))).cloned();
        let mut opened = Opened::default();
        let mut shape = *shape;
        if let Some(newest) = &newest {
            // The anchor decides: the owner may have recorded a later size, to which the array has grown since it was
            // formatted.
            (shape.member_blocks, shape.ring_blocks) = (Blocks(newest.shape[3]), newest.shape[4]);
        }
        if newest.as_ref().is_some_and(|newest| newest.shape[1] < shape.members as u64) {
            // An anchor without the new member is the newest, so the array never relied on that member.
            shape.members -= 1;
            members.truncate(shape.members);
            looked.truncate(shape.members);
            opened.not_joined = true;
        }
        // Needed before the devices are judged: the pages that prove a member lie in these segments.
        let segments = newest.as_ref().map(|newest| segments_of(&shape, newest)).transpose()?;
        let known = newest.as_ref().zip(segments.as_ref());
        let mut taken = Vec::new();
        let mut behind = MemberSet::NONE;
        for ((member, device), looked) in (0..).zip(members).zip(looked) {
            let judged = judge_device(member, device.as_ref(), looked, known).await;
            if judged == Some(Ok(AnchorState::Mended)) {
                mended = mended.with(member);
            }
            match judged {
                Some(Ok(AnchorState::Behind | AnchorState::Mended)) => behind = behind.with(member),
                Some(Ok(AnchorState::Newest)) | None => {}
                Some(Err(reason)) => opened.rejected.push((member, reason)),
            }
            // Only members that passed are used; the devices of the others are dropped without a write.
            taken.push(device.filter(|_| matches!(judged, Some(Ok(_)))));
        }
        let layout = shape.layout()?;
        let missing = (0..).zip(&taken).filter(|(_, device)| device.is_none()).map(|(member, _)| member).collect();
        let Some(newest) = newest.filter(|_| layout.survives(missing)) else {
            if opened.rejected.is_empty() {
                let missing = usize::from(missing.len());
                return Err(ArrayError::TooManyMissing { level: shape.level, missing }.into());
            }
            // Some devices were present but rejected; their reasons help more than a count of missing members.
            return Err(OpenError::Rejected(opened.rejected));
        };
        let accept_log_loss = options.accept_log_loss;
        // Only now may anything be written: before, an opening that fails must leave every device as it was.
        let array = Self::build(&shape, taken, log, options, newest)?;
        let path = array.path();
        let protected = path.protected().expect("it was just built so");
        Recovery::new(&path, accept_log_loss).replay(behind, &mut opened).await?;
        report_anchors(&protected.checksums.pages, mended, &opened);
        // Before hosts are served: the rows of this stripe lie in two layouts, and commands choose the layout by
        // stripe.
        if let Some(reshaping) = path.reshaping() {
            reshaping.end_begun_stripe().await?;
        }
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
        // An unfinished reshape is opened with both layouts.
        let old = anchor.reshape.map(|reshape| layout(usize::from(reshape.from))).transpose()?;
        let places = members.into_iter().map(|device| Rc::new(Member::new(device, segments.clone()))).collect();
        let (background, changed) = (Rc::<Detached>::default(), Rc::<Signal>::default());
        let new = layout(shape.members)?;
        // Regions missed before a restart stay missed.
        let missed = Rc::new(MissedRegions::new(segments.clone(), anchor.missed.clone()));
        let pages = Rc::new(Pages::new(shape, segments, &anchor, &options));
        let log_state = Rc::new(LogState::new(shape, area, missed.clone(), anchor, changed.clone()));
        let commands = Rc::new(Commands::new(&options));
        let services =
            Services { log, missed: Some(missed), pause: options.pause, background: background.clone(), changed };
        let members = Members::new(new, places, services);
        let locks = Locks::new(new.chunk_blocks(), background.clone());
        let tally = Rc::default();
        let shared = protected::Shared { pages, log: log_state, locks, background, tally, commands };
        let array = Protected::new(members, shared);
        Ok(Self::of(match old {
            None => Path::Protected(Rc::new(array)),
            Some(old) => Path::Reshaping(Rc::new(Reshaping::new(array, old))),
        }))
    }

    /// Writes everything back and advances the log's tail, so that opening would replay nothing of it.
    ///
    /// *Durability*: every command that had ended before. *Errors*: `Gone` when the array has stopped.
    pub async fn checkpoint(&self) -> Result<Stable, IoError> {
        let path = self.path();
        // Fresh writes are logged by the flush; a checkpoint covers only what is in the log.
        let stable = on_path!(&path, array => array.flush())?;
        if let Some(array) = path.protected() {
            array.log.checkpoint().await?;
        }
        Ok(stable)
    }

    /// Checkpoints as [`Array::checkpoint`]; called by an owner that has ended all commands and drops the array next.
    pub async fn close(&self) -> Result<Stable, IoError> {
        self.checkpoint().await
    }

    /// True for an array with checksums and a redo log.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.path().protected().is_some()
    }
}

/// Reads the anchors of a device, the newest first; refuses those of another array or another member. `None` without
/// a device.
async fn read_anchors<D: BlockDevice>(
    shape: &Shape,
    member: u16,
    device: Option<&D>,
) -> Option<Result<Vec<Anchor>, Rejected>> {
    let device = device?;
    let anchors = anchors_of(async |extent| device.read(extent).await).await;
    Some(anchors.and_then(|anchors| match &anchors[0] {
        // The identity is compared before the number: a disk of another array may have any number.
        anchor if anchor.id != shape.id || !is_shape(anchor, shape) => Err(Rejected::OtherArray),
        anchor if anchor.member != member => Err(Rejected::OtherMember(anchor.member)),
        _ => Ok(anchors),
    }))
}

/// Removes anchors that the array cannot have written and returns the members that had one.
///
/// Every counted member gets every anchor, keeps the last two, and no anchor is started before the previous one is
/// stable. So an anchor that is more than one ahead of all other members that it counts, without its predecessor
/// beside it, is damage and not the newest state.
fn discard_implausible(found: &mut [Option<Result<Vec<Anchor>, Rejected>>]) -> MemberSet {
    let newest_of = |of: &Option<Result<Vec<Anchor>, Rejected>>| match of {
        Some(Ok(anchors)) => anchors.first().map(|anchor| anchor.number),
        _ => None,
    };
    let numbers: Vec<Option<u64>> = found.iter().map(newest_of).collect();
    let mut discarded = MemberSet::NONE;
    for (member, of) in (0..).zip(found) {
        let Some(Ok(anchors)) = of else { continue };
        let newest = &anchors[0];
        let counted = (0..).zip(&numbers).filter(|&(other, _)| other != member && !newest.absent.contains(other));
        // Members that this anchor counts as absent may be behind by any number of anchors.
        let others: Vec<u64> = counted.filter_map(|(_, number)| *number).collect();
        let is_ahead = !others.is_empty() && others.iter().all(|other| other.saturating_add(1) < newest.number);
        let has_before = anchors.iter().any(|anchor| anchor.number.checked_add(1) == Some(newest.number));
        if is_ahead && !has_before {
            // The older slot, if it is valid, is used in its place.
            anchors.remove(0);
            discarded = discarded.with(member);
        }
    }
    discarded
}

/// True for a member without a readable anchor that the others count as current and that has the page that they say
/// it was given last: only its anchors have decayed.
async fn is_counted<D: BlockDevice>(device: &D, member: u16, newest: &Anchor, segments: &Segments) -> bool {
    let (_, stamp) = newest.last_pages[usize::from(member)];
    // Being counted is not enough: a blank replacement in the same place would be counted, too, but lacks the page.
    let counts = !newest.absent.contains(member) && newest.last_anchor[usize::from(member)] == newest.age();
    counts && stamp > 0 && last_page_stamp(device, member, newest, segments).await.is_some_and(|found| found >= stamp)
}

/// Returns the stamp of the page that the newest anchor names as last given to a member, if the page is there.
async fn last_page_stamp<D: BlockDevice>(device: &D, member: u16, newest: &Anchor, segments: &Segments) -> Option<u64> {
    let (page, copy, id) = last_page(member, newest);
    if page >= segments.pages() {
        return None;
    }
    let rope = device.read(Extent { start: segments.page_addresses(page)[copy], len: Blocks(1) }).await.ok()?;
    page::parse(&rope.into_view(), newest.id, id).map(|found| found.stamp())
}

/// Returns the page that a member was given last: its number, its copy (0 or 1), and its identity.
fn last_page(member: u16, newest: &Anchor) -> (u64, usize, PageId) {
    // Encoded by `page_key`: the page number, shifted by one, and the copy in the lowest bit.
    let (key, _) = newest.last_pages[usize::from(member)];
    let (page, copy) = (key >> 1, usize::from(key & 1 != 0));
    let members = u16::try_from(newest.shape[1]).unwrap_or(MEMBERS_MAX);
    let before = (member + members - 1) % members.max(1);
    (page, copy, PageId { member: [member, before][copy], page })
}

/// True where the anchor describes an array of this shape; the owner may name a size to which the array grew, and
/// count one member that is yet to join.
fn is_shape(anchor: &Anchor, shape: &Shape) -> bool {
    let [level, members, chunk_bytes, member_blocks, ring_blocks] = shape.words();
    let is_size = (member_blocks, ring_blocks) == (anchor.shape[3], anchor.shape[4]);
    // The owner records an additional member before `add_member`, so it may count one more than the anchor.
    (level, chunk_bytes) == (anchor.shape[0], anchor.shape[2])
        && (members == anchor.shape[1] || members == anchor.shape[1] + 1)
        && (is_size || member_blocks != 0 && anchor.sizes.contains(&member_blocks))
}

/// Returns the layout of data and pages on the members, from the shape and the growths listed in the anchor.
fn segments_of(shape: &Shape, anchor: &Anchor) -> Result<Segments, ArrayError> {
    let segments = Segments::new(&shape.area()?, shape.member_blocks);
    for size in anchor.sizes.into_iter().filter(|&size| size != 0).map(Blocks) {
        segments.add(segments.next(size, shape.layout()?.chunk_blocks())?, size);
    }
    Ok(segments)
}

/// True when a member that is one anchor behind lacks the page it had been given before the newest anchor: it has
/// gone back in time, and was not merely interrupted.
async fn lacks_page<D: BlockDevice>(device: &D, member: u16, newest: &Anchor, segments: &Segments) -> bool {
    let (_, stamp) = newest.last_pages[usize::from(member)];
    let (page, copy, id) = last_page(member, newest);
    if stamp == 0 || page >= segments.pages() || bug_injection::is_injected(InjectedBug::BehindBelieved) {
        return false;
    }
    match device.read(Extent { start: segments.page_addresses(page)[copy], len: Blocks(1) }).await {
        Ok(rope) => {
            let block = rope.into_view();
            // A damaged page has decayed, which is repaired later; a block that never was a page was overwritten
            // after this.
            let is_older = |found: page::Found| found.stamp() < stamp;
            page::parse(&block, newest.id, id).map_or_else(|| !page::is_meant(&block), is_older)
        }
        Err(_) => false,
    }
}

/// State of a device relative to the newest anchor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnchorState {
    /// The device has the newest anchor.
    Newest,
    /// The device has the anchor before it.
    Behind,
    /// The device has no readable anchor but is a member nevertheless: its anchors are written again.
    Mended,
}

/// Decides whether the array accepts this device; `None` where there is no device.
async fn judge_device<D: BlockDevice>(
    member: u16,
    device: Option<&D>,
    looked: Option<Result<Anchor, Rejected>>,
    known: Option<(&Anchor, &Segments)>,
) -> Option<Result<AnchorState, Rejected>> {
    let judged = looked?.and_then(|anchor| judge(&anchor, known.map(|(newest, _)| newest)));
    let (Some((newest, segments)), Some(device)) = (known, device) else { return Some(judged) };
    Some(match judged {
        Ok(AnchorState::Behind) if lacks_page(device, member, newest, segments).await => Err(Rejected::Stale),
        Err(Rejected::Blank) if is_counted(device, member, newest, segments).await => Ok(AnchorState::Mended),
        judged => judged,
    })
}

/// Classifies an anchor as the newest one, the one before, or stale.
fn judge(anchor: &Anchor, newest: Option<&Anchor>) -> Result<AnchorState, Rejected> {
    let Some(newest) = newest else { return Err(Rejected::Blank) };
    // Every counted member gets every anchor, and the next is not started before it is stable there.
    let is_behind = anchor.number + 1 < newest.number || newest.absent.contains(anchor.member);
    if is_behind && !bug_injection::is_injected(InjectedBug::StaleMember) {
        return Err(Rejected::Stale);
    }
    Ok(if anchor.age() == newest.age() { AnchorState::Newest } else { AnchorState::Behind })
}

/// Reports members whose anchors were damaged and are written again.
fn report_anchors(pages: &Pages, mended: MemberSet, opened: &Opened) {
    let is_in = |member: &u16| opened.rejected.iter().all(|(rejected, _)| rejected != member);
    for member in mended.iter().filter(is_in) {
        let (extent, kind) = (Extent::new(0, 1), FindingKind::Anchor);
        pages.report(Finding::new(member, extent, kind, Outcome::Healed));
    }
}
