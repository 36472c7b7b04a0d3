//! Another member: it gets its pages, then the array relies on it, then a reshape may begin.

use crate::array::{Array, Core, Current};
use crate::bounds::MEMBERS_MAX;
use crate::error::{ArrayError, GrowError};
use crate::geometry::{Layout, MemberSet};
use crate::level::Level;
use crate::members::{Member, MemberState, Members, admit};
use crate::on_disk::anchor::{Anchor, Reshape};
use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::entry::Entry;
use crate::on_disk::page::PageId;
use crate::protect::Protected;
use crate::sabotage::{self, Bug};
use block::{BlockDevice, Extent};
use std::rc::{Rc, Weak};
use std::task::Poll;

impl<D: BlockDevice + 'static> Array<D> {
    /// `device` is the last member of the array, with the number that is returned.
    ///
    /// The owner has recorded the place before, so that [`Array::open`] is given the device from now on. For RAID-5 and
    /// RAID-6: [`Array::reshape`] has begun and goes on when it is called, also after a restart. Blocks keep their
    /// addresses and contents; there are more of them at the end of the reshape. For RAID-1: the member waits for
    /// [`Array::rebuild`], as one that was replaced; until that is done the owner has it recorded as failed. *Errors*: see [`GrowError`]; the array is as it was then. *Durability*: when it returns; after a crash before
    /// that the device has joined, or [`Opened::not_joined`](crate::Opened) says that it has not.
    pub async fn add_member(&self, device: D) -> Result<u16, GrowError> {
        let core = self.core();
        if matches!(core.layout.level(), Level::Raid0 | Level::Raid10) {
            return Err(GrowError::Level(core.layout.level()));
        }
        if core.layout.members() >= MEMBERS_MAX {
            return Err(ArrayError::TooManyMembers { members: usize::from(MEMBERS_MAX) + 1 }.into());
        }
        admit(core.member_blocks(), core.layout.members(), &device.geometry())?;
        let protected = core.begin_growing()?;
        let (background, current) = (core.background.clone(), self.0.clone());
        drop(core);
        let work = async move {
            let joined = join(&current, &protected, device).await;
            if joined.is_err() {
                // Its pages are of no use to anybody.
                let core = current.borrow().clone();
                let places = core.members.places().iter().take(usize::from(core.members.width())).cloned().collect();
                core.members.end_joining(core.members.joining());
                current.replace(Rc::new(core.reshaped(core.layout, places, None)));
            }
            protected.growing.set(false);
            joined
        };
        background.finish(work).await
    }
}

/// The steps of [`Array::add_member`]. No shape is held while commands of an older one are waited for.
async fn join<D: BlockDevice + 'static>(
    current: &Current<D>,
    protected: &Rc<Protected>,
    device: D,
) -> Result<u16, GrowError> {
    let (number, before) = begin_joining(current, protected, device);
    // From now on whoever writes pages gives it its own.
    drained(protected, &before, current).await;
    let core = current.borrow().clone();
    core.wipe(number).await.map_err(|_| GrowError::NewMemberFailed)?;
    core.give_pages(protected, number).await?;
    core.begin_checkpoint(protected).await;
    let relied_on = core.rely_on(protected, number).await;
    if relied_on.is_ok() {
        let layout = widened(&core.layout, &protected.segments.data_blocks());
        let next = core.reshaped(layout, core.members.places().into(), None);
        current.replace(Rc::new(if layout.has_parity() { next.moved_from(core.layout) } else { next }));
    }
    protected.end_checkpoint();
    relied_on?;
    let before = Rc::downgrade(&core.members);
    drop(core);
    // Nothing is moved as long as commands are under way that do not know of it.
    if !sabotage::is(Bug::NotDrained) {
        drained(protected, &before, current).await;
    }
    Ok(number)
}

/// The layout over one member more.
fn widened(layout: &Layout, blocks: &block::Blocks) -> Layout {
    let chunk_bytes = u32::try_from(layout.chunk_blocks()).expect("a chunk is small") * crate::BLOCK_BYTES;
    let members = usize::from(layout.members()) + 1;
    Layout::new(layout.level(), members, chunk_bytes, *blocks).expect("the bound on members was checked")
}

