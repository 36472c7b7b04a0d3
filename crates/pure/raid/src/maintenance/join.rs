//! Addition of a member: it gets its pages, then the array counts it, then a reshape may start.

use crate::array::Array;
use crate::bounds::MEMBERS_MAX;
use crate::bug_injection::{self, InjectedBug};
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
use block::{BlockDevice, Extent};
use std::rc::{Rc, Weak};
use std::task::Poll;

impl<D: BlockDevice + 'static> Array<D> {
    /// Adds `device` as the last member of the array and returns its number.
    ///
    /// The owner has recorded the place before, so that [`Array::open`] is given the device from now on. With RAID-5
    /// and RAID-6 a reshape is now in progress; [`Array::reshape`] continues it when called, also after a restart.
    /// Blocks keep their addresses and contents; more blocks appear at the end of the array when the reshape has
    /// finished. With RAID-1 the member waits for [`Array::rebuild`], as a replacement does; until that is done the
    /// owner has it recorded as failed.
    ///
    /// *Errors*: see [`GrowError`]; the array is as it was then. *Durability*: when it returns; after an earlier
    /// crash the device has joined, or [`Opened::not_joined`](crate::Opened) says that it has not.
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
        // The work waits for commands of this layout; holding it here would make it wait for itself.
        drop((path, array));
        let work = async move {
            let joined = join(&current, device).await;
            if joined.is_err() {
                // Pages of a member that did not join are dead.
                let array = growing(&current);
                let places =
                    array.members.places().iter().take(usize::from(array.members.counted_len())).cloned().collect();
                array.members.end_joining(array.members.joining());
                current.replace(Path::Protected(Rc::new(array.reshaped(array.layout, places))));
            }
            assert!(commands.growing.replace(false), "a growth ends once");
            joined
        };
        background.finish(work).await
    }
}

/// The array in its current layout, before it gets another member.
fn growing<D: BlockDevice + 'static>(current: &Current<D>) -> Rc<Protected<D>> {
    current.borrow().protected().expect("only protected arrays grow").clone()
}

/// Executes the steps of [`Array::add_member`]. Holds no layout while commands of an older one are drained.
async fn join<D: BlockDevice + 'static>(current: &Current<D>, device: D) -> Result<u16, GrowError> {
    let (number, before) = begin_joining(current, device);
    // From now on every checkpoint writes the pages that belong on the new member.
    drained(&before, current).await;
    let growth = Growth { array: growing(current) };
    let array = &growth.array;
    // The device may carry anchors of an earlier array.
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
    // Also after a failure, because no other checkpoint could run otherwise.
    array.log.state.end_checkpoint();
    relied_on?;
    let before = Rc::downgrade(&array.members);
    drop(growth);
    // Moving must not start while commands are in flight that do not lock against it.
    if !bug_injection::is_injected(InjectedBug::NotDrained) {
        drained(&before, current).await;
    }
    Ok(number)
}

/// The layout over one more member.
fn widened(layout: &Layout, blocks: &block::Blocks) -> Layout {
    let chunk_bytes = u32::try_from(layout.chunk_blocks()).expect("a chunk is small") * crate::BLOCK_BYTES;
    let members = usize::from(layout.members()) + 1;
    Layout::new(layout.level(), members, chunk_bytes, *blocks).expect("the bound on members was checked")
}

/// Adds a place for the device that does not count yet; returns its number, and the members without it.
fn begin_joining<D: BlockDevice + 'static>(current: &Current<D>, device: D) -> (u16, Weak<Members<D>>) {
    let array = growing(current);
    let number = array.members.counted_len();
    let segments = &array.checksums.pages.segments;
    let member = Rc::new(Member::new(Some(device), segments.clone()));
    // Not in service, so nothing is read from it; as a joining member it takes pages and batches.
    member.set_state(MemberState::Rebuilding { front_stripe: 0 });
    let places = array.members.places().iter().cloned().chain([member]).collect();
    // Before the path is switched, because pages of the member need a directory in the cache.
    array.checksums.pages.cache.borrow_mut().widen(number + 1, segments.pages());
    array.members.begin_joining(number);
    current.replace(Path::Protected(Rc::new(array.reshaped(array.layout, places))));
    // Weak, so that the wait for these commands does not count as one of them.
    (number, Rc::downgrade(&array.members))
}

/// Waits until every command that started with these members has ended.
async fn drained<D: BlockDevice + 'static>(members: &Weak<Members<D>>, current: &Current<D>) {
    let (background, log) = {
        let current = current.borrow();
        let array = current.protected().expect("only protected arrays grow");
        (array.background.clone(), array.log.state.clone())
    };
    let ended = background.until(|cx| {
        // Each command holds the members that it started with, so the count of references is the count of commands.
        if members.strong_count() == 0 {
            return Poll::Ready(());
        }
        log.ring.watch(cx);
        Poll::Pending
    });
    ended.await;
}

/// Writes the second copies whose home has moved to the added member.
pub(super) async fn settle_joined<D: BlockDevice + 'static>(array: &Protected<D>) -> Result<(), GrowError> {
    for page in array.checksums.used_pages() {
        array.checksums.mark_page_dirty(PageId { member: array.members.counted_len() - 1, page }).await;
        // Pages of a large array exceed the budget, and only a checkpoint makes them clean.
        if array.log.wants_checkpoint() {
            array.log.checkpoint().await?;
        }
    }
    Ok(array.log.checkpoint().await?)
}

impl<D: BlockDevice + 'static> Growth<D> {
    /// Gives the joining member its own pages, all unwritten, and those of the member before it, wherever pages
    /// exist.
    async fn give_pages(&self, number: u16) -> Result<(), GrowError> {
        for page in self.array.checksums.used_pages() {
            self.array
                .checksums
                .pages
                .cache
                .borrow_mut()
                // Inserted, not loaded: the device has nothing that could be read.
                .insert(PageId { member: number, page }, Box::new([Entry::UNWRITTEN; PAGE_ENTRIES as usize]));
            self.array.checksums.mark_page_dirty(PageId { member: number, page }).await;
            self.array.checksums.mark_page_dirty(PageId { member: number - 1, page }).await;
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

    /// Counts the member and starts the reshape, for later openings and for commands. No other checkpoint runs.
    ///
    /// The anchor goes to the new member first: once another member has it, everything that it refers to exists.
    async fn rely_on(&self, number: u16) -> Result<(), GrowError> {
        self.array.log.run_checkpoint().await?;
        self.still_joining(number)?;
        // A mirror needs no reshape: the layout of its blocks does not depend on the number of members.
        let reshape = self.array.layout.has_parity().then_some(Reshape { from: number, rows: 0 });
        let anchor = self.array.log.next_anchor(self.array.log.state.ring.epoch(), self.array.log.state.anchor_head());
        let mut anchor = Anchor { reshape, ..anchor };
        anchor.shape[1] += 1;
        if reshape.is_some() {
            anchor.last_anchor[usize::from(number)] = anchor.age();
        } else {
            // The mirror has none of the content yet; its rebuild will clear this.
            anchor.absent = anchor.absent.with(number);
        }
        let others = self.array.members.counted() - anchor.absent;
        if bug_injection::is_injected(InjectedBug::OthersToldFirst) {
            self.array.log.put_anchor(&anchor, others).await?;
        }
        if reshape.is_some() {
            // A crash after this opens the array with the new member: its anchor is the newest.
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
        self.array.members.count_member(number);
        Ok(())
    }
}
