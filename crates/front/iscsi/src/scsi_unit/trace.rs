//! I/O trace of a unit: a ring buffer of completed commands on the home shard of the unit.
//!
//! While the trace is off, a command reads one byte next to the other counters of the unit. While it is on, a command
//! takes a number at its start and is copied into the ring buffer at its end: no locks, and no memory that other shards
//! write.

use super::ScsiUnit;
use block::BlockDevice;
use engine::unit::CommandStart;
use model::{Refusal, TraceReport, Traced, TracedCommand, VolumeName, code};
use scsi::{Cdb, NexusId, Outcome};
use shard::{Time, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Upper bound of sessions distinguished in a trace. Later sessions share the last number.
const SESSIONS_MAX: usize = 1 << 14;

/// Budget of recorded commands for the traces of all units. Cheap to clone; clones share the budget. Accessed when a
/// trace starts or ends.
#[derive(Clone)]
pub struct TraceRoom {
    taken: Arc<AtomicU32>,
    commands_max: u32,
}

/// Reserved part of the budget, returned when dropped.
struct ReservedRoom {
    room: TraceRoom,
    commands: u32,
}

/// Trace of a unit, on or off.
#[derive(Default)]
pub(super) struct Tracer {
    is_on: Cell<bool>,
    /// Number of the latest command, across all traces of the unit.
    begun: Cell<u64>,
    ring: RefCell<Option<Box<Ring>>>,
}

/// Number of a command that was traced from its start; zero for one that was not.
#[derive(Clone, Copy)]
pub(super) struct Number(u64);

/// Completed command, as passed to the tracer.
pub(super) struct Ended<'a> {
    /// Issuing nexus.
    pub nexus: NexusId,
    /// CDB of the command.
    pub cdb: Cdb,
    /// Start time.
    pub clock: CommandStart,
    /// Completion time.
    pub ended: Time,
    /// Data-out bytes received with the command.
    pub written: u64,
    /// Result.
    pub outcome: &'a Outcome,
}

/// Ring buffer of completed commands.
struct Ring {
    taken: ReservedRoom,
    since: Time,
    begun_unix_ns: u64,
    /// Number of the latest command before the trace was started.
    before: u64,
    commands: Vec<TracedCommand>,
    /// Position of the next command, once the ring buffer is full.
    next: usize,
    ended: u64,
    sessions: Sessions,
}

#[derive(Default)]
struct Sessions {
    names: Vec<String>,
    numbers: BTreeMap<NexusId, u32>,
    last: Option<(NexusId, u32)>,
}

impl TraceRoom {
    /// Creates a budget of `commands_max` commands.
    pub fn new(commands_max: u32) -> Self {
        Self { taken: Arc::default(), commands_max }
    }

    fn take(&self, commands: u32) -> Result<ReservedRoom, Refusal> {
        let more = |taken: u32| taken.checked_add(commands).filter(|&all| all <= self.commands_max);
        match self.taken.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => Ok(ReservedRoom { room: self.clone(), commands }),
            Err(taken) => {
                let message = format!(
                    "a trace of {commands} commands exceeds the limit: all traces together keep {}, and {taken} \
                     are in use",
                    self.commands_max
                );
                Err(Refusal::new(
                    code::LIMIT_REACHED,
                    message,
                    "trace fewer commands, or stop the trace of another volume",
                ))
            }
        }
    }
}

impl Drop for ReservedRoom {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.commands, Relaxed);
    }
}

impl Tracer {
    /// Numbers a command at its start.
    #[inline]
    pub(super) fn begin(&self) -> Number {
        if self.is_on.get() { self.number() } else { Number(0) }
    }

    // Out of line, so that the inlined check stays small for commands that are not traced.
    #[cold]
    fn number(&self) -> Number {
        self.begun.set(self.begun.get() + 1);
        Number(self.begun.get())
    }

    #[cold]
    fn keep(&self, number: Number, ended: &Ended<'_>, name: impl FnOnce() -> String) {
        // Commands that started before this trace are left out: their start is not counted in it.
        if let Some(ring) = self.ring.borrow_mut().as_mut().filter(|ring| number.0 > ring.before) {
            ring.keep(number, ended, name);
        }
    }

    fn report(&self, volume: &VolumeName, now: Time) -> TraceReport {
        let ring = self.ring.borrow();
        let ring = ring.as_ref();
        let of = |count: fn(&Ring) -> u64| ring.map_or(0, |ring| count(ring));
        TraceReport {
            volume: volume.clone(),
            is_on: ring.is_some(),
            commands_max: ring.map_or(0, |ring| ring.taken.commands),
            kept: of(|ring| ring.commands.len() as u64),
            overwritten: of(Ring::overwritten),
            incomplete: ring.map_or(0, |ring| ring.unended(self.begun.get())),
            sessions: u32::try_from(of(|ring| ring.sessions.names.len() as u64)).unwrap_or(u32::MAX),
            running_ms: ring.map_or(0, |ring| now.since(ring.since).as_millis() as u64),
        }
    }
}

