//! Pages of secrets: a few large runs of slots, so that the secrets of ten thousand hosts take a few megabytes and a
//! few mappings.
//!
//! A run is never unmapped. Its slots are freed and reused.

use memmap2::{Advice, MmapMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zeroize::{Zeroize, Zeroizing};

/// Size of a run of slots in bytes.
const RUN_BYTES: usize = 64 << 10;
/// Slot sizes in bytes. A longer secret has pages of its own.
const SLOT_BYTES: [usize; 2] = [64, 256];

/// Free slots by size. All are zeroed.
static FREE: Mutex<[Vec<&'static mut [u8]>; SLOT_BYTES.len()]> = Mutex::new([const { Vec::new() }; SLOT_BYTES.len()]);
/// True once the system has refused to lock pages, or had none.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Memory of one secret.
pub(crate) enum Storage {
    /// Slot, and the length of the secret at its beginning.
    Slot(&'static mut [u8], usize),
    /// Pages of its own, and the length of the secret.
    Pages(MmapMut, usize),
    /// Ordinary memory, where the system provided no pages.
    Heap(Zeroizing<Vec<u8>>),
}

impl Storage {
    /// Stores these bytes.
    pub(crate) fn with(bytes: &[u8]) -> Self {
        let found = match SLOT_BYTES.iter().position(|size| bytes.len() <= *size) {
            Some(kind) => slot(kind).map(|slot| Self::Slot(slot, bytes.len())),
            None => pages(bytes.len()).map(|pages| Self::Pages(pages, bytes.len())),
        };
        let Some(mut place) = found else {
            // Storing a secret never fails; `all_are_locked` reports the weaker protection.
            REFUSED.store(true, Ordering::Relaxed);
            return Self::Heap(Zeroizing::new(bytes.to_vec()));
        };
        // The place may be longer than the secret; the bytes behind it stay zero.
        place.all_mut().iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        place
    }

    /// The stored bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        let (all, len) = match self {
            Self::Slot(slot, len) => (&**slot, *len),
            Self::Pages(pages, len) => (&**pages, *len),
            Self::Heap(bytes) => (&***bytes, bytes.len()),
        };
        all.get(..len).unwrap_or_default()
    }

    fn all_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Slot(slot, _) => slot,
            Self::Pages(pages, _) => pages,
            Self::Heap(bytes) => bytes,
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // Wiped before the slot is free: a free slot must hold zeros.
        self.all_mut().zeroize();
        if let Self::Slot(slot, _) = self {
            let slot: &'static mut [u8] = std::mem::take(slot);
            // Runs are cut into these sizes only, so the length identifies the list of the slot.
            let kind = SLOT_BYTES.iter().position(|size| *size == slot.len()).unwrap_or(0);
            free()[kind].push(slot);
        }
    }
}

/// True when all secrets so far are in locked pages; false once the system has refused some (`RLIMIT_MEMLOCK`), or had
/// none.
#[must_use]
pub fn all_are_locked() -> bool {
    !REFUSED.load(Ordering::Relaxed)
}

fn free() -> MutexGuard<'static, [Vec<&'static mut [u8]>; SLOT_BYTES.len()]> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a free slot of this kind, from a new run when there is none.
fn slot(kind: usize) -> Option<&'static mut [u8]> {
    let mut free = free();
    let free = &mut free[kind];
    if free.is_empty() {
        // Leaked on purpose: slots are handed out as `'static`, and a run is never unmapped.
        let run: &'static mut MmapMut = Box::leak(Box::new(pages(RUN_BYTES)?));
        // A run is a multiple of every slot size, so nothing is left over.
        free.extend(run.chunks_exact_mut(SLOT_BYTES[kind]));
    }
    free.pop()
}

/// Maps zeroed pages that are not dumped, and not swapped if the system allows locking.
fn pages(len: usize) -> Option<MmapMut> {
    let pages = MmapMut::map_anon(len).ok()?;
    // A refusal is recorded, not an error: an unlocked secret is better than a daemon that does not start.
    let undumped = pages.advise(Advice::DontDump);
    let locked = pages.lock();
    // Both were attempted: one refusal does not cost the other protection.
    if undumped.and(locked).is_err() {
        REFUSED.store(true, Ordering::Relaxed);
    }
    Some(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mappings() -> usize {
        std::fs::read_to_string("/proc/self/maps").expect("Linux has it").lines().count()
    }

    #[test]
    fn many_secrets_take_few_mappings_and_their_slots_are_used_again() {
        let before = mappings();
        let many: Vec<Storage> = (0..20_000u32).map(|n| Storage::with(&n.to_be_bytes().repeat(5))).collect();
        assert!(mappings() < before + 100, "{} mappings, {before} before", mappings());
        assert!(many.iter().zip(0u32..).all(|(place, n)| place.bytes() == n.to_be_bytes().repeat(5)));
        let at = many.iter().map(|place| place.bytes().as_ptr()).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(at.len(), many.len(), "each has its own");
        drop(many);
        // Other tests take slots at the same time, and free theirs.
        let again: Vec<Storage> = (0..100).map(|_| Storage::with(b"another secret")).collect();
        let again = again.iter().find(|place| at.contains(&place.bytes().as_ptr())).expect("slots are used again");
        let Storage::Slot(slot, len) = again else { panic!("it is short") };
        assert!(slot[*len..].iter().all(|byte| *byte == 0), "nothing is left of what was there");
    }

    #[test]
    fn secret_of_any_length_has_a_place() {
        for len in [0, 1, 64, 65, 256, 257, 100_000] {
            assert_eq!(Storage::with(&vec![7; len]).bytes(), vec![7; len]);
        }
    }
}
