//! Operations on a simulated disk, from submission to completion.

use super::ATOM_BYTES;
use super::state::{DiskState, PendingOperation, Request};
use crate::core::Core;
use block::medium::{Progress, Transfer};
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use shard::{DiskOptions, Time};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Open simulated disk, exclusive on its machine.
pub struct SimDisk {
    core: Rc<Core>,
    state: Rc<RefCell<DiskState>>,
    /// Machine that has it open.
    machine: usize,
    geometry: Geometry,
    is_read_only: bool,
    life: u64,
    opening: u64,
}

impl SimDisk {
    /// Opens the disk; see [`World::open_disk`](shard::World::open_disk).
    pub(crate) fn open(
        core: &Rc<Core>,
        machine: usize,
        state: Option<Rc<RefCell<DiskState>>>,
        path: &str,
        options: DiskOptions,
    ) -> io::Result<Self> {
        let state = state.ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("there is no disk {path}")))?;
        let mut disk = state.borrow_mut();
        let block_bytes = options.block_bytes;
        if !matches!(block_bytes, 512 | 4096) || block_bytes < disk.shape.logical_block_bytes {
            let said = format!("{path} cannot be used with blocks of {block_bytes} bytes");
            return Err(io::Error::new(ErrorKind::InvalidInput, said));
        }
        // Exclusive per machine only: two machines may have a shared disk open, as on two ports of one disk.
        if disk.holders.contains_key(&machine) {
            return Err(io::Error::new(ErrorKind::ResourceBusy, format!("{path} is in use")));
        }
        if disk.is_gone {
            return Err(io::Error::new(ErrorKind::NotFound, format!("{path} is gone")));
        }
        // Distinguishes the handles of one machine: a closed one must not act for its successor.
        disk.openings += 1;
        let opening = disk.openings;
        disk.holders.insert(machine, opening);
        let geometry = Geometry {
            block_bytes,
            blocks: Blocks(disk.shape.bytes / u64::from(block_bytes)),
            physical_block_bytes: disk.shape.physical_block_bytes,
            optimal_bytes: disk.shape.physical_block_bytes.max(block_bytes),
            volatile_cache: disk.shape.volatile_cache,
            // A discard is a write of zeros here.
            discard_zeroes: true,
            prefers_unlogged: false,
        };
        let life = disk.life;
        drop(disk);
        Ok(Self { core: core.clone(), state, machine, geometry, is_read_only: options.read_only, life, opening })
    }

    fn atoms(&self, extent: Extent) -> Range<u64> {
        let per_block = u64::from(self.geometry.block_bytes) / ATOM_BYTES as u64;
        extent.start.0 * per_block..extent.end().0 * per_block
    }

    fn admit_write(&self, extent: Extent) -> Result<(), IoError> {
        self.geometry.admit(extent)?;
        if self.is_read_only { Err(IoError::new(IoErrorKind::ReadOnly, extent)) } else { Ok(()) }
    }

    /// True while the handle is valid: no power cut and no other opening since.
    fn is_held(&self) -> bool {
        let disk = self.state.borrow();
        disk.life == self.life && disk.holders.get(&self.machine) == Some(&self.opening)
    }

    /// Submits `request` and waits for its completion. It continues when this future is dropped.
    async fn carry(&self, extent: Extent, request: Request) -> Result<Rope, IoError> {
        // A handle from before a power cut, or one that has been released.
        if !self.is_held() || self.state.borrow().is_gone {
            return Err(IoError::new(IoErrorKind::Gone, extent));
        }
        let id = submit(&self.core, &self.state, request);
        let waiting = Waiting { disk: self, id };
        poll_fn(|cx| waiting.poll(cx)).await.map_err(|kind| IoError::new(kind, extent))
    }
}

/// Caller that waits for an operation.
struct Waiting<'a> {
    disk: &'a SimDisk,
    id: u64,
}