impl Ring {
    fn keep(&mut self, number: Number, ended: &Ended<'_>, name: impl FnOnce() -> String) {
        let Ended { nexus, cdb, clock, ended, written, outcome } = *ended;
        let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let nanos = |from: Time, to: Time| u64::try_from(to.since(from).as_nanos()).unwrap_or(u64::MAX);
        let command = TracedCommand {
            // No underflow: `keep` is called only with later numbers.
            number: number.0 - self.before,
            began_ns: nanos(self.since, clock.began),
            took_ns: nanos(clock.began, ended),
            cdb: cdb.bytes(),
            session: self.sessions.number_of(nexus, name),
            data_out_bytes: bytes(written),
            data_in_bytes: bytes(outcome.data_in.len() as u64),
            status: outcome.status.code(),
            sense: outcome.sense.as_ref().map_or([0; 3], |sense| [sense.key as u8, sense.code.0, sense.code.1]),
        };
        self.ended += 1;
        // The ring is allocated for its full length at the start, so a push never reallocates.
        if self.commands.len() < self.taken.commands as usize {
            self.commands.push(command);
            return;
        }
        // The oldest command is overwritten.
        self.commands[self.next] = command;
        self.next = (self.next + 1) % self.commands.len();
    }

    fn overwritten(&self) -> u64 {
        self.ended - self.commands.len() as u64
    }

    fn unended(&self, begun: u64) -> u64 {
        // No underflow: each ended command was begun in this trace.
        begun - self.before - self.ended
    }
}

impl Sessions {
    fn number_of(&mut self, nexus: NexusId, name: impl FnOnce() -> String) -> u32 {
        // Consecutive commands usually come from one session, which saves the lookup.
        match self.last {
            Some((last, number)) if last == nexus => number,
            _ => {
                let number = self.find_or_enter(nexus, name);
                self.last = Some((nexus, number));
                number
            }
        }
    }

    fn find_or_enter(&mut self, nexus: NexusId, name: impl FnOnce() -> String) -> u32 {
        if let Some(&number) = self.numbers.get(&nexus) {
            return number;
        }
        // Further sessions share the last number, so that the table stays bounded.
        if self.names.len() == SESSIONS_MAX {
            return SESSIONS_MAX as u32 - 1;
        }
        let number = self.names.len() as u32;
        self.names.push(name());
        self.numbers.insert(nexus, number);
        number
    }
}

impl<W: World> ScsiUnit<W> {
    /// Records the end of the command with the given `number`.
    #[inline]
    pub(super) fn trace_end(&self, number: Number, ended: &Ended<'_>) {
        if number.0 != 0 {
            self.tracer.keep(number, ended, || self.nexuses.borrow().get(&ended.nexus).cloned().unwrap_or_default());
        }
    }

    /// Returns the state of the trace.
    pub fn trace(&self) -> TraceReport {
        self.tracer.report(&self.unit.name, self.world.now())
    }

    /// Starts a trace that keeps the last `commands` completed commands.
    ///
    /// *Errors*: a trace is running; the budget is exhausted.
    pub fn start_trace(&self, room: &TraceRoom, commands: u32) -> Result<TraceReport, Refusal> {
        if self.tracer.is_on.get() {
            let message = format!("a trace of volume {} is already running", self.unit.name);
            let hint = format!("save it with blockyard volume trace {} --out, or end it with --stop", self.unit.name);
            return Err(Refusal::new(code::TRACED_ALREADY, message, hint));
        }
        let ring = Ring {
            // Reserved before any memory is allocated.
            taken: room.take(commands)?,
            since: self.world.now(),
            begun_unix_ns: u64::try_from(self.world.unix_time().as_nanos()).unwrap_or(u64::MAX),
            before: self.tracer.begun.get(),
            commands: Vec::with_capacity(commands as usize),
            next: 0,
            ended: 0,
            sessions: Sessions::default(),
        };
        *self.tracer.ring.borrow_mut() = Some(Box::new(ring));
        self.tracer.is_on.set(true);
        Ok(self.trace())
    }

    /// Returns the recorded commands, oldest first.
    ///
    /// *Errors*: no trace is running.
    pub fn take_trace(&self) -> Result<Traced, Refusal> {
        // The trace continues: taking it out copies the commands recorded so far.
        let ring = self.tracer.ring.borrow();
        let ring = ring.as_ref().ok_or_else(|| self.untraced())?;
        let geometry = self.unit.store().geometry();
        // The oldest commands start at the position of the next one.
        let (newer, older) = ring.commands.split_at(ring.next);
        Ok(Traced {
            volume: self.unit.name.clone(),
            block_bytes: geometry.block_bytes,
            blocks: geometry.blocks.0,
            begun_unix_ns: ring.begun_unix_ns,
            span_ns: u64::try_from(self.world.now().since(ring.since).as_nanos()).unwrap_or(u64::MAX),
            overwritten: ring.overwritten(),
            unended: ring.unended(self.tracer.begun.get()),
            sessions: ring.sessions.names.clone(),
            commands: [older, newer].concat(),
        })
    }

    /// Stops the trace and returns its final state.
    ///
    /// *Errors*: no trace is running.
    pub fn stop_trace(&self) -> Result<TraceReport, Refusal> {
        let told = self.trace();
        self.tracer.is_on.set(false);
        self.tracer.ring.take().map(|_| told).ok_or_else(|| self.untraced())
    }

    fn untraced(&self) -> Refusal {
        let message = format!("no trace of volume {} is running", self.unit.name);
        Refusal::new(
            code::TRACE_UNKNOWN,
            message,
            format!("start it with blockyard volume trace {} --start", self.unit.name),
        )
    }
}
