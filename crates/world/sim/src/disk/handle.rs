//! A disk, as a test handles it.

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

/// What images are looked through in.
const BLOCK_BYTES: usize = 4096;

/// A simulated disk, whoever has it open.
#[derive(Clone)]
pub struct DiskHandle {
    core: Rc<Core>,
    state: Rc<RefCell<DiskState>>,
}

/// What a disk held at some moment: to put it back later, or onto another disk.
#[derive(Clone, Debug)]
pub struct DiskImage(Store);

impl DiskImage {
    /// Every block of 4 KiB in which something was written: where it begins, and its bytes.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.0.pages().map(|(page, bytes)| (page * BLOCK_BYTES as u64, bytes.concat()))
    }

    /// The block of 4 KiB from `at` on.
    #[must_use]
    pub fn block(&self, at: u64) -> Vec<u8> {
        let first = at / ATOM_BYTES as u64;
        (first..first + (BLOCK_BYTES / ATOM_BYTES) as u64).flat_map(|atom| self.0.atom(atom).to_vec()).collect()
    }

    /// The image holds `bytes`, whole atoms, from `at` on.
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
        let id = disks.len() as u64;
        let random = Random::new(core.seed, &format!("disk {node} {path}"));
        let state = Rc::new(RefCell::new(DiskState::new(id, shape, random)));
        let before = disks.insert((node, path.to_owned()), state.clone());
        assert!(before.is_none(), "there is a disk {path} already");
        Self::new(core, state)
    }

    /// The disk is opened as `path` on the machine `node`, too.
    pub(crate) fn attach(&self, node: usize, path: &str) {
        let before = self.core.disks.borrow_mut().insert((node, path.to_owned()), self.state.clone());
        assert!(before.is_none(), "there is a disk {path} already");
    }

    /// Which disk this is, of all machines of its world, wherever it is plugged in.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.state.borrow().id
    }

    /// From now on the disk is as bad as `faults` say.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.state.borrow_mut().faults = faults;
    }

    /// From now on the disk takes as long as one of `medium` does, or as long as its faults say where that is longer.
    pub fn behave_like(&self, medium: Medium) {
        let mut disk = self.state.borrow_mut();
        disk.timing = Some(Timing::new(medium, disk.shape.bytes));
    }

    /// What is known of the disk from now on, beside its content.
    pub fn set_facts(&self, facts: DiskFacts) {
        self.state.borrow_mut().facts = facts;
    }

    /// True while the light of its slot is on.
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

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        self.state.borrow().counts
    }

    /// The power of this disk is cut and comes back: who has it open loses it, and what was not durable
    /// is as `crash` says.
    pub fn crash(&self, crash: Crash) {
        let mut disk = self.state.borrow_mut();
        self.core.record("power cut", disk.id, disk.life);
        disk.crash(crash);
    }

    /// The kernel closes the disk for a process that is gone, whoever still holds its handle.
    pub(crate) fn release(&self, machine: usize) {
        self.state.borrow_mut().release(machine);
    }

    /// The disk is pulled out: operations fail with `Gone`, also those under way.
    pub fn fail(&self) {
        self.state.borrow_mut().fail();
    }

    /// The disk is back, with what it held; it must be opened anew.
    pub fn revive(&self) {
        self.crash(Crash::AnySubset);
        let mut disk = self.state.borrow_mut();
        disk.is_gone = false;
        disk.is_hung = false;
    }

    /// The disk does not answer any more, not even with an error, until it is revived or fails.
    pub fn hang(&self) {
        self.state.borrow_mut().is_hung = true;
    }

    /// The disk, which hung, does now what it was asked meanwhile, and answers again.
    pub fn resume(&self) {
        super::io::resume(&self.core, &self.state);
    }

    /// True while it does not answer.
    #[must_use]
    pub fn is_hung(&self) -> bool {
        self.state.borrow().is_hung
    }

    /// True while it is pulled out.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.state.borrow().is_gone
    }

    /// These bytes cannot be read until they are written.
    pub fn make_unreadable(&self, bytes: Range<u64>) {
        self.state.borrow_mut().make_latent(atoms(&bytes));
    }

    /// What could not be read is read again, as if it had been the cable.
    pub fn make_readable(&self) {
        self.state.borrow_mut().make_readable();
    }

    /// One bit in each atom of these bytes flips.
    pub fn rot(&self, bytes: Range<u64>) {
        let mut disk = self.state.borrow_mut();
        atoms(&bytes).for_each(|atom| disk.rot(atom));
    }

    /// What readers see at `bytes`, whole atoms.
    #[must_use]
    pub fn content(&self, bytes: Range<u64>) -> Vec<u8> {
        self.state.borrow().read(atoms(&bytes)).to_vec()
    }

    /// What would surely survive a power cut now.
    #[must_use]
    pub fn image(&self) -> DiskImage {
        DiskImage(self.state.borrow().durable())
    }

    /// The disk holds what `image` does; it must be opened anew.
    pub fn restore(&self, image: &DiskImage) {
        self.state.borrow_mut().restore(image.0.clone());
    }
}

/// The atoms that `bytes` touch.
fn atoms(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / ATOM_BYTES as u64..bytes.end.div_ceil(ATOM_BYTES as u64)
}