/// The device has a place that does not count yet; its number, and the shape without it.
fn begin_joining<D: BlockDevice + 'static>(
    current: &Current<D>,
    protected: &Protected,
    device: D,
) -> (u16, Weak<Members<D>>) {
    let core = current.borrow().clone();
    let number = core.members.width();
    let member = Rc::new(Member::new(Some(device), protected.segments.clone()));
    member.set_state(MemberState::Rebuilding { front_stripe: 0 });
    let places = core.members.places().iter().cloned().chain([member]).collect();
    protected.cache.borrow_mut().widen(number + 1, protected.segments.pages());
    core.members.begin_joining(number);
    current.replace(Rc::new(core.reshaped(core.layout, places, None)));
    (number, Rc::downgrade(&core.members))
}

/// Every command that began with this shape has ended.
async fn drained<D: BlockDevice + 'static>(protected: &Protected, shape: &Weak<Members<D>>, current: &Current<D>) {
    let background = current.borrow().background.clone();
    let ended = background.until(|cx| {
        if shape.strong_count() == 0 {
            return Poll::Ready(());
        }
        protected.ring.watch(cx);
        Poll::Pending
    });
    ended.await;
}

impl<D: BlockDevice + 'static> Core<D> {
    /// The joining member has pages of its own, all unwritten, and those of the member before it, wherever pages are.
    async fn give_pages(self: &Rc<Self>, protected: &Protected, number: u16) -> Result<(), GrowError> {
        for page in self.used_pages(protected) {
            protected
                .cache
                .borrow_mut()
                .insert(PageId { member: number, page }, Box::new([Entry::UNWRITTEN; PAGE_ENTRIES as usize]));
            self.soil_page(protected, PageId { member: number, page }).await;
            self.soil_page(protected, PageId { member: number - 1, page }).await;
            if self.wants_checkpoint(protected) {
                self.checkpoint().await?;
            }
        }
        self.checkpoint().await?;
        self.still_joining(number)
    }

    /// The pages that a member has just got a second home for are there too.
    pub(crate) async fn settle_joined(self: &Rc<Self>, protected: &Protected) -> Result<(), GrowError> {
        for page in self.used_pages(protected) {
            self.soil_page(protected, PageId { member: self.members.width() - 1, page }).await;
            if self.wants_checkpoint(protected) {
                self.checkpoint().await?;
            }
        }
        Ok(self.checkpoint().await?)
    }

    fn used_pages(&self, protected: &Protected) -> impl Iterator<Item = u64> + use<D> {
        let (per_region, pages) = (protected.segments.region_pages(), protected.segments.pages());
        let regions: Vec<u64> = protected.used.borrow().iter().collect();
        let of = move |region: u64| region * per_region..((region + 1) * per_region).min(pages);
        regions.into_iter().flat_map(of)
    }

    /// The page is written once more.
    async fn soil_page(self: &Rc<Self>, protected: &Protected, id: PageId) {
        let blocks = crate::on_disk::page::blocks_of(id.page);
        let _pins = self.hold_pages(protected, id.member, blocks).await;
        protected.cache.borrow_mut().soil(id);
    }

    fn still_joining(&self, number: u16) -> Result<(), GrowError> {
        self.members.serving(Extent::default())?;
        match self.members.place(number).state() {
            MemberState::Rebuilding { .. } => Ok(()),
            _ => Err(GrowError::NewMemberFailed),
        }
    }

    /// The member counts, and a reshape is under way, for whoever opens the array and for commands. No other
    /// checkpoint runs.
    ///
    /// The member is told first: once another knows of it, everything that belongs on it is there.
    async fn rely_on(self: &Rc<Self>, protected: &Protected, number: u16) -> Result<(), GrowError> {
        self.run_checkpoint(protected).await?;
        self.still_joining(number)?;
        let reshape = self.layout.has_parity().then_some(Reshape { from: number, rows: 0 });
        let anchor = self.next_anchor(protected, protected.ring.epoch(), protected.anchor_head());
        let mut anchor = Anchor { reshape, ..anchor };
        anchor.shape[1] += 1;
        if reshape.is_some() {
            anchor.given[usize::from(number)] = anchor.age();
        } else {
            // It has nothing of the others' content yet.
            anchor.absent = anchor.absent.with(number);
        }
        let others = self.members.all() - anchor.absent;
        if sabotage::is(Bug::OthersToldFirst) {
            self.put_anchor(&anchor, others).await?;
        }
        if reshape.is_some() {
            self.put_anchor(&anchor, MemberSet::only(number)).await?;
            self.still_joining(number)?;
        }
        protected.anchor.replace(anchor.clone());
        self.put_anchor(&anchor, others).await?;
        self.members.serving(Extent::default())?;
        protected.reshape.set(reshape);
        if reshape.is_some() {
            self.members.place(number).set_state(MemberState::InService);
        }
        self.members.count_in(number);
        Ok(())
    }
}
