//! Simulated disk in memory, with latency and injected errors; records events so that power cuts can be simulated.

use super::{Random, TestRuntime};
use crate::Runtime;
use block::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

/// Atomic unit of a power cut, in bytes, and granularity of an image.
const ATOM: usize = 512;

/// Content of a disk. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Image(BTreeMap<u64, Rc<[u8; ATOM]>>);

impl Image {
    fn write_atom(&mut self, at: u64, atom: &[u8]) {
        self.0.insert(at, Rc::new(atom.try_into().unwrap()));
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        for (atom, bytes) in (at..).zip(data.chunks(ATOM)) {
            self.write_atom(atom, bytes);
        }
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        for (atom, bytes) in (at..).zip(into.chunks_mut(ATOM)) {
            match self.0.get(&atom) {
                Some(found) => bytes.copy_from_slice(&found[..]),
                None => bytes.fill(0),
            }
        }
    }
}

/// Event on a disk. Addresses are in atoms.
#[derive(Clone)]
pub(crate) enum Event {
    Submit {
        id: u64,
        disk: usize,
        at: u64,
        data: View,
        volatile: bool,
    },
    Done {
        id: u64,
    },
    /// The write never reached the disk.
    Cancel {
        id: u64,
    },
    Flush {
        covered: Rc<Vec<u64>>,
    },
    /// The owner recorded the log as abandoned; `Settled`: as completely stable below.
    Abandoned(Vec<u128>),
    Settled,
}

/// Events of all disks of a run, in order.
#[derive(Clone, Default)]
pub(crate) struct Journal(Rc<RefCell<Vec<Event>>>);

impl Journal {
    pub(crate) fn push(&self, event: Event) {
        self.0.borrow_mut().push(event);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.borrow().clone()
    }
}

#[derive(Clone)]
pub(crate) struct Disk(Rc<Inner>);

pub(crate) struct Inner {
    runtime: TestRuntime,
    journal: Journal,
    number: usize,
    geometry: Geometry,
    image: RefCell<Image>,
    open: RefCell<Vec<u64>>,
    pub(crate) latency: Cell<Duration>,
    pub(crate) bytes_per_second: Cell<u64>,
    /// Time at which everything submitted so far has passed the disk's bus.
    busy_until: Cell<shard::Time>,
    /// Error of every write; the write is then executed in part.
    pub(crate) fail_writes: Cell<Option<IoErrorKind>>,
    pub(crate) fail_flushes: Cell<bool>,
    /// Blocks that can be neither read nor written.
    pub(crate) bad: RefCell<BTreeSet<u64>>,
    pub(crate) reads: Cell<u64>,
    pub(crate) writes: RefCell<Vec<Extent>>,
    /// Atomic writes among `writes`.
    pub(crate) atomic: RefCell<Vec<Extent>>,
    pub(crate) flushes: Cell<u64>,
}

impl Deref for Disk {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// Write in flight; when dropped, it is executed or not, at random.
struct Submitted<'a> {
    disk: &'a Disk,
    id: u64,
    at: u64,
    data: View,
    ended: bool,
}

impl Drop for Submitted<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // A write that was given to a disk cannot be taken back: it may be executed although its caller is gone.
            let done = self.disk.runtime.random(2) == 0;
            self.end(done);
        }
    }
}

impl Submitted<'_> {
    fn end(&mut self, done: bool) {
        self.ended = true;
        if done {
            self.disk.image.borrow_mut().write(self.at, &self.data);
            self.disk.open.borrow_mut().push(self.id);
        }
        let id = self.id;
        self.disk.journal.push(if done { Event::Done { id } } else { Event::Cancel { id } });
    }

    /// Fails the write after some of its atoms were written.
    fn fail(&mut self) {
        self.ended = true;
        self.disk.journal.push(Event::Cancel { id: self.id });
        let (disk, volatile) = (self.disk.number, self.disk.geometry.volatile_cache);
        // Each atom becomes a write of its own, because a power cut may keep any part of them.
        for at in (0..self.data.len()).step_by(ATOM) {
            if self.disk.runtime.random(2) == 0 {
                let id = self.disk.journal.len() as u64;
                let (data, at) = (self.data.slice(at..at + ATOM), self.at + (at / ATOM) as u64);
                self.disk.image.borrow_mut().write_atom(at, &data);
                self.disk.journal.push(Event::Submit { id, disk, at, data, volatile });
                self.disk.journal.push(Event::Done { id });
                self.disk.open.borrow_mut().push(id);
            }
        }
    }
}

