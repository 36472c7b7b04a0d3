//! Content of a disk, with all versions since the last flush.

use super::store::Store;
use super::{ATOM_BYTES, Crash, DiskCounts, DiskFaults, DiskShape};
use crate::random::Random;
use block::medium::{OperationHandle, Timing};
use block::{Buf, IoErrorKind, Rope, View};
use shard::{DiskFacts, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::task::Waker;

/// One simulated disk.
pub(crate) struct DiskState {
    pub id: u64,
    pub shape: DiskShape,
    /// Identity and location that the disk reports.
    pub facts: DiskFacts,
    /// True while the locate LED of its slot is on.
    pub is_lit: bool,
    pub faults: DiskFaults,
    /// Latency model, if there is one.
    pub timing: Option<Timing>,
    pub counts: DiskCounts,
    pub random: Random,
    /// True for a removed disk: every operation fails with `Gone`.
    pub is_gone: bool,
    /// True for a hanging disk: no operation completes.
    pub is_hung: bool,
    /// Number of the opening that holds the disk, by machine.
    pub holders: BTreeMap<usize, u64>,
    /// Number of openings so far.
    pub openings: u64,
    /// Number of power cuts; an opening of an earlier life is invalid.
    pub life: u64,
    pub flights: BTreeMap<u64, PendingOperation>,
    /// Writes that have completed and are not durable.
    pub completed: BTreeSet<u64>,
    pub next_id: u64,
    durable: Store,
    /// Versions by atom, in the order in which they would be read: completed ones, then those in flight.
    undecided: BTreeMap<u64, Vec<Version>>,
    latent: BTreeSet<u64>,
}

/// Operation that was submitted and whose future has not taken the result.
pub(crate) struct PendingOperation {
    pub request: Request,
    /// Transfer in the latency model that has not finished.
    pub ticket: Option<OperationHandle>,
    /// Time of completion; `None` on a hanging disk.
    pub lands: Option<Time>,
    pub result: Option<Result<Rope, IoErrorKind>>,
    pub waker: Option<Waker>,
    pub has_landed: bool,
    /// True when nobody waits for it, so that no later operation may overtake it.
    pub is_abandoned: bool,
}

/// Request to the disk.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Read {
        atoms: Range<u64>,
    },
    /// Writes `data`; `None` writes zeros.
    Write {
        atoms: Range<u64>,
        data: Option<View>,
    },
    /// Makes those writes durable that had completed when it was submitted.
    Flush {
        covers: BTreeSet<u64>,
    },
}

#[derive(Clone, Debug)]
struct Version {
    write: u64,
    has_completed: bool,
    /// Content; `None` for zeros.
    bytes: Option<View>,
}

impl Version {
    fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(&[0; ATOM_BYTES])
    }
}