impl Waiting<'_> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Rope, IoErrorKind>> {
        if !self.disk.is_held() {
            return Poll::Ready(Err(IoErrorKind::Gone));
        }
        let mut disk = self.disk.state.borrow_mut();
        // Only a power cut and a release remove operations with a waiter, and both end the opening.
        let flight = disk.flights.get_mut(&self.id).expect("a flight stays until its future goes");
        if let Some(result) = flight.result.take() {
            return Poll::Ready(result);
        }
        flight.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.disk.is_held() {
            // A power cut or a release has dealt with the operations of this opening.
            return;
        }
        let mut disk = self.disk.state.borrow_mut();
        let flight = disk.flights.get_mut(&self.id).expect("a flight stays until its future goes");
        if flight.has_landed {
            disk.flights.remove(&self.id);
        } else {
            // The disk executes it all the same.
            flight.is_abandoned = true;
        }
    }
}

impl PendingOperation {
    fn overlaps(&self, other: &Range<u64>) -> bool {
        match &self.request {
            Request::Write { atoms, .. } => atoms.start < other.end && other.start < atoms.end,
            // An abandoned read or flush changes no block, so it may be overtaken.
            Request::Read { .. } | Request::Flush { .. } => false,
        }
    }
}

fn submit(core: &Rc<Core>, state: &Rc<RefCell<DiskState>>, request: Request) -> u64 {
    let mut disk = state.borrow_mut();
    disk.next_id += 1;
    let id = disk.next_id;
    let faults = disk.faults.clone();
    let mut latency = disk.random.duration(&faults.latency);
    if disk.random.chance(faults.slow_per_million) {
        disk.counts.slow += 1;
        latency = disk.random.duration(&faults.slow);
    }
    // A hung disk never completes it; `resume` schedules it later.
    let mut lands = (!disk.is_hung).then(|| core.now.get() + latency);
    if let Request::Read { atoms, .. } | Request::Write { atoms, .. } = &request {
        // An operation that overlaps an abandoned write completes after it, as with `uring`: the later one must win.
        let orphans = disk.flights.values().filter(|flight| flight.is_abandoned && flight.overlaps(atoms));
        for orphan in orphans {
            // One nanosecond later, to preserve the order.
            // Behind one that hangs there is no time yet: `resume` schedules both.
            lands = lands.and_then(|lands| Some(lands.max(orphan.lands? + std::time::Duration::from_nanos(1))));
        }
    }
    match &request {
        Request::Read { .. } => disk.counts.reads += 1,
        Request::Write { data: Some(_), .. } => disk.counts.writes += 1,
        Request::Write { data: None, .. } => disk.counts.discards += 1,
        Request::Flush { .. } => disk.counts.flushes += 1,
    }
    if let Request::Write { atoms, data, .. } = &request {
        // Its versions are possible results of a power cut from now on, before it completes.
        disk.begin_write(id, atoms.clone(), data.as_ref());
    }
    core.record("submit", disk.id, id);
    let ticket = moves(&request).and_then(|motion| Some(disk.timing.as_mut()?.submit(core.now.get().0, motion)));
    let flight =
        PendingOperation { request, ticket, lands, result: None, waker: None, has_landed: false, is_abandoned: false };
    disk.flights.insert(id, flight);
    let life = disk.life;
    drop(disk);
    // The event knows the life of the disk: a power cut in between makes it void.
    if let Some(lands) = lands {
        let state = state.clone();
        core.schedule(lands, Box::new(move |core| complete(core, &state, life, id)));
    }
    id
}

/// Completes the operations that were submitted during a hang, late and one after the other.
pub(super) fn resume(core: &Rc<Core>, state: &Rc<RefCell<DiskState>>) {
    let mut disk = state.borrow_mut();
    disk.is_hung = false;
    let (life, latency) = (disk.life, disk.faults.latency.clone());
    let mut lands = core.now.get();
    let waiting: Vec<u64> = disk
        .flights
        .iter()
        .filter(|(_, flight)| !flight.has_landed && flight.lands.is_none())
        .map(|(id, _)| *id)
        .collect();
    for id in waiting {
        // In the order of submission: each lands after the preceding one.
        lands = lands + disk.random.duration(&latency) + std::time::Duration::from_nanos(1);
        disk.flights.get_mut(&id).expect("it was found just now").lands = Some(lands);
        let state = state.clone();
        core.schedule(lands, Box::new(move |core| complete(core, &state, life, id)));
    }
}

