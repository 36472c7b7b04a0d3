//! Encoding of a tree node as a page of 4096 bytes.

use super::{Damage, Key};
use block::frame::{Format, FrameError};
use block::{Buf, View};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const FORMAT: Format = Format::plain(*b"BLKYDPAG");
const PAGE_BYTES: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    frame: [u8; 12],
    count: U16,
    level: u8,
    reserved: u8,
    family: [u8; 16],
    birth: U64,
    number: U64,
    generation: U64,
    reserved_too: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Entry {
    high: U64,
    low: U64,
    value: U64,
}

/// Maximum number of entries in a page.
pub(super) const ENTRIES_MAX: usize = (PAGE_BYTES - size_of::<Header>()) / size_of::<Entry>();

/// Owner, number and age of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageIdentity {
    pub(crate) family: [u8; 16],
    pub(crate) birth: u64,
    pub(crate) number: u64,
    /// Generation of the checkpoint that wrote it.
    pub(crate) generation: u64,
}

/// Verified page.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    bytes: View,
    count: u16,
    level: u8,
}

impl Page {
    /// Encodes a node as a page.
    ///
    /// *Panics*: with more entries than fit.
    pub(crate) fn emit(identity: PageIdentity, level: u8, entries: &[(Key, u64)]) -> Self {
        assert!(!entries.is_empty(), "a node has entries");
        assert!(entries.len() <= ENTRIES_MAX, "a page holds at most {ENTRIES_MAX} entries");
        // Pages stay in the cache, so they do not come from the pool of I/O buffers.
        let mut bytes = Buf::resident(PAGE_BYTES);
        let count = entries.len() as u16;
        let header = Header {
            frame: [0; 12],
            count: count.into(),
            level,
            reserved: 0,
            family: identity.family,
            birth: identity.birth.into(),
            number: identity.number.into(),
            generation: identity.generation.into(),
            reserved_too: 0.into(),
        };
        header.write_to_prefix(&mut bytes).expect("a header is smaller than a page");
        let places = bytes[size_of::<Header>()..].chunks_exact_mut(size_of::<Entry>());
        for (place, (key, value)) in places.zip(entries) {
            let entry =
                Entry { high: ((key.0 >> 64) as u64).into(), low: (key.0 as u64).into(), value: (*value).into() };
            place.copy_from_slice(entry.as_bytes());
        }
        FORMAT.seal(&mut bytes);
        Self { bytes: bytes.freeze(), count, level }
    }

    pub(crate) fn bytes(&self) -> &View {
        &self.bytes
    }

    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.count)
    }

    fn entries(&self) -> &[Entry] {
        let bytes = self.bytes.get(size_of::<Header>()..).unwrap_or_default();
        let entries = <[Entry]>::ref_from_prefix_with_elems(bytes, self.len());
        entries.expect("the count was checked when the page was made").0
    }

    pub(crate) fn entry(&self, at: usize) -> (Key, u64) {
        self.entries()[at].read()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (Key, u64)> + '_ {
        self.entries().iter().map(Entry::read)
    }

    /// Number of entries with a key of at most `key`.
    pub(crate) fn rank(&self, key: Key) -> usize {
        // Keys ascend, as `parse_page` has checked.
        self.entries().partition_point(|entry| entry.read().0 <= key)
    }
}

impl Entry {
    fn read(&self) -> (Key, u64) {
        (Key(u128::from(self.high.get()) << 64 | u128::from(self.low.get())), self.value.get())
    }
}

/// Verifies and parses the page in `bytes`; also returns the generation that wrote it.
pub(crate) fn parse_page(bytes: View, family: [u8; 16], birth: u64, number: u64) -> Result<(Page, u64), Damage> {
    let header = FORMAT.parse::<Header>(&bytes).map_err(|not| match not {
        FrameError::Damaged => Damage("a page has a wrong checksum"),
        _ => Damage("there is no page where one should be"),
    })?;
    // A page of an earlier family on the same slabs has a valid checksum, so its owner is compared.
    if header.family != family || header.birth.get() != birth {
        return Err(Damage("a page belongs to another family"));
    }
    // A misdirected write leaves a valid page at the wrong address.
    if header.number.get() != number {
        return Err(Damage("a page lies at another's place"));
    }
    let (count, level, generation) = (header.count.get(), header.level, header.generation.get());
    // Checked before entries are read: the count addresses memory.
    if usize::from(count) > ENTRIES_MAX || count == 0 {
        return Err(Damage("a page has an impossible number of entries"));
    }
    let page = Page { bytes, count, level };
    // Searches are binary and rely on the order, which a checksum does not prove.
    let rising = page.entries().windows(2).all(|pair| pair[0].read().0 < pair[1].read().0);
    if rising { Ok((page, generation)) } else { Err(Damage("the keys of a page are out of order")) }
}