impl PendingOperation {
    /// Stores the result and wakes the waiting task.
    pub(crate) fn land(&mut self, result: Result<Rope, IoErrorKind>) {
        self.has_landed = true;
        self.result = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl DiskState {
    pub(crate) fn new(id: u64, shape: DiskShape, random: Random) -> Self {
        Self {
            id,
            shape,
            facts: DiskFacts {
                serial: Some(format!("SIM{id:06}")),
                model: Some("Simulated disk".to_owned()),
                ..DiskFacts::default()
            },
            is_lit: false,
            faults: DiskFaults::default(),
            timing: None,
            counts: DiskCounts::default(),
            random,
            is_gone: false,
            is_hung: false,
            holders: BTreeMap::new(),
            openings: 0,
            life: 0,
            flights: BTreeMap::new(),
            completed: BTreeSet::new(),
            next_id: 0,
            durable: Store::default(),
            undecided: BTreeMap::new(),
            latent: BTreeSet::new(),
        }
    }

    /// Capacity in atoms.
    pub(crate) fn atoms(&self) -> u64 {
        self.shape.bytes / ATOM_BYTES as u64
    }

    /// Starts a write: from now on a power cut may leave its versions.
    pub(crate) fn begin_write(&mut self, write: u64, atoms: Range<u64>, data: Option<&View>) {
        for (at, atom) in atoms.enumerate() {
            // Shares the memory of the write: no copy for each atom.
            let bytes = data.map(|data| data.slice(at * ATOM_BYTES..(at + 1) * ATOM_BYTES));
            self.undecided.entry(atom).or_default().push(Version { write, has_completed: false, bytes });
        }
    }

    /// Completes a write: readers see it until a later one completes.
    pub(crate) fn complete_write(&mut self, write: u64, atoms: Range<u64>) {
        for atom in atoms.clone() {
            // A successful write repairs an unreadable atom.
            self.latent.remove(&atom);
            let Some(versions) = self.undecided.get_mut(&atom) else { continue };
            let Some(at) = versions.iter().position(|version| version.write == write) else { continue };
            let version = Version { has_completed: true, ..versions.remove(at) };
            // Behind the completed ones: a write that completes last is read, whenever it was submitted.
            let place = versions.iter().filter(|version| version.has_completed).count();
            versions.insert(place, version);
        }
        self.completed.insert(write);
        // Without a volatile cache, completed means durable.
        if !self.shape.volatile_cache {
            self.make_durable(&BTreeSet::from([write]));
        }
    }

    /// Completes a write with an error: each of its atoms is old or new, and stays so.
    pub(crate) fn fail_write(&mut self, write: u64, atoms: Range<u64>) {
        // Atom by atom: only sectors are atomic, so a failed write may stop anywhere.
        for atom in atoms {
            // Half of the atoms on average.
            if self.random.chance(500_000) {
                self.complete_write(write, atom..atom + 1);
            } else {
                self.forget(write, atom);
            }
        }
    }

    /// Removes a write without effect.
    pub(crate) fn lose_write(&mut self, write: u64, atoms: Range<u64>) {
        atoms.for_each(|atom| self.forget(write, atom));
    }

    fn forget(&mut self, write: u64, atom: u64) {
        if let Some(versions) = self.undecided.get_mut(&atom) {
            versions.retain(|version| version.write != write);
            if versions.is_empty() {
                self.undecided.remove(&atom);
            }
        }
    }

    /// Makes the writes in `covered` durable.
    pub(crate) fn make_durable(&mut self, covered: &BTreeSet<u64>) {
        let Self { undecided, durable, completed, .. } = self;
        undecided.retain(|&atom, versions| {
            // Older versions become impossible with the last covered one, also those that were not covered themselves.
            let last = versions.iter().rposition(|version| version.has_completed && covered.contains(&version.write));
            if let Some(last) = last {
                durable.write(atom, versions[last].bytes());
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
        completed.retain(|write| !covered.contains(write));
    }

    /// Content of the atom, as readers see it.
    pub(crate) fn atom(&self, atom: u64) -> &[u8] {
        // Reads see the last completed version; submitted ones are not visible yet.
        let newest =
            self.undecided.get(&atom).and_then(|versions| versions.iter().rfind(|version| version.has_completed));
        newest.map_or_else(|| self.durable.atom(atom), Version::bytes)
    }

    /// Content of `atoms`, as readers see it.
    pub(crate) fn read(&self, atoms: Range<u64>) -> Buf {
        let count = usize::try_from(atoms.end - atoms.start).expect("a read fits into memory");
        // Old bytes cannot leak: every atom is copied into it below.
        let mut buf = Buf::recycled(count * ATOM_BYTES);
        for (chunk, atom) in buf.chunks_exact_mut(ATOM_BYTES).zip(atoms) {
            chunk.copy_from_slice(self.atom(atom));
        }
        buf
    }

    /// True when one of the atoms is unreadable.
    pub(crate) fn is_latent(&self, atoms: Range<u64>) -> bool {
        self.latent.range(atoms).next().is_some()
    }

    /// Makes the atoms unreadable until they are written.
    pub(crate) fn make_latent(&mut self, atoms: Range<u64>) {
        self.latent.extend(atoms);
    }

    /// Makes every atom readable.
    pub(crate) fn make_readable(&mut self) {
        self.latent.clear();
    }

    /// Flips one bit of the atom, on the medium and in the cache: the disk does not notice.
    pub(crate) fn rot(&mut self, atom: u64) {
        self.counts.bits_rotten += 1;
        let (byte, bit) = (self.random.index(ATOM_BYTES), self.random.below(8));
        let mut bytes = Buf::copy_of(self.atom(atom));
        bytes[byte] ^= 1 << bit;
        let newest = self.undecided.get_mut(&atom);
        match newest.and_then(|versions| versions.iter_mut().rfind(|version| version.has_completed)) {
            Some(version) => version.bytes = Some(bytes.freeze()),
            None => self.durable.write(atom, &bytes),
        }
    }

    /// Cuts the power: chooses one version of every undecided atom, and drops everything in flight.
    pub(crate) fn crash(&mut self, crash: Crash) {
        self.counts.crashes += 1;
        // Invalidates all handles and scheduled completions.
        self.life += 1;
        self.holders.clear();
        self.completed.clear();
        // Their callers are woken to find the opening invalid.
        for (_, flight) in std::mem::take(&mut self.flights) {
            if let Some(waker) = flight.waker {
                waker.wake();
            }
        }
        // A physical sector of several atoms is atomic: its atoms share one choice.
        let sector_atoms = u64::from(self.shape.physical_block_bytes) / ATOM_BYTES as u64;
        let mut before = None;
        for (atom, versions) in std::mem::take(&mut self.undecided) {
            self.counts.atoms_undecided += 1;
            let landed = match (crash, before) {
                (Crash::NoneLanded, _) => 0,
                (Crash::AllLanded, _) => versions.len(),
                // Same sector, written as a whole: all old or all new.
                (_, Some((sector, count, landed))) if (sector, count) == (atom / sector_atoms, versions.len()) => {
                    landed
                }
                // Independent per atom: 0 keeps the durable content.
                (Crash::AnySubset | Crash::Torn, _) => self.random.index(versions.len() + 1),
            };
            before = Some((atom / sector_atoms, versions.len(), landed));
            // A sector of several atoms is written as a whole, so only single atoms tear.
            self.decide(atom, &versions, landed, crash == Crash::Torn && sector_atoms == 1);
        }
    }

    /// Makes the version after the first `landed` writes durable, or garbage where the last of them was in flight and
    /// `tears`.
    fn decide(&mut self, atom: u64, versions: &[Version], landed: usize, tears: bool) {
        // Nothing landed: the durable content stays.
        let Some(version) = landed.checked_sub(1).map(|last| &versions[last]) else { return };
        // Only a write in flight can be torn.
        if tears && !version.has_completed && self.random.chance(250_000) {
            self.counts.atoms_torn += 1;
            let mut garbage = [0; ATOM_BYTES];
            self.random.fill(&mut garbage);
            self.durable.write(atom, &garbage);
        } else {
            self.durable.write(atom, version.bytes());
        }
        // The atom has been rewritten, so it is readable.
        self.latent.remove(&atom);
    }

    /// Content that would survive a power cut now, at least.
    pub(crate) fn durable(&self) -> Store {
        self.durable.clone()
    }

    /// Replaces the content by `store`, all of it durable.
    pub(crate) fn restore(&mut self, store: Store) {
        // First, so that no version of the old content can land on the new one.
        self.crash(Crash::NoneLanded);
        self.latent.clear();
        self.durable = store;
    }

    /// Releases the disk for the machine. Operations in flight still land, without a waiting task.
    pub(crate) fn release(&mut self, machine: usize) {
        self.holders.remove(&machine);
        // Another machine has it open; its operations have to keep their callers.
        if !self.holders.is_empty() {
            return;
        }
        // Results without a receiver are dropped; the rest lands without one.
        self.flights.retain(|_, flight| !flight.has_landed);
        self.flights.values_mut().for_each(|flight| flight.is_abandoned = true);
    }

    /// Removes the disk: every operation fails with `Gone` from now on.
    pub(crate) fn fail(&mut self) {
        self.is_gone = true;
        // Without a caller there is no result to return, and a removed disk changes nothing any more.
        self.flights.retain(|_, flight| !flight.is_abandoned);
        for flight in self.flights.values_mut().filter(|flight| !flight.has_landed) {
            flight.land(Err(IoErrorKind::Gone));
        }
    }
}