/// Completes the operation, with the faults that the profile prescribes.
fn complete(core: &Rc<Core>, state: &Rc<RefCell<DiskState>>, life: u64, id: u64) {
    let disk = &mut *state.borrow_mut();
    // A power cut or a removal has ended the operation already.
    if disk.life != life || disk.is_gone {
        return;
    }
    // It stays submitted; `resume` schedules it again.
    if disk.is_hung {
        if let Some(flight) = disk.flights.get_mut(&id) {
            flight.lands = None;
        }
        return;
    }
    // The model of the medium has not finished it yet.
    if let Some(then) = still_moves(disk, id, core.now.get()) {
        let state = state.clone();
        core.schedule(then, Box::new(move |core| complete(core, &state, life, id)));
        return;
    }
    let Some(flight) = disk.flights.get(&id) else { return };
    core.record("complete", disk.id, id);
    let result = match flight.request.clone() {
        Request::Read { atoms } => complete_read(disk, atoms),
        Request::Write { atoms, data } => complete_write(disk, id, atoms, data),
        Request::Flush { covers } => complete_flush(disk, &covers),
    };
    // Looked up again: a failed flush fails the disk, which removes operations.
    let Some(flight) = disk.flights.get_mut(&id) else { return };
    if flight.is_abandoned {
        disk.flights.remove(&id);
        return;
    }
    flight.land(result);
}

/// Returns the data transfer of a request, for the latency model.
fn moves(request: &Request) -> Option<Transfer> {
    let (atoms, write) = match request {
        Request::Read { atoms } => (atoms, false),
        Request::Write { atoms, data: Some(_) } => (atoms, true),
        // No data is transferred: only the configured latency applies.
        Request::Write { data: None, .. } | Request::Flush { .. } => return None,
    };
    let atom = ATOM_BYTES as u64;
    Some(Transfer { offset: atoms.start * atom, bytes: (atoms.end - atoms.start) * atom, write })
}

/// Returns when to check the latency model again; `None` once it has finished the transfer.
fn still_moves(disk: &mut DiskState, id: u64, now: Time) -> Option<Time> {
    let flight = disk.flights.get_mut(&id)?;
    let ticket = flight.ticket?;
    if let Progress::Until(then) = disk.timing.as_mut()?.poll(now.0, ticket) {
        flight.lands = Some(Time(then));
        return flight.lands;
    }
    flight.ticket = None;
    // The model reorders its queue, but an abandoned operation must still not be overtaken.
    let (Request::Read { atoms } | Request::Write { atoms, .. }) = flight.request.clone() else { return None };
    // Numbers are in order of submission.
    let mut before = disk.flights.range(..id).map(|(_, flight)| flight);
    let orphan = before.find(|flight| flight.is_abandoned && !flight.has_landed && flight.overlaps(&atoms))?;
    // Known unless the disk hangs, and then `complete` has left before.
    let behind = orphan.lands? + std::time::Duration::from_nanos(1);
    let flight = disk.flights.get_mut(&id)?;
    flight.lands = Some(behind.max(now + std::time::Duration::from_nanos(1)));
    flight.lands
}

fn complete_read(disk: &mut DiskState, mut atoms: Range<u64>) -> Result<Rope, IoErrorKind> {
    if atoms.is_empty() {
        return Ok(Rope::new());
    }
    let faults = disk.faults.clone();
    let len = atoms.end - atoms.start;
    if disk.random.chance(faults.bit_rot_per_million) {
        let atom = atoms.start + disk.random.below(len);
        disk.rot(atom);
    }
    if disk.random.chance(faults.latent_per_million) {
        let atom = atoms.start + disk.random.below(len);
        disk.make_latent(atom..atom + 1);
    }
    // Drawn in any case, so that an unreadable atom does not shift the random stream.
    let fails_now = faults.read_error_per_million > 0 && disk.random.chance(faults.read_error_per_million);
    if disk.is_latent(atoms.clone()) || fails_now {
        disk.counts.read_errors += 1;
        return Err(IoErrorKind::Medium);
    }
    // A read of the whole disk has no other place to go.
    if disk.random.chance(faults.misdirected_read_per_million) && len < disk.atoms() {
        disk.counts.reads_misdirected += 1;
        atoms = misdirected(disk, &atoms);
    }
    Ok(disk.read(atoms).into())
}