impl Disk {
    pub(crate) fn new(runtime: &TestRuntime, number: usize, block_bytes: u32, bytes: u64, journal: &Journal) -> Self {
        let geometry = Geometry {
            block_bytes,
            blocks: Blocks(bytes / u64::from(block_bytes)),
            physical_block_bytes: 4096,
            optimal_bytes: 32 << 10,
            volatile_cache: true,
            discard_zeroes: true,
            prefers_unlogged: false,
        };
        Self::with_image(runtime, number, geometry, Image::default(), journal)
    }

    pub(crate) fn with_image(
        runtime: &TestRuntime,
        number: usize,
        geometry: Geometry,
        image: Image,
        journal: &Journal,
    ) -> Self {
        Self(Rc::new(Inner {
            runtime: runtime.clone(),
            journal: journal.clone(),
            number,
            geometry,
            image: RefCell::new(image),
            open: RefCell::default(),
            latency: Cell::new(Duration::ZERO),
            bytes_per_second: Cell::new(0),
            busy_until: Cell::default(),
            fail_writes: Cell::new(None),
            fail_flushes: Cell::new(false),
            bad: RefCell::default(),
            reads: Cell::new(0),
            writes: RefCell::default(),
            atomic: RefCell::default(),
            flushes: Cell::new(0),
        }))
    }

    pub(crate) fn image(&self) -> Image {
        self.image.borrow().clone()
    }

    /// Flips a bit on the disk.
    pub(crate) fn rot(&self, byte: u64) {
        let mut atom = [0; ATOM];
        let mut image = self.image.borrow_mut();
        image.read(byte / ATOM as u64, &mut atom);
        atom[byte as usize % ATOM] ^= 1;
        image.write_atom(byte / ATOM as u64, &atom);
    }

    fn atom(&self, lba: Lba) -> u64 {
        lba.0 * u64::from(self.geometry.block_bytes) / ATOM as u64
    }

    /// Waits for the service time of an operation on `bytes` bytes.
    async fn work(&self, bytes: u64) {
        let mut until = self.runtime.now();
        if let Some(ns) = (bytes * 1_000_000_000).checked_div(self.bytes_per_second.get()) {
            until = until.max(self.busy_until.get()) + Duration::from_nanos(ns);
            self.busy_until.set(until);
            until = until + self.latency.get();
        } else if !self.latency.get().is_zero() {
            let ns = self.latency.get().as_nanos() as u64;
            until = until + Duration::from_nanos(1 + self.runtime.random(ns));
        }
        if until > self.runtime.now() {
            self.runtime.sleep_until(until).await;
        }
    }

    async fn put(&self, extent: Extent, data: View) -> Result<Written, IoError> {
        let id = self.journal.len() as u64;
        let at = self.atom(extent.start);
        let (disk, volatile) = (self.number, self.geometry.volatile_cache);
        self.journal.push(Event::Submit { id, disk, at, data: data.clone(), volatile });
        self.writes.borrow_mut().push(extent);
        let bytes = data.len() as u64;
        let mut submitted = Submitted { disk: self, id, at, data, ended: false };
        self.work(bytes).await;
        let bad = self.bad.borrow().range(extent.start.0..extent.end().0).next().copied();
        let failure = self.fail_writes.get().map(|kind| IoError::new(kind, extent));
        let failure = failure.or(bad.map(|block| IoError::new(IoErrorKind::Medium, Extent::new(block, 1))));
        match failure {
            Some(error) => {
                submitted.fail();
                Err(error)
            }
            None => {
                submitted.end(true);
                Ok(Written::attest())
            }
        }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry.admit(extent)?;
        self.reads.set(self.reads.get() + 1);
        let bytes = extent.len.bytes(self.geometry.block_bytes);
        // A read returns the content at some instant between its submission and its completion.
        let early = self.runtime.random(2) == 0;
        let mut buf = Buf::recycled(bytes as usize);
        self.image.borrow().read(self.atom(extent.start), &mut buf);
        self.work(bytes).await;
        if let Some(&block) = self.bad.borrow().range(extent.start.0..extent.end().0).next() {
            return Err(IoError::new(IoErrorKind::Medium, Extent::new(block, 1)));
        }
        if !early {
            self.image.borrow().read(self.atom(extent.start), &mut buf);
        }
        Ok(buf.into())
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry.extent_of(start, data.len())?;
        self.put(extent, data).await
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry.extent_of(start, data.len())?;
        self.atomic.borrow_mut().push(extent);
        self.put(extent, data).await
    }

