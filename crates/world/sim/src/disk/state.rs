//! A disk's content and its history since the last flush.

use super::store::Store;
use super::{ATOM_BYTES, Crash, DiskCounts, DiskFaults, DiskShape};
use crate::random::Random;
use block::medium::{Ticket, Timing};
use block::{Buf, IoErrorKind, Rope, View};
use shard::{DiskFacts, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::task::Waker;

/// One simulated disk.
pub(crate) struct DiskState {
    pub id: u64,
    pub shape: DiskShape,
    /// What is printed on it, and where it sits.
    pub facts: DiskFacts,
    /// True while the light of its slot is on.
    pub is_lit: bool,
    pub faults: DiskFaults,
    /// What it is made of, where its operations take as long as there.
    pub timing: Option<Timing>,
    pub counts: DiskCounts,
    pub random: Random,
    /// Does not answer with anything but `Gone`.
    pub is_gone: bool,
    /// Does not answer at all.
    pub is_hung: bool,
    /// By machine, which opening of its own holds the disk now, if one does.
    pub holders: BTreeMap<usize, u64>,
    /// How often the disk was opened.
    pub openings: u64,
    /// Grows with every power cut: what was opened before is of no use after.
    pub life: u64,
    pub flights: BTreeMap<u64, Flight>,
    /// Writes that have completed and are not durable.
    pub completed: BTreeSet<u64>,
    pub next_id: u64,
    durable: Store,
    /// By atom, in the order in which they would be read: completed ones, then those under way.
    undecided: BTreeMap<u64, Vec<Version>>,
    latent: BTreeSet<u64>,
}

/// An operation that was submitted and not taken back by its future.
pub(crate) struct Flight {
    pub request: Request,
    /// What the medium has not done yet.
    pub ticket: Option<Ticket>,
    /// When it completes; never, on a hung disk.
    pub lands: Option<Time>,
    pub result: Option<Result<Rope, IoErrorKind>>,
    pub waker: Option<Waker>,
    pub has_landed: bool,
    /// Nobody waits for it any more, so nothing may overtake it.
    pub is_orphan: bool,
}

/// What was asked of the disk.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Read {
        atoms: Range<u64>,
    },
    /// No data means zeros.
    Write {
        atoms: Range<u64>,
        data: Option<View>,
    },
    /// Covers the writes that had completed when it was submitted.
    Flush {
        covers: BTreeSet<u64>,
    },
}

#[derive(Clone, Debug)]
struct Version {
    write: u64,
    has_completed: bool,
    /// No bytes mean zeros.
    bytes: Option<View>,
}

impl Version {
    fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(&[0; ATOM_BYTES])
    }
}

impl Flight {
    /// The result is there, and who waits for it is woken.
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

    /// How many atoms the disk has.
    pub(crate) fn atoms(&self) -> u64 {
        self.shape.bytes / ATOM_BYTES as u64
    }

    /// A write begins: its versions are possible after a power cut from now on.
    pub(crate) fn begin_write(&mut self, write: u64, atoms: Range<u64>, data: Option<&View>) {
        for (at, atom) in atoms.enumerate() {
            let bytes = data.map(|data| data.slice(at * ATOM_BYTES..(at + 1) * ATOM_BYTES));
            self.undecided.entry(atom).or_default().push(Version { write, has_completed: false, bytes });
        }
    }

    /// A write ends well: it is what readers see, until a later one.
    pub(crate) fn complete_write(&mut self, write: u64, atoms: Range<u64>) {
        for atom in atoms.clone() {
            self.latent.remove(&atom);
            let Some(versions) = self.undecided.get_mut(&atom) else { continue };
            let Some(at) = versions.iter().position(|version| version.write == write) else { continue };
            let version = Version { has_completed: true, ..versions.remove(at) };
            let place = versions.iter().filter(|version| version.has_completed).count();
            versions.insert(place, version);
        }
        self.completed.insert(write);
        if !self.shape.volatile_cache {
            self.make_durable(&BTreeSet::from([write]));
        }
    }

    /// A write ends badly: each of its atoms is old or new, and will not change by itself.
    pub(crate) fn fail_write(&mut self, write: u64, atoms: Range<u64>) {
        for atom in atoms {
            if self.random.chance(500_000) {
                self.complete_write(write, atom..atom + 1);
            } else {
                self.forget(write, atom);
            }
        }
    }

    /// A write that leaves nothing behind.
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

