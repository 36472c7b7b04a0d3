//! Storage of a few pages in shared huge pages.

use crate::sys::region::{REGION_BYTES, Region, SLOT_BYTES_MIN, Slot};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Number of size classes: 4 KiB, 8 KiB and so on to 1 MiB.
const CLASSES: usize = (REGION_BYTES / SLOT_BYTES_MIN).trailing_zeros() as usize;

/// Limit on free memory that a thread holds. Beyond it freed slots are returned to the kernel, although their huge page
/// is still in use.
const HELD_BYTES_MAX: usize = 32 << 20;

thread_local! {
    static KNOWN: RefCell<FreeRegions> = RefCell::default();
}

/// Regions with a free slot, as far as this thread knows, by class. Each is listed by one thread at most.
#[derive(Default)]
struct FreeRegions {
    regions: [Vec<Arc<Region>>; CLASSES],
    /// Bytes of free slots that still hold memory: freed by this thread and not claimed since.
    held_bytes: usize,
}

/// Zero-initialized storage, aligned to pages, in a slot of a huge page.
///
/// Many slabs of a size share a huge page: the TLB of a CPU covers a few thousand pages, which are a few megabytes with
/// pages of 4 KiB, and every other access walks four tables (up to twenty-four steps on a virtual machine).
#[derive(Debug)]
pub struct Slab(Slot);

impl Slab {
    /// Returns `len` zero bytes; `None` where `len` is not a power of two from 4 KiB to 1 MiB.
    ///
    /// *Panics*: when there is no memory left.
    #[must_use]
    pub fn zeroed(len: usize) -> Option<Self> {
        let is_class = len.is_power_of_two() && (SLOT_BYTES_MIN..REGION_BYTES).contains(&len);
        is_class.then(|| Self(KNOWN.with_borrow_mut(|known| known.claim(len))))
    }
}

impl Deref for Slab {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Slab {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // In a thread that is exiting the table is gone: regions are unmapped with the last of their slots.
        let _ = KNOWN.try_with(|known| known.borrow_mut().will_be_free(&mut self.0));
    }
}

impl Drop for FreeRegions {
    fn drop(&mut self) {
        // The thread is exiting. Slots may have gone to other threads, and the next one that frees a slot of the region
        // lists it. Otherwise its free slots would be unused until the last of its slots is freed.
        self.regions.iter().flatten().for_each(|region| region.unlist());
    }
}

impl FreeRegions {
    fn claim(&mut self, len: usize) -> Slot {
        let regions = &mut self.regions[class_of(len)];
        while let Some(region) = regions.last() {
            if let Some((slot, was_used)) = region.claim() {
                // Another thread may have freed it, which this thread has not counted.
                self.held_bytes = self.held_bytes.saturating_sub(if was_used { len } else { 0 });
                return slot;
            }
            // Slots that other threads free from now on become visible when a slot of the region is freed here.
            region.unlist();
            regions.pop();
        }
        let region = Arc::new(Region::map(len).expect("the limits keep storage within memory"));
        let (slot, _) = region.claim().expect("all of it is free");
        region.list();
        regions.push(region);
        slot
    }

    /// Prepares to free `slot`. A region without other owned slots is dropped with it, unless it is the only one of its
    /// class.
    fn will_be_free(&mut self, slot: &mut Slot) {
        let len = slot.bytes().len();
        // MADV_DONTNEED of a part costs the region its huge page, so it is used beyond the limit only.
        if self.held_bytes + len > HELD_BYTES_MAX {
            slot.forget();
        } else {
            self.held_bytes += len;
        }
        // The slot is freed after this, so the region counts it as owned.
        let (regions, region) = (&mut self.regions[class_of(len)], slot.region());
        // A region that nobody lists was full: its slots become available through this thread.
        if region.list() {
            regions.push(region.clone());
        } else if regions.len() > 1
            && region.owned_slots() == 1
            && let Some(at) = regions.iter().rposition(|known| Arc::ptr_eq(known, region))
        {
            // Listed here, and only the listing thread claims slots: none can be claimed in between.
            self.held_bytes = self.held_bytes.saturating_sub(region.held_bytes());
            regions.swap_remove(at);
        }
    }
}