fn complete_write(disk: &mut DiskState, id: u64, atoms: Range<u64>, data: Option<View>) -> Result<Rope, IoErrorKind> {
    let faults = disk.faults.clone();
    // Before every other fault: a full file system refuses the write without touching the medium.
    if let Some(kind) = faults.refuses {
        disk.counts.write_errors += 1;
        disk.lose_write(id, atoms);
        return Err(kind);
    }
    if disk.random.chance(faults.write_error_per_million) {
        disk.counts.write_errors += 1;
        // A failed write may have reached the medium in part.
        disk.fail_write(id, atoms);
        return Err(IoErrorKind::Medium);
    }
    if disk.random.chance(faults.lost_write_per_million) {
        disk.counts.writes_lost += 1;
        disk.lose_write(id, atoms);
        return Ok(Rope::new());
    }
    if disk.random.chance(faults.misdirected_write_per_million) && atoms.end - atoms.start < disk.atoms() {
        disk.counts.writes_misdirected += 1;
        let wrong = misdirected(disk, &atoms);
        // The intended atoms keep their old content, and the write is acknowledged all the same.
        disk.lose_write(id, atoms);
        // Under the same number, so that a flush makes the misdirected data durable as well.
        disk.begin_write(id, wrong.clone(), data.as_ref());
        disk.complete_write(id, wrong);
        return Ok(Rope::new());
    }
    disk.complete_write(id, atoms);
    Ok(Rope::new())
}

fn complete_flush(disk: &mut DiskState, covers: &BTreeSet<u64>) -> Result<Rope, IoErrorKind> {
    let faults = disk.faults.clone();
    if disk.random.chance(faults.flush_error_per_million) {
        disk.counts.flush_errors += 1;
        // A failed flush takes the whole disk out of service.
        disk.fail();
        return Err(IoErrorKind::Gone);
    }
    if disk.random.chance(faults.lost_flush_per_million) {
        // Acknowledged, although nothing has become durable.
        disk.counts.flushes_lost += 1;
    } else {
        disk.make_durable(covers);
    }
    Ok(Rope::new())
}

/// Returns a range of the same length at another address.
fn misdirected(disk: &mut DiskState, atoms: &Range<u64>) -> Range<u64> {
    let len = atoms.end - atoms.start;
    let start = disk.random.below(disk.atoms() - len);
    // Any start except the right one.
    let start = if start >= atoms.start { start + 1 } else { start };
    start..start + len
}

impl BlockDevice for SimDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry.admit(extent)?;
        self.carry(extent, Request::Read { atoms: self.atoms(extent) }).await
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry.extent_of(start, data.len())?;
        self.admit_write(extent)?;
        let request = Request::Write { atoms: self.atoms(extent), data: Some(data) };
        self.carry(extent, request).await.map(|_| Written::attest())
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        // Taken at submission: a write that completes later is not covered by this flush.
        let covers = self.state.borrow().completed.clone();
        self.carry(self.geometry.all(), Request::Flush { covers }).await.map(|_| Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.admit_write(extent)?;
        let request = Request::Write { atoms: self.atoms(extent), data: None };
        self.carry(extent, request).await.map(|_| Written::attest())
    }
}

impl Drop for SimDisk {
    fn drop(&mut self) {
        // A later opening of this machine may hold the disk by now.
        if self.is_held() {
            self.state.borrow_mut().holders.remove(&self.machine);
        }
    }
}
