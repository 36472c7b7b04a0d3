//! Handle with which a test controls a disk.

use super::state::DiskState;
use super::store::Store;
use super::{ATOM_BYTES, Crash, DiskCounts, DiskFaults, DiskShape};
use crate::core::Core;
use crate::random::Random;
use block::medium::{Medium, Timing};
use shard::DiskFacts;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// Block size of images in bytes.
const BLOCK_BYTES: usize = 4096;

/// Simulated disk, independent of who has it open.
#[derive(Clone)]
pub struct DiskHandle {
    core: Rc<Core>,
    state: Rc<RefCell<DiskState>>,
}

/// Content of a disk at some instant, to be restored later or onto another disk.
#[derive(Clone, Debug)]
pub struct DiskImage(Store);

impl DiskImage {
    /// Returns every written block of 4 KiB: its address in bytes, and its content.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.0.pages().map(|(page, bytes)| (page * BLOCK_BYTES as u64, bytes.concat()))
    }

    /// Returns the block of 4 KiB at `at`.
    #[must_use]
    pub fn block(&self, at: u64) -> Vec<u8> {
        let first = at / ATOM_BYTES as u64;
        (first..first + (BLOCK_BYTES / ATOM_BYTES) as u64).flat_map(|atom| self.0.atom(atom).to_vec()).collect()
    }

    /// Writes `bytes`, whole atoms, into the image at `at`.
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let first = at / ATOM_BYTES as u64;
        for (atom, bytes) in (first..).zip(bytes.chunks_exact(ATOM_BYTES)) {
            self.0.write(atom, bytes);
        }
    }
}

impl fmt::Debug for DiskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk {}", self.state.borrow().id)
    }
}

impl DiskHandle {
    pub(crate) fn new(core: &Rc<Core>, state: Rc<RefCell<DiskState>>) -> Self {
        Self { core: core.clone(), state }
    }

    pub(crate) fn add(core: &Rc<Core>, node: usize, path: &str, shape: DiskShape) -> Self {
        assert!(shape.bytes.is_multiple_of(ATOM_BYTES as u64), "a disk has whole atoms");
        let mut disks = core.disks.borrow_mut();
        // Attachments count as well: numbers may have gaps, and never repeat.
        let id = disks.len() as u64;
        // A random stream per disk: faults of one disk do not shift those of another.
        let random = Random::new(core.seed, &format!("disk {node} {path}"));
        let state = Rc::new(RefCell::new(DiskState::new(id, shape, random)));
        let before = disks.insert((node, path.to_owned()), state.clone());
        assert!(before.is_none(), "there is a disk {path} already");
        Self::new(core, state)
    }

    /// Attaches the disk to the machine `node` as `path`, in addition.
    pub(crate) fn attach(&self, node: usize, path: &str) {
        let before = self.core.disks.borrow_mut().insert((node, path.to_owned()), self.state.clone());
        assert!(before.is_none(), "there is a disk {path} already");
    }

    /// Number of the disk, unique in its world and independent of its attachments.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.state.borrow().id
    }

    /// Sets the fault profile.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.state.borrow_mut().faults = faults;
    }

    /// Gives the disk the latency of `medium`; the latency of the fault profile applies where it is longer.
    pub fn behave_like(&self, medium: Medium) {
        let mut disk = self.state.borrow_mut();
        // The arm's full stroke is the simulated capacity, so a small disk seeks like a large one.
        disk.timing = Some(Timing::new(medium, disk.shape.bytes));
    }

    /// Sets the identity and location that the disk reports.
    pub fn set_facts(&self, facts: DiskFacts) {
        self.state.borrow_mut().facts = facts;
    }

    /// True while the locate LED of its slot is on.
    #[must_use]
    pub fn is_lit(&self) -> bool {
        self.state.borrow().is_lit
    }

    pub(crate) fn facts(&self) -> DiskFacts {
        self.state.borrow().facts.clone()
    }

    pub(crate) fn light(&self, on: bool) {
        self.state.borrow_mut().is_lit = on;
    }

    /// Counters so far.
    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        self.state.borrow().counts
    }

    /// Cuts and restores the power of this disk: openings become invalid, and content that was not durable is as
    /// `crash` says.
    pub fn crash(&self, crash: Crash) {
        let mut disk = self.state.borrow_mut();
        self.core.record("power cut", disk.id, disk.life);
        disk.crash(crash);
    }

    /// Closes the disk for a process that has ended, whether or not its handle still exists.
    pub(crate) fn release(&self, machine: usize) {
        self.state.borrow_mut().release(machine);
    }

    /// Removes the disk: operations fail with `Gone`, including those in flight.
    pub fn fail(&self) {
        self.state.borrow_mut().fail();
    }

    /// Reattaches the disk with its content; it has to be opened again.
    pub fn revive(&self) {
        // A power cycle: unflushed writes may be lost.
        self.crash(Crash::AnySubset);
        let mut disk = self.state.borrow_mut();
        disk.is_gone = false;
        disk.is_hung = false;
    }

    /// Makes the disk hang: it completes nothing, not even with an error, until it is revived, resumed or fails.
    pub fn hang(&self) {
        self.state.borrow_mut().is_hung = true;
    }

    /// Ends a hang: the disk performs the operations that were submitted meanwhile, and responds again.
    pub fn resume(&self) {
        super::io::resume(&self.core, &self.state);
    }

    /// True while the disk hangs.
    #[must_use]
    pub fn is_hung(&self) -> bool {
        self.state.borrow().is_hung
    }

    /// True while the disk is removed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.state.borrow().is_gone
    }

    /// Makes these bytes unreadable until they are written.
    pub fn make_unreadable(&self, bytes: Range<u64>) {
        self.state.borrow_mut().make_latent(atoms(&bytes));
    }

    /// Makes unreadable bytes readable again, as after a cable fault.
    pub fn make_readable(&self) {
        self.state.borrow_mut().make_readable();
    }

    /// Flips one bit in each atom of these bytes.
    pub fn rot(&self, bytes: Range<u64>) {
        let mut disk = self.state.borrow_mut();
        atoms(&bytes).for_each(|atom| disk.rot(atom));
    }

    /// Content at `bytes`, whole atoms, as readers see it.
    #[must_use]
    pub fn content(&self, bytes: Range<u64>) -> Vec<u8> {
        self.state.borrow().read(atoms(&bytes)).to_vec()
    }

    /// Content that is certain to survive a power cut now.
    #[must_use]
    pub fn image(&self) -> DiskImage {
        DiskImage(self.state.borrow().durable())
    }

    /// Replaces the content by `image`; the disk has to be opened again.
    pub fn restore(&self, image: &DiskImage) {
        self.state.borrow_mut().restore(image.0.clone());
    }
}

/// Atoms that `bytes` overlap.
fn atoms(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / ATOM_BYTES as u64..bytes.end.div_ceil(ATOM_BYTES as u64)
}
