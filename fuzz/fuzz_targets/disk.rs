//! In-memory disks that begin with a fixed content, of which an input changes some blocks.

use crate::image::{BLOCK, Image, seal};
use block::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Upper bound of polls until a future over memory is ready.
const TURNS_MAX: u32 = 1_000_000;

/// Disk with blocks of 4096 bytes and without a volatile cache.
pub struct Disk {
    blocks: u64,
    pub image: RefCell<Image>,
    unreadable: RefCell<BTreeSet<u64>>,
}

impl Disk {
    pub fn new(blocks: u64, image: Image) -> Rc<Self> {
        Rc::new(Self { blocks, image: RefCell::new(image), unreadable: RefCell::default() })
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: 4096,
            blocks: Blocks(self.blocks),
            physical_block_bytes: 4096,
            optimal_bytes: 4096,
            volatile_cache: false,
            discard_zeroes: false,
            prefers_unlogged: false,
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry().admit(extent)?;
        let (from, to) = (extent.start.0, extent.end().0);
        if let Some(&bad) = self.unreadable.borrow().range(from..to).next() {
            return Err(IoError::new(IoErrorKind::Medium, Extent::new(bad, 1)));
        }
        let mut data = Buf::zeroed((to - from) as usize * BLOCK);
        for (&at, block) in self.image.borrow().0.range(from..to) {
            let start = (at - from) as usize * BLOCK;
            data.part_mut(start..start + BLOCK).copy_from_slice(block);
        }
        Ok(data.freeze().into())
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.geometry().extent_of(start, data.len())?;
        for (at, block) in (start.0..).zip(data.chunks(BLOCK)) {
            self.unreadable.borrow_mut().remove(&at);
            self.image.borrow_mut().put(at, block);
        }
        Ok(Written::attest())
    }

    async fn flush(&self, _: Written) -> Result<Stable, IoError> {
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.geometry().admit(extent)?;
        Ok(Written::attest())
    }
}

/// Returns the content of a disk, with the first block of each structure and the block after it.
pub fn structured(image: Image) -> (Image, Vec<u64>) {
    // All magic numbers of structures begin in one of two ways (docs/on-disk.md).
    let begins = |block: &[u8]| block.starts_with(b"BLKY") || block.starts_with(b"BYLOG");
    let heads = image.0.iter().filter(|(_, block)| begins(block));
    let places: BTreeSet<u64> = heads.flat_map(|(&at, _)| [at, at + 1]).collect();
    let places = places.into_iter().collect();
    (image, places)
}

/// Change to one block of one disk.
#[derive(Arbitrary, Debug)]
pub struct Change {
    disk: u8,
    /// Index into the places of structures on that disk.
    place: u16,
    pub kind: Kind,
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Kind {
    Flip {
        bit: u16,
    },
    Zeros,
    Unreadable,
    /// Another block of a structure of that disk.
    Other {
        place: u16,
    },
    /// Changed bytes in the first half of the block, under a correct checksum, as an attacker would write them.
    Forged {
        at: u16,
        bytes: [u8; 8],
        width: u8,
    },
}

impl Kind {
    /// True for damage by a medium; false for changes that only an attacker can make.
    pub fn is_decay(self) -> bool {
        matches!(self, Self::Flip { .. } | Self::Zeros | Self::Unreadable)
    }
}

impl Change {
    /// Changes one of `disks`, whose initial content and structures are `bases`; returns its index.
    pub fn strike(&self, disks: &[Rc<Disk>], bases: &[(Image, Vec<u64>)]) -> usize {
        let struck = usize::from(self.disk) % disks.len();
        let (disk, (base, places)) = (&disks[struck], &bases[struck]);
        let place = |number: u16| places[usize::from(number) % places.len()];
        let at = place(self.place);
        let mut block = disk.image.borrow().block(at);
        match self.kind {
            Kind::Flip { bit } => block[usize::from(bit) / 8 % BLOCK] ^= 1 << (bit % 8),
            Kind::Zeros => block.fill(0),
            Kind::Unreadable => {
                disk.unreadable.borrow_mut().insert(at);
                return struck;
            }
            Kind::Other { place: other } => block = base.block(place(other)),
            Kind::Forged { at: byte, bytes, width } => {
                let (from, width) = (usize::from(byte) % (BLOCK / 2), usize::from(width) % 8 + 1);
                block[from..from + width].copy_from_slice(&bytes[..width]);
            }
        }
        let mut image = disk.image.borrow_mut();
        image.put(at, &block);
        if !self.kind.is_decay() {
            // The structure that contains this block may begin up to two blocks before it.
            for head in [at, at.saturating_sub(1), at.saturating_sub(2)] {
                seal(&mut image, head);
            }
        }
        struck
    }
}

/// Polls `future` to its end.
///
/// *Panics*: when it does not end, although it waits only for memory.
pub fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..TURNS_MAX {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
    panic!("it waits for something that does not come");
}

/// Returns a block that contains its number and version.
pub fn pattern(block: u64, version: u8) -> [u8; BLOCK] {
    let mut bytes = [version; BLOCK];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}
