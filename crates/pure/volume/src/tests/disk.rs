//! Simulated disk in memory that records its writes and flushes, and the states that a power loss may leave.

use block::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use shard::yield_now;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

const BLOCK: usize = 4096;
/// Unit that a power loss leaves intact (atomic sector size).
const ATOM: usize = 512;
/// Content of the data area before the disk joined the pool.
pub(crate) const GARBAGE: u8 = 0xee;
/// Content left by an interrupted fresh write.
pub(crate) const TORN: u8 = 0xdd;
const GARBAGE_FROM: u64 = crate::layout::DATA_START;

/// Size of a piece of an image in bytes.
const CHUNK: usize = 64 << 10;
const CHUNK_BLOCKS: u64 = (CHUNK / BLOCK) as u64;

/// Content of a disk; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Image(BTreeMap<u64, Rc<Vec<u8>>>);

impl Image {
    /// Bytes of chunk `at`, initialized with the previous content on first access.
    fn chunk(&mut self, at: u64) -> &mut [u8] {
        let chunk = self.0.entry(at).or_insert_with(|| Rc::new(vec![unwritten(at * CHUNK_BLOCKS); CHUNK]));
        Rc::make_mut(chunk).as_mut_slice()
    }

    /// True when the bytes occur at a multiple of `align`.
    pub(crate) fn holds(&self, bytes: &[u8], align: usize) -> bool {
        self.0.values().any(|chunk| chunk.windows(bytes.len()).step_by(align).any(|part| part == bytes))
    }

    /// Splits `len` bytes from byte `at` on at chunk boundaries: the chunk, and ranges in it and in the bytes.
    fn parts(at: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let from = at + done as u64;
            let inside = (from % CHUNK as u64) as usize;
            let here = (CHUNK - inside).min(len - done);
            let part = (from / CHUNK as u64, inside..inside + here, done..done + here);
            done += here;
            (here > 0).then_some(part)
        })
    }

    fn write_at(&mut self, at: u64, data: &[u8]) {
        for (chunk, inside, of_data) in Self::parts(at, data.len()) {
            self.chunk(chunk)[inside].copy_from_slice(&data[of_data]);
        }
    }

    fn read(&self, start: u64, into: &mut [u8]) {
        for (chunk, inside, of_data) in Self::parts(start * BLOCK as u64, into.len()) {
            match self.0.get(&chunk) {
                Some(bytes) => into[of_data].copy_from_slice(&bytes[inside]),
                None => into[of_data].fill(unwritten(chunk * CHUNK_BLOCKS)),
            }
        }
    }

    fn write(&mut self, start: u64, data: &[u8]) {
        self.write_at(start * BLOCK as u64, data);
    }

    fn write_atom(&mut self, start: u64, atom: usize, data: &[u8]) {
        self.write_at(start * BLOCK as u64 + (atom * ATOM) as u64, &data[atom * ATOM..(atom + 1) * ATOM]);
    }
}

/// Initial content of a block.
fn unwritten(block: u64) -> u8 {
    if block >= GARBAGE_FROM { GARBAGE } else { 0 }
}

/// Request that a disk received.
#[derive(Clone)]
pub(crate) enum Event {
    Write { disk: usize, start: u64, data: View },
    Flush { disk: usize },
}

/// Requests to all disks of a run, in order.
pub(crate) type Journal = Rc<RefCell<Vec<Event>>>;

/// Deliberate fault of a disk, to prove that the checker detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Flushes of metadata do nothing.
    SkipFlush,
    /// Both catalog slots are written in one flush.
    BothSlots,
}

pub(crate) struct SimDisk {
    number: usize,
    blocks: u64,
    image: RefCell<Image>,
    journal: Journal,
    slow: bool,
    /// Number of additional executor turns that a host write takes.
    pub(crate) lag: Cell<u32>,
    pub(crate) dead: Cell<bool>,
    /// Blocks that are unreadable until they are written.
    pub(crate) unreadable: RefCell<BTreeSet<u64>>,
    /// Blocks that cannot be written; what they hold stays.
    pub(crate) unwritable: RefCell<BTreeSet<u64>>,
    /// Number of metadata writes to reject.
    pub(crate) refusals: Cell<u32>,
    /// Number of writes to reject for lack of space, without any effect.
    pub(crate) full: Cell<u32>,
    pub(crate) discard_zeroes: Cell<bool>,
    pub(crate) prefers_fresh: Cell<bool>,
    pub(crate) bug: Cell<Option<Bug>>,
}

