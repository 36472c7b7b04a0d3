//! Another member: it gets its pages, then the array relies on it, then a reshape may begin.

use crate::array::Array;
use crate::bounds::MEMBERS_MAX;
use crate::error::{ArrayError, GrowError};
use crate::geometry::{Layout, MemberSet};
use crate::level::Level;
use crate::maintenance::grow::Growth;
use crate::members::{Member, MemberState, Members, admit};
use crate::on_disk::anchor::{Anchor, Reshape};
use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::entry::Entry;
use crate::on_disk::page::PageId;
use crate::path::{Current, Path};
use crate::protected::Protected;
use crate::reshaping::Reshaping;
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
        let path = self.path();
        let layout = path.stripes().layout;
        if matches!(layout.level(), Level::Raid0 | Level::Raid10) {
            return Err(GrowError::Level(layout.level()));
        }
        if layout.members() >= MEMBERS_MAX {
            return Err(ArrayError::TooManyMembers { members: usize::from(MEMBERS_MAX) + 1 }.into());
        }
        admit(path.member_blocks(), layout.members(), &device.geometry())?;
        let array = Growth::begin(&path)?.array;
        let (background, current, commands) = (array.background.clone(), self.0.clone(), array.commands.clone());
        drop((path, array));
        let work = async move {
            let joined = join(&current, device).await;
            if joined.is_err() {
                // Its pages are of no use to anybody.
                let array = growing(&current);
                let places = array.members.places().iter().take(usize::from(array.members.width())).cloned().collect();
                array.members.end_joining(array.members.joining());
                current.replace(Path::Protected(Rc::new(array.reshaped(array.layout, places))));
            }
            assert!(commands.growing.replace(false), "a growth ends once");
            joined
        };
        background.finish(work).await
    }
}

/// The array in the layout that it has now. It is not being reshaped: it is about to get another member.
fn growing<D: BlockDevice + 'static>(current: &Current<D>) -> Rc<Protected<D>> {
    current.borrow().protected().expect("only protected arrays grow").clone()
}

/// The steps of [`Array::add_member`]. No layout is held while commands of an older one are waited for.
async fn join<D: BlockDevice + 'static>(current: &Current<D>, device: D) -> Result<u16, GrowError> {
    let (number, before) = begin_joining(current, device);
    // From now on whoever writes pages gives it its own.
    drained(&before, current).await;
    let growth = Growth { array: growing(current) };
    let array = &growth.array;
    array.log.wipe(number).await.map_err(|_| GrowError::NewMemberFailed)?;
    growth.give_pages(number).await?;
    array.log.begin_checkpoint().await;
    let relied_on = growth.rely_on(number).await;
    if relied_on.is_ok() {
        let layout = widened(&array.layout, &array.checksums.pages.segments.data_blocks());
        let next = array.reshaped(layout, array.members.places().into());
        current.replace(match layout.has_parity() {
            true => Path::Reshaping(Rc::new(Reshaping::new(next, array.layout))),
            false => Path::Protected(Rc::new(next)),
        });
    }
    array.log.state.end_checkpoint();
    relied_on?;
    let before = Rc::downgrade(&array.members);
    drop(growth);
    // Nothing is moved as long as commands are under way that do not know of it.
    if !sabotage::is(Bug::NotDrained) {
        drained(&before, current).await;
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
fn begin_joining<D: BlockDevice + 'static>(current: &Current<D>, device: D) -> (u16, Weak<Members<D>>) {
    let array = growing(current);
    let number = array.members.width();
    let segments = &array.checksums.pages.segments;
    let member = Rc::new(Member::new(Some(device), segments.clone()));
    member.set_state(MemberState::Rebuilding { front_stripe: 0 });
    let places = array.members.places().iter().cloned().chain([member]).collect();
    array.checksums.pages.cache.borrow_mut().widen(number + 1, segments.pages());
    array.members.begin_joining(number);
    current.replace(Path::Protected(Rc::new(array.reshaped(array.layout, places))));
    (number, Rc::downgrade(&array.members))
}

/// Every command that began with these members has ended.
async fn drained<D: BlockDevice + 'static>(members: &Weak<Members<D>>, current: &Current<D>) {
    let (background, log) = {
        let current = current.borrow();
        let array = current.protected().expect("only protected arrays grow");
        (array.background.clone(), array.log.state.clone())
    };
    let ended = background.until(|cx| {
        if members.strong_count() == 0 {
            return Poll::Ready(());
        }
        log.ring.watch(cx);
        Poll::Pending
    });
    ended.await;
}

/// The pages that a member has just got a second home for are there too.
pub(super) async fn settle_joined<D: BlockDevice + 'static>(array: &Protected<D>) -> Result<(), GrowError> {
    for page in array.checksums.used_pages() {
        array.checksums.soil_page(PageId { member: array.members.width() - 1, page }).await;
        if array.log.wants_checkpoint() {
            array.log.checkpoint().await?;
        }
    }
    Ok(array.log.checkpoint().await?)
}

impl<D: BlockDevice + 'static> Growth<D> {
    /// The joining member has pages of its own, all unwritten, and those of the member before it, wherever pages are.
    async fn give_pages(&self, number: u16) -> Result<(), GrowError> {
        for page in self.array.checksums.used_pages() {
            self.array
                .checksums
                .pages
                .cache
                .borrow_mut()
                .insert(PageId { member: number, page }, Box::new([Entry::UNWRITTEN; PAGE_ENTRIES as usize]));
            self.array.checksums.soil_page(PageId { member: number, page }).await;
            self.array.checksums.soil_page(PageId { member: number - 1, page }).await;
            if self.array.log.wants_checkpoint() {
                self.array.log.checkpoint().await?;
            }
        }
        self.array.log.checkpoint().await?;
        self.still_joining(number)
    }

    fn still_joining(&self, number: u16) -> Result<(), GrowError> {
        self.array.members.serving(Extent::default())?;
        match self.array.members.place(number).state() {
            MemberState::Rebuilding { .. } => Ok(()),
            _ => Err(GrowError::NewMemberFailed),
        }
    }

    /// The member counts, and a reshape is under way, for whoever opens the array and for commands. No other
    /// checkpoint runs.
    ///
    /// The member is told first: once another knows of it, everything that belongs on it is there.
    async fn rely_on(&self, number: u16) -> Result<(), GrowError> {
        self.array.log.run_checkpoint().await?;
        self.still_joining(number)?;
        let reshape = self.array.layout.has_parity().then_some(Reshape { from: number, rows: 0 });
        let anchor = self.array.log.next_anchor(self.array.log.state.ring.epoch(), self.array.log.state.anchor_head());
        let mut anchor = Anchor { reshape, ..anchor };
        anchor.shape[1] += 1;
        if reshape.is_some() {
            anchor.given[usize::from(number)] = anchor.age();
        } else {
            // It has nothing of the others' content yet.
            anchor.absent = anchor.absent.with(number);
        }
        let others = self.array.members.all() - anchor.absent;
        if sabotage::is(Bug::OthersToldFirst) {
            self.array.log.put_anchor(&anchor, others).await?;
        }
        if reshape.is_some() {
            self.array.log.put_anchor(&anchor, MemberSet::only(number)).await?;
            self.still_joining(number)?;
        }
        self.array.log.state.anchor.replace(anchor.clone());
        self.array.log.put_anchor(&anchor, others).await?;
        self.array.members.serving(Extent::default())?;
        self.array.checksums.pages.position.set(reshape);
        if reshape.is_some() {
            self.array.members.place(number).set_state(MemberState::InService);
        }
        self.array.members.count_in(number);
        Ok(())
    }
}