fn class_of(len: usize) -> usize {
    (len / SLOT_BYTES_MIN).trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the number of listed regions of a class, their owned slots, and the free memory held, in slots.
    fn known(len: usize) -> (usize, usize, usize) {
        KNOWN.with_borrow(|known| {
            let regions = &known.regions[class_of(len)];
            let owned = regions.iter().map(|region| region.owned_slots()).sum();
            (regions.len(), owned, known.held_bytes / len)
        })
    }

    proptest! {
        #[test]
        fn slabs_are_zero_at_first_and_nobody_elses(steps in prop::collection::vec((0..3u32, any::<u8>(), any::<prop::sample::Index>()), 1..200)) {
            let mut held: Vec<(Slab, u8)> = Vec::new();
            for (kind, byte, which) in steps {
                if kind > 0 || held.is_empty() {
                    let len = SLOT_BYTES_MIN << (kind % 2);
                    let mut slab = Slab::zeroed(len).expect("it is a class");
                    prop_assert_eq!(slab.as_ptr().align_offset(len), 0);
                    prop_assert!(*slab == vec![0; len][..], "{} bytes", len);
                    slab.fill(byte);
                    held.push((slab, byte));
                } else {
                    drop(held.swap_remove(which.index(held.len())));
                }
            }
            for (slab, byte) in &held {
                prop_assert!(**slab == vec![*byte; slab.len()][..]);
            }
        }
    }

    #[test]
    fn only_whole_powers_of_two_are_slabs() {
        let sizes = [0, 1, 512, 4095, 4096, 4097, 8192, 12288, 65536, 1 << 20, 2 << 20, usize::MAX];
        let given: Vec<usize> = sizes.into_iter().filter_map(Slab::zeroed).map(|slab| slab.len()).collect();
        assert_eq!(given, [4096, 8192, 65536, 1 << 20]);
    }

    #[test]
    fn regions_go_when_nothing_of_them_is_owned_and_one_stays() {
        const LEN: usize = 64 << 10;
        let mut slabs: Vec<Slab> = (0..100).filter_map(|_| Slab::zeroed(LEN)).collect();
        assert_eq!(known(LEN), (1, 4, 0), "three regions are full");
        let rest = slabs.split_off(3);
        drop(slabs);
        assert_eq!(known(LEN), (2, 33, 3));
        drop(rest);
        assert_eq!(known(LEN), (1, 0, 4), "the region that is left has held four");
        let _slab = Slab::zeroed(LEN);
        assert_eq!(known(LEN), (1, 1, 3));
    }

    #[test]
    fn what_is_free_beside_what_is_used_is_given_back_beyond_a_bound() {
        const LEN: usize = 1 << 20;
        let (kept, freed): (Vec<_>, Vec<_>) =
            (0..100).filter_map(|_| Slab::zeroed(LEN)).enumerate().partition(|(number, _)| number % 2 == 0);
        drop(freed);
        assert_eq!(known(LEN), (50, 50, HELD_BYTES_MAX / LEN));
        let held: usize =
            KNOWN.with_borrow(|known| known.regions[class_of(LEN)].iter().map(|region| region.held_bytes()).sum());
        assert_eq!(held, 50 * LEN + HELD_BYTES_MAX);
        let again: Vec<Slab> = (0..50).filter_map(|_| Slab::zeroed(LEN)).collect();
        assert!(again.iter().all(|slab| slab.iter().all(|&byte| byte == 0)));
        assert_eq!(known(LEN).2, 0);
        drop(kept);
    }

    #[test]
    fn slab_that_another_thread_drops_is_given_back() {
        const LEN: usize = 1 << 20;
        let slabs: Vec<Slab> = (0..3).filter_map(|_| Slab::zeroed(LEN)).collect();
        assert_eq!(known(LEN), (1, 1, 0));
        let other = std::thread::spawn(move || {
            drop(slabs);
            known(LEN)
        });
        let of_other = other.join().expect("dropping does not panic");
        assert_eq!(of_other, (1, 0, 3), "the region that nobody knew");
        assert_eq!(known(LEN), (1, 0, 0));
    }

    #[test]
    fn region_of_a_thread_that_has_ended_is_used_by_the_thread_that_frees_a_slot() {
        const LEN: usize = 512 << 10;
        let other = std::thread::spawn(|| (0..2).filter_map(|_| Slab::zeroed(LEN)).collect::<Vec<_>>());
        let mut slabs = other.join().expect("claiming does not panic");
        assert_eq!(known(LEN), (0, 0, 0));
        drop(slabs.pop());
        assert_eq!(known(LEN), (1, 1, 1), "the region whose thread has ended");
        slabs.extend((0..3).filter_map(|_| Slab::zeroed(LEN)));
        assert_eq!(known(LEN), (1, 4, 0), "all of its slots are claimed");
    }
}
