//! Loading of checksum pages from their two copies on disk.

use crate::checksums::Checksums;
use crate::checksums::cache::Pins;
use crate::finding::{Finding, FindingKind, Outcome};
use crate::members::{MemberState, ReadWait};
use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::entry::Entry;
use crate::on_disk::page::{Entries, Found, PageId, blocks_of, pages_of, parse, parse_any};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba};
use std::ops::Range;
use std::rc::Rc;

/// Location of one copy of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageAddress {
    pub(crate) member: u16,
    pub(crate) at: Lba,
}

impl<D: BlockDevice + 'static> Checksums<D> {
    /// Pins the pages of all members' chunks of these stripes, loading them as needed.
    pub(crate) async fn hold_stripes(self: &Rc<Self>, stripes: &Range<u64>) -> Pins {
        let mut pins = Pins::new(&self.pages.cache);
        let chunk = self.members.layout.chunk_blocks();
        let blocks = Extent::new(stripes.start * chunk, (stripes.end - stripes.start) * chunk);
        for member in 0..self.members.layout.members() {
            self.hold_more(&mut pins, member, blocks).await;
        }
        pins
    }

    /// True when nothing in these stripes was ever written. Their pages are pinned.
    pub(crate) fn is_unwritten(&self, stripes: &Range<u64>) -> bool {
        let chunk = self.members.layout.chunk_blocks();
        let blocks = Extent::new(stripes.start * chunk, (stripes.end - stripes.start) * chunk);
        let mut cache = self.pages.cache.borrow_mut();
        (0..self.members.layout.members()).all(|member| {
            let mut none = true;
            cache
                .visit(member, blocks, |_, entries| none &= entries.iter().all(|entry| entry.is_unwritten()))
                // A page that is not in memory counts as written, which is the safe answer.
                .is_some_and(|()| none)
        })
    }

    /// False when no page of these blocks exists, on disk or in memory.
    pub(crate) fn was_ever_written(&self, extent: Extent) -> bool {
        let cache = self.pages.cache.borrow();
        pages_of(extent).any(|page| {
            self.pages.is_used(page) || (0..self.members.counted_len()).any(|member| cache.has(PageId { member, page }))
        })
    }

    pub(crate) fn used_pages(&self) -> impl Iterator<Item = u64> + use<D> {
        let (per_region, pages) = (self.pages.segments.region_pages(), self.pages.segments.pages());
        // Copied, because checkpoints add regions while the caller awaits between pages.
        let regions: Vec<u64> = self.pages.used.borrow().iter().collect();
        let of = move |region: u64| region * per_region..((region + 1) * per_region).min(pages);
        regions.into_iter().flat_map(of)
    }

    /// Marks the page dirty, so that it is written once more.
    pub(crate) async fn mark_page_dirty(self: &Rc<Self>, id: PageId) {
        let blocks = blocks_of(id.page);
        let _pins = self.hold_pages(id.member, blocks).await;
        self.pages.cache.borrow_mut().mark_dirty(id);
    }

    /// Locations of both copies of a page: on its own member, and on the next.
    pub(crate) fn page_addresses(&self, id: PageId) -> [PageAddress; 2] {
        let [own, other] = self.pages.segments.page_addresses(id.page);
        [
            PageAddress { member: id.member, at: own },
            PageAddress { member: (id.member + 1) % self.members.counted_len(), at: other },
        ]
    }

    /// Location that copy `copy` of a page is written to; copy 2 is the second home that it will have once a joining
    /// member counts.
    pub(crate) fn write_address(&self, id: PageId, copy: usize) -> Option<PageAddress> {
        let is_joining = id.member >= self.members.counted_len();
        let has_new_neighbour = id.member + 1 == self.members.counted_len()
            && self.members.places().len() > usize::from(self.members.counted_len());
        match copy {
            0 => Some(self.page_addresses(id)[0]),
            1 if !is_joining => Some(self.page_addresses(id)[1]),
            2 if has_new_neighbour => {
                // The second home of the last member's pages moves to the member that joins.
                Some(PageAddress {
                    member: self.members.counted_len(),
                    at: self.pages.segments.page_addresses(id.page)[1],
                })
            }
            _ => None,
        }
    }

    /// Pins the pages of these blocks, loading them as needed.
    pub(crate) async fn hold_pages(self: &Rc<Self>, member: u16, extent: Extent) -> Pins {
        let mut pins = Pins::new(&self.pages.cache);
        self.hold_more(&mut pins, member, extent).await;
        pins
    }

    /// Pins pages as [`Checksums::hold_pages`], in addition to those in `pins`.
    pub(crate) async fn hold_more(self: &Rc<Self>, pins: &mut Pins, member: u16, extent: Extent) {
        for page in pages_of(extent) {
            let id = PageId { member, page };
            // A loaded page may be evicted before it is pinned.
            while !pins.hold(id) {
                self.load_page(id).await;
            }
        }
    }

    /// Loads a page, one command at a time, so that a page is never replaced by an older version of itself.
    async fn load_page(self: &Rc<Self>, id: PageId) {
        assert!(id.page < self.pages.segments.pages(), "only pages that the array has are loaded");
        // The member in the upper 16 bits, the page below.
        let key = u64::from(id.member) << 48 | id.page;
        let _alone = self.pages.loading.exclusive(key..key + 1).await;
        // Another command may have loaded it while this one waited for the lock.
        if self.pages.cache.borrow().has(id) {
            return;
        }
        if !self.pages.is_used(id.page) {
            // Never written: no need to read it.
            self.pages.cache.borrow_mut().insert(id, Box::new([Entry::UNWRITTEN; PAGE_ENTRIES as usize]));
            return;
        }
        // Both copies, because only the stamps tell which is current.
        let addresses = self.page_addresses(id);
        let read = async |wait| {
            let [a, b] = addresses.map(|address| self.read_page(id, address, wait));
            futures_util::future::join(a, b).await
        };
        let (mut a, mut b) = read(ReadWait::Deadline).await;
        let is_late = |found: &Option<Result<Found, IoError>>| {
            found
                .as_ref()
                .and_then(|found| found.as_ref().err())
                .is_some_and(|error| error.kind == IoErrorKind::TimedOut)
        };
        match (is_late(&a), is_late(&b)) {
            (false, false) => {}
            // The late member is treated as absent.
            (true, false) if matches!(b, Some(Ok(_))) => a = None,
            (false, true) if matches!(a, Some(Ok(_))) => b = None,
            // Nothing is known without the late copy, so its member is waited for.
            _ => (a, b) = read(ReadWait::Unbounded).await,
        }
        let (entries, repair) = self.choose_page(id, a, b);
        let mut cache = self.pages.cache.borrow_mut();
        cache.insert(id, entries);
        // Dirty, so that the next checkpoint rewrites both copies with a higher stamp.
        if repair {
            cache.mark_dirty(id);
        }
    }

    /// Returns the newer of the intact copies, and whether a copy must be rewritten.
    fn choose_page(
        &self,
        id: PageId,
        a: Option<Result<Found, IoError>>,
        b: Option<Result<Found, IoError>>,
    ) -> (Box<Entries>, bool) {
        let addresses = self.page_addresses(id);
        let newest = [&a, &b].into_iter().flatten().flatten().map(|found| found.stamp).max();
        // Stamps must keep increasing, or a later version could lose against this one.
        self.pages.stamp.set(self.pages.stamp.get().max(newest.unwrap_or_default()));
        let asked = a.is_some() || b.is_some();
        let mut repair = false;
        for (address, found) in addresses.iter().zip([&a, &b]) {
            let kind = match (found, newest) {
                (Some(Err(_)), _) => FindingKind::PageDamaged,
                (Some(Ok(found)), Some(newest)) if found.stamp < newest => FindingKind::PageStale,
                _ => continue,
            };
            repair = true;
            // With both copies gone the blocks come from redundancy, unverified, if there is any.
            let outcome = match newest {
                Some(_) => Outcome::Healed,
                None if self.members.can_lose(id.member) => Outcome::Served,
                None => Outcome::Lost,
            };
            let extent = blocks_of(id.page);
            // Not reported: what an interrupted checkpoint left of its pages, and the page of another member that a
            // joined member's home had before.
            let may_be_old = self.pages.position.get().is_some() && id.member + 1 == self.members.counted_len();
            if !self.pages.recovering.get() && !may_be_old {
                self.pages.report(Finding::new(address.member, extent, kind, outcome));
            }
        }
        let older = crate::bug_injection::is_injected(crate::bug_injection::InjectedBug::OlderPageCopy);
        let all = [a, b].into_iter().flatten().flatten();
        let best = all.max_by_key(|found| if older { u64::MAX - found.stamp } else { found.stamp });
        match best {
            Some(found) => (found.entries, repair),
            // Both copies are gone: the content on disk is not trusted, and redundancy restores it unverified.
            None => (Box::new([Entry::UNKNOWN; PAGE_ENTRIES as usize]), repair && asked),
        }
    }

    /// Reads the copy at `address`; `None` when its member is not in service.
    pub(crate) async fn read_page(
        self: &Rc<Self>,
        id: PageId,
        address: PageAddress,
        wait: ReadWait,
    ) -> Option<Result<Found, IoError>> {
        let place = self.members.place(address.member);
        // A replacement or absent member has old pages, or none.
        if place.state() != MemberState::InService {
            return None;
        }
        let extent = Extent { start: address.at, len: block::Blocks(1) };
        Some(match self.members.read_metadata(address.member, extent, wait).await {
            Ok(rope) => {
                let block = rope.into_view();
                let found = parse(&block, self.pages.id, id).or_else(|| self.found_before(&block, self.pages.id, id));
                found.ok_or(IoError::new(IoErrorKind::Medium, extent))
            }
            Err(error) => Err(error),
        })
    }

    /// Interprets the page of the member before it, found in this page's home, as an unwritten page.
    ///
    /// The second home of an added mirror has that page until its own is written there, and for a member that is
    /// filled from scratch its second home alone decides.
    fn found_before(&self, block: &[u8], array: [u8; 16], id: PageId) -> Option<Found> {
        let (is, _) = parse_any(block, array)?;
        let is_before = is.page == id.page && is.member + 1 == id.member;
        let is_new =
            id.member + 1 == self.members.counted_len() && self.members.place(id.member).is_filled_from_nothing();
        // Stamp 0, so that any page of its own wins against this one.
        (is_before && is_new).then(|| Found { stamp: 0, entries: Box::new([Entry::UNWRITTEN; PAGE_ENTRIES as usize]) })
    }
}