    /// The writes in `covered` survive a power cut.
    pub(crate) fn make_durable(&mut self, covered: &BTreeSet<u64>) {
        let Self { undecided, durable, completed, .. } = self;
        undecided.retain(|&atom, versions| {
            let last = versions.iter().rposition(|version| version.has_completed && covered.contains(&version.write));
            if let Some(last) = last {
                durable.write(atom, versions[last].bytes());
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
        completed.retain(|write| !covered.contains(write));
    }

    /// What a reader of the atom sees.
    pub(crate) fn atom(&self, atom: u64) -> &[u8] {
        let newest =
            self.undecided.get(&atom).and_then(|versions| versions.iter().rfind(|version| version.has_completed));
        newest.map_or_else(|| self.durable.atom(atom), Version::bytes)
    }

    /// The bytes of `atoms`, as readers see them.
    pub(crate) fn read(&self, atoms: Range<u64>) -> Buf {
        let count = usize::try_from(atoms.end - atoms.start).expect("a read fits into memory");
        let mut buf = Buf::recycled(count * ATOM_BYTES);
        for (chunk, atom) in buf.chunks_exact_mut(ATOM_BYTES).zip(atoms) {
            chunk.copy_from_slice(self.atom(atom));
        }
        buf
    }

    /// True when one of the atoms cannot be read.
    pub(crate) fn is_latent(&self, atoms: Range<u64>) -> bool {
        self.latent.range(atoms).next().is_some()
    }

    /// The atoms cannot be read until they are written.
    pub(crate) fn make_latent(&mut self, atoms: Range<u64>) {
        self.latent.extend(atoms);
    }

    /// Every atom can be read.
    pub(crate) fn make_readable(&mut self) {
        self.latent.clear();
    }

    /// One bit of the atom flips: on the medium and in the cache, for the disk knows no better.
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

    /// The power is cut: every undecided atom is decided, and everything under way is forgotten.
    pub(crate) fn crash(&mut self, crash: Crash) {
        self.counts.crashes += 1;
        self.life += 1;
        self.holders.clear();
        self.completed.clear();
        for (_, flight) in std::mem::take(&mut self.flights) {
            if let Some(waker) = flight.waker {
                waker.wake();
            }
        }
        let sector_atoms = u64::from(self.shape.physical_block_bytes) / ATOM_BYTES as u64;
        let mut before = None;
        for (atom, versions) in std::mem::take(&mut self.undecided) {
            self.counts.atoms_undecided += 1;
            let landed = match (crash, before) {
                (Crash::NoneLanded, _) => 0,
                (Crash::AllLanded, _) => versions.len(),
                // A sector that is written whole is old or new.
                (_, Some((sector, count, landed))) if (sector, count) == (atom / sector_atoms, versions.len()) => {
                    landed
                }
                (Crash::AnySubset | Crash::Torn, _) => self.random.index(versions.len() + 1),
            };
            before = Some((atom / sector_atoms, versions.len(), landed));
            self.decide(atom, &versions, landed, crash == Crash::Torn && sector_atoms == 1);
        }
    }

    /// The atom is as after the last of the first `landed` writes, or garbage where that was under way and `tears`.
    fn decide(&mut self, atom: u64, versions: &[Version], landed: usize, tears: bool) {
        let Some(version) = landed.checked_sub(1).map(|last| &versions[last]) else { return };
        if tears && !version.has_completed && self.random.chance(250_000) {
            self.counts.atoms_torn += 1;
            let mut garbage = [0; ATOM_BYTES];
            self.random.fill(&mut garbage);
            self.durable.write(atom, &garbage);
        } else {
            self.durable.write(atom, version.bytes());
        }
        self.latent.remove(&atom);
    }

    /// The content that would survive a power cut now, at least.
    pub(crate) fn durable(&self) -> Store {
        self.durable.clone()
    }

    /// The content is `store`, all of it durable.
    pub(crate) fn restore(&mut self, store: Store) {
        self.crash(Crash::NoneLanded);
        self.latent.clear();
        self.durable = store;
    }

    /// The machine does not hold the disk any more. What was submitted lands, and nobody waits for it.
    pub(crate) fn release(&mut self, machine: usize) {
        self.holders.remove(&machine);
        if !self.holders.is_empty() {
            return;
        }
        self.flights.retain(|_, flight| !flight.has_landed);
        self.flights.values_mut().for_each(|flight| flight.is_orphan = true);
    }

    /// Every operation fails with `Gone` from now on.
    pub(crate) fn fail(&mut self) {
        self.is_gone = true;
        self.flights.retain(|_, flight| !flight.is_orphan);
        for flight in self.flights.values_mut().filter(|flight| !flight.has_landed) {
            flight.land(Err(IoErrorKind::Gone));
        }
    }
}