    fn atomic_bytes_max(&self) -> u32 {
        64 << 10
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        // Taken at the submission: a write that ends during the flush is not covered by it (docs/fault-model.md).
        let covered = Rc::new(self.open.borrow().clone());
        self.flushes.set(self.flushes.get() + 1);
        if self.geometry.volatile_cache {
            self.work(0).await;
        }
        if self.fail_flushes.get() {
            return Err(IoError::new(IoErrorKind::Gone, Extent::default()));
        }
        self.open.borrow_mut().retain(|id| !covered.contains(id));
        self.journal.push(Event::Flush { covered });
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.geometry.admit(extent)?;
        let bytes = extent.len.bytes(self.geometry.block_bytes) as usize;
        self.put(extent, View::zeroed(bytes)).await
    }
}

struct OpenWrite {
    id: u64,
    disk: usize,
    at: u64,
    data: View,
    volatile: bool,
}

/// States that a power cut may leave on a set of disks.
pub(crate) struct PowerCut {
    durable: Vec<Image>,
    open: Vec<OpenWrite>,
}

impl PowerCut {
    pub(crate) fn of(images: Vec<Image>) -> Self {
        Self { durable: images, open: Vec::new() }
    }

    /// Advances the instant of the cut to behind `event`.
    pub(crate) fn push(&mut self, event: &Event) {
        let land = |this: &mut Self, lands: &dyn Fn(&OpenWrite) -> bool| {
            for write in this.open.extract_if(.., |write| lands(write)) {
                this.durable[write.disk].write(write.at, &write.data);
            }
        };
        match event {
            Event::Submit { id, disk, at, data, volatile } => {
                self.open.push(OpenWrite { id: *id, disk: *disk, at: *at, data: data.clone(), volatile: *volatile });
            }
            // Of overlapping writes, the one completed last is visible, so it must also be applied last.
            Event::Done { id } => {
                land(self, &|write| write.id == *id && !write.volatile);
                let done: Vec<_> = self.open.extract_if(.., |write| write.id == *id).collect();
                self.open.extend(done);
            }
            Event::Cancel { id } => self.open.retain(|write| write.id != *id),
            Event::Flush { covered } => land(self, &|write| covered.contains(&write.id)),
            Event::Abandoned(_) | Event::Settled => {}
        }
    }

    fn state(&self, mut lands: impl FnMut(usize, &OpenWrite, usize) -> bool) -> Vec<Image> {
        let mut images = self.durable.clone();
        for (number, write) in self.open.iter().enumerate() {
            for (atom, bytes) in write.data.chunks(ATOM).enumerate() {
                if lands(number, write, atom) {
                    images[write.disk].write_atom(write.at + atom as u64, bytes);
                }
            }
        }
        images
    }

    /// Returns some of the states that the cut may leave: none of the open writes, all, each disk alone, a prefix,
    /// single writes, and random atoms.
    pub(crate) fn states(&self, random: &mut Random) -> Vec<Vec<Image>> {
        let mut states = vec![self.state(|_, _, _| false)];
        if self.open.is_empty() {
            return states;
        }
        states.push(self.state(|_, _, _| true));
        for disk in 0..self.durable.len() {
            states.push(self.state(|_, write, _| write.disk == disk));
        }
        let one = random.below(self.open.len() as u64) as usize;
        states.push(self.state(|number, _, _| number < one));
        states.push(self.state(|number, _, _| number != one));
        for _ in 0..2 {
            states.push(self.state(|_, _, _| random.one_in(2)));
        }
        let torn = random.below(64) as usize;
        states.push(self.state(|_, _, atom| atom < torn));
        states
    }
}