impl SimDisk {
    pub(crate) fn new(number: usize, blocks: u64, image: Image, journal: Journal) -> Self {
        let (image, dead, discard_zeroes) = (RefCell::new(image), Cell::new(false), Cell::new(false));
        let prefers_fresh = Cell::new(false);
        let bug = Cell::new(None);
        Self {
            number,
            blocks,
            image,
            journal,
            slow: false,
            lag: Cell::new(0),
            dead,
            unreadable: RefCell::default(),
            unwritable: RefCell::default(),
            refusals: Cell::new(0),
            full: Cell::new(0),
            discard_zeroes,
            prefers_fresh,
            bug,
        }
    }

    /// Creates a disk whose operations take one executor turn each.
    pub(crate) fn slow(blocks: u64) -> Self {
        Self::new(0, blocks, Image::default(), Journal::default()).delayed()
    }

    pub(crate) fn delayed(self) -> Self {
        Self { slow: true, ..self }
    }

    pub(crate) fn image(&self) -> Image {
        self.image.borrow().clone()
    }

    /// Bytes of a block.
    pub(crate) fn block(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        self.image.borrow().read(block, &mut bytes);
        bytes
    }

    /// Overwrites bytes without recording it.
    pub(crate) fn scribble(&self, at_bytes: u64, bytes: &[u8]) {
        self.image.borrow_mut().write_at(at_bytes, bytes);
    }

    async fn turn(&self, extent: Extent) -> Result<(), IoError> {
        if self.slow {
            yield_now().await;
        }
        if self.dead.get() { Err(IoError::new(IoErrorKind::Gone, extent)) } else { Ok(()) }
    }

    fn put(&self, start: u64, data: View) {
        let blocks = start..start + (data.len() / BLOCK) as u64;
        self.unreadable.borrow_mut().retain(|block| !blocks.contains(block));
        self.image.borrow_mut().write(start, &data);
        self.journal.borrow_mut().push(Event::Write { disk: self.number, start, data });
    }
}

impl BlockDevice for SimDisk {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: 4096,
            blocks: Blocks(self.blocks),
            physical_block_bytes: 4096,
            optimal_bytes: 4096,
            volatile_cache: true,
            discard_zeroes: self.discard_zeroes.get(),
            prefers_unlogged: self.prefers_fresh.get(),
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry().admit(extent)?;
        self.turn(extent).await?;
        if self.unreadable.borrow().range(extent.start.0..extent.end().0).next().is_some() {
            return Err(IoError::new(IoErrorKind::Medium, extent));
        }
        let mut buf = Buf::recycled(extent.len.0 as usize * BLOCK);
        self.image.borrow().read(extent.start.0, &mut buf);
        Ok(buf.into())
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        // Metadata begins with a magic whose first byte is this one.
        for _ in 0..if data[0] == b'B' { 0 } else { self.lag.get() } {
            self.turn(extent).await?;
        }
        self.turn(extent).await?;
        if self.unwritable.borrow().range(extent.start.0..extent.end().0).next().is_some() {
            return Err(IoError::new(IoErrorKind::Medium, extent));
        }
        if self.full.get() > 0 {
            self.full.set(self.full.get() - 1);
            return Err(IoError::new(IoErrorKind::NoSpace, extent));
        }
        if data[..5] == *b"BLKYD" && start.0 >= GARBAGE_FROM && self.refusals.get() > 0 {
            self.refusals.set(self.refusals.get() - 1);
            // An unknown part of the write has reached the disk.
            let torn: Vec<u8> =
                data.iter().enumerate().map(|(at, &byte)| if at % 4096 < 512 { byte } else { TORN }).collect();
            self.put(start.0, Buf::copy_of(&torn).freeze());
            return Err(IoError::new(IoErrorKind::Medium, extent));
        }
        if self.bug.get() == Some(Bug::BothSlots) && crate::layout::SLOT_STARTS.contains(&start.0) {
            crate::layout::SLOT_STARTS.iter().for_each(|&slot| self.put(slot, data.clone()));
        } else {
            self.put(start.0, data);
        }
        Ok(Written::attest())
    }

    /// Fresh write: until a flush has ended, the blocks may hold garbage or the data.
    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        self.turn(extent).await?;
        let mut garbage = Buf::recycled(data.len());
        garbage.fill(TORN);
        self.put(start.0, garbage.freeze());
        self.turn(extent).await?;
        self.put(start.0, data);
        Ok(Written::attest())
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        self.turn(Extent::default()).await?;
        if self.bug.get() != Some(Bug::SkipFlush) {
            self.journal.borrow_mut().push(Event::Flush { disk: self.number });
        }
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.geometry().admit(extent)?;
        self.turn(extent).await?;
        if self.discard_zeroes.get() {
            self.put(extent.start.0, View::zeroed(extent.len.0 as usize * BLOCK));
        }
        Ok(Written::attest())
    }
}

/// Runs a future to completion on disks that need no external event.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
    panic!("the future waits for nobody");
}

/// Atom that a power loss may or may not leave.
#[derive(Clone, Copy)]
struct Undecided {
    /// Index of the open write.
    write: usize,
    disk: usize,
    atom: usize,
}

/// Write that no flush has made durable.
struct OpenWrite {
    disk: usize,
    start: u64,
    data: View,
}

/// States that a power loss may leave on some disks.
pub(crate) struct PowerCut {
    /// State of all durable writes.
    durable: Vec<Image>,
    open: Vec<OpenWrite>,
}

impl PowerCut {
    pub(crate) fn of(images: Vec<Image>) -> Self {
        Self { durable: images, open: Vec::new() }
    }

    /// Advances the power loss past `event`.
    pub(crate) fn push(&mut self, event: &Event) {
        match event {
            Event::Write { disk, start, data } => {
                self.open.push(OpenWrite { disk: *disk, start: *start, data: data.clone() });
            }
            Event::Flush { disk } => {
                for write in self.open.extract_if(.., |write| write.disk == *disk) {
                    self.durable[write.disk].write(write.start, &write.data);
                }
            }
        }
    }

    fn undecided(&self) -> Vec<Undecided> {
        let atoms = |(write, open): (usize, &OpenWrite)| {
            let disk = open.disk;
            (0..open.data.len() / ATOM).map(move |atom| Undecided { write, disk, atom }).collect::<Vec<_>>()
        };
        self.open.iter().enumerate().flat_map(atoms).collect()
    }

    /// Images of the disks with those undecided atoms that `lands` selects.
    fn images(&self, undecided: &[Undecided], lands: impl Fn(usize, Undecided) -> bool) -> Vec<Image> {
        let mut images = self.durable.clone();
        for (at, &one) in undecided.iter().enumerate() {
            if lands(at, one) {
                let write = &self.open[one.write];
                images[one.disk].write_atom(write.start, one.atom, &write.data);
            }
        }
        images
    }

    /// Images of the disks with those open writes, as a whole, that `lands` selects.
    fn whole(&self, lands: impl Fn(usize, &OpenWrite) -> bool) -> Vec<Image> {
        let mut images = self.durable.clone();
        for (_, write) in self.open.iter().enumerate().filter(|(at, write)| lands(*at, write)) {
            images[write.disk].write(write.start, &write.data);
        }
        images
    }

    /// Images of the disks on which the open writes that `is_torn` selects by their start are garbage, and the
    /// others are missing.
    pub(crate) fn torn(&self, is_torn: impl Fn(u64) -> bool) -> Vec<Image> {
        let mut images = self.durable.clone();
        for write in self.open.iter().filter(|write| is_torn(write.start)) {
            images[write.disk].write(write.start, &vec![TORN; write.data.len()]);
        }
        images
    }

    /// Calls `check` with the disks of every state tried.
    ///
    /// All states when few atoms are undecided, otherwise a selection: none, all, each disk alone and missing,
    /// every set of few whole writes, of many each alone and prefixes, single atoms, and random ones.
    pub(crate) fn each(&self, random: &mut Random, thorough: bool, mut check: impl FnMut(Vec<Image>)) {
        check(self.whole(|_, _| false));
        if self.open.is_empty() {
            return;
        }
        check(self.whole(|_, _| true));
        let mut disks: Vec<usize> = self.open.iter().map(|write| write.disk).collect();
        disks.dedup();
        for &one in disks.iter().filter(|_| disks.len() > 1) {
            check(self.whole(|_, write| write.disk == one));
            check(self.whole(|_, write| write.disk != one));
        }
        if !thorough {
            return;
        }
        let writes = self.open.len();
        if (disks.len() + 1..=4).contains(&writes) {
            (1..(1_u32 << writes) - 1).for_each(|set| check(self.whole(|at, _| set >> at & 1 == 1)));
        }
        for one in (0..writes).filter(|_| writes > disks.len().max(4)) {
            check(self.whole(|at, _| at < one));
            check(self.whole(|at, _| at == one));
        }
        let undecided = self.undecided();
        let count = undecided.len();
        if count <= 4 {
            let sets = 1..(1_u32 << count) - 1;
            sets.for_each(|set| check(self.images(&undecided, |at, _| set >> at & 1 == 1)));
            return;
        }
        // Metadata is torn in many ways, long runs of zeros in few.
        for _ in 0..if count < 500 { 6 } else { 1 } {
            let one = random.below(count as u64) as usize;
            check(self.images(&undecided, |at, _| at == one));
            check(self.images(&undecided, |at, _| at != one));
            check(self.images(&undecided, |at, _| at < one));
            let salt = random.next();
            check(self.images(&undecided, |at, _| Random(salt ^ at as u64).next() & 1 == 1));
        }
    }
}

/// Pseudo-random generator with a seed (`splitmix64`).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
