//! Fencing: making sure that the writes of a lost path have ended before they are retried.
//!
//! A target may hold a write for any time after its connection is gone, and carry it out then. If it were retried
//! immediately over another path, the late original could overwrite newer data. So a path that was lost with writes in
//! flight is fenced through a working one: PREEMPT AND ABORT of its registered key, which the target answers when the
//! tasks have ended and after which nothing of that nexus can write; LOGICAL UNIT RESET where the unit does not support
//! persistent reservations.
//!
//! Called by [`crate::disk`]. It must never report success unless the target has confirmed the end of the tasks.

use crate::cdb::{self, READ_KEYS, READ_RESERVATION, REPORT_CAPABILITIES, ReserveOut};
use crate::outcome::{self, Outcome};
use crate::page;
use crate::session::{Session, SessionError};
use iscsi::initiator::{Command, Completion};
use iscsi::pdu::{Lun, TaskFunction, TaskFunctionOutcome};
use scsi::ParsedSense;
use shard::World;
use std::time::Duration;

/// Limit on the time in which the target ends the tasks of a lost path: longer than any disk holds a write.
const END_LIMIT: Duration = Duration::from_secs(300);
/// Timeout of every other command of this module.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Limit on retries of a command that the unit did not carry out.
const TRIES_MAX: u32 = 32;
/// Pause before a command that found the unit busy is retried.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// Path that was lost with writes in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPath {
    /// Index of the path.
    pub path: usize,
    /// Key that it had registered; zero without reservations.
    pub key: u64,
}

/// Failure of fencing or reserving, as a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// The session that carried the command failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The unit refused the command.
    #[error("{command} ended with status {status:#04x}, sense {sense:02x?}")]
    Refused {
        /// Name of the command.
        command: &'static str,
        /// SCSI status.
        status: u8,
        /// Sense data.
        sense: Vec<u8>,
    },
    /// LOGICAL UNIT RESET was refused.
    #[error("LOGICAL UNIT RESET was answered with {0:?}")]
    ResetRefused(TaskFunctionOutcome),
    /// Another initiator has registered with the unit or reserved it.
    #[error("the unit is reserved by another initiator with the key {key:#018x}")]
    Foreign {
        /// Key of the other initiator.
        key: u64,
    },
}

/// Method by which the writes of a lost path were ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceMethod {
    /// PREEMPT AND ABORT of the path's key.
    Preempted,
    /// LOGICAL UNIT RESET, which ends the commands of all other sessions as well, and answers none of them.
    Reset,
}

/// Method to end the writes of a lost path.
#[expect(async_fn_in_trait, reason = "sessions live on one shard; their futures need not be Send")]
pub trait Fence<W: World> {
    /// Returns when the writes of `lost` that were in flight have ended and none can start.
    ///
    /// *Shape*: `living` is a session over another path, and `key` the key that that path has registered. *Errors*: the
    /// state of the writes is unknown; to be retried.
    async fn end_writes(&self, living: &Session<W>, key: u64, lost: LostPath) -> Result<FenceMethod, FenceError>;
}

/// Fencing method of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitFence {
    /// Persistent reservations: Write Exclusive, All Registrants.
    Reservation {
        /// Logical unit.
        lun: Lun,
        /// True when registrations survive a power loss of the target.
        survives: bool,
    },
    /// LOGICAL UNIT RESET.
    Reset {
        /// Logical unit.
        lun: Lun,
    },
}

impl<W: World> Fence<W> for UnitFence {
    async fn end_writes(&self, living: &Session<W>, key: u64, lost: LostPath) -> Result<FenceMethod, FenceError> {
        match *self {
            Self::Reset { lun } => reset(living, lun).await,
            // Keys are drawn at random: where both paths drew the same, its removal would end the living path.
            Self::Reservation { lun, .. } if key == lost.key => reset(living, lun).await,
            Self::Reservation { lun, survives } => {
                let preempt = cdb::reserve_out(lun, ReserveOut::PreemptAndAbort, key, lost.key, survives);
                let done = run_within(living, || clone_of(&preempt), END_LIMIT).await?;
                match outcome::of(&done) {
                    Outcome::Done => Ok(FenceMethod::Preempted),
                    // The key is no longer registered: an earlier attempt removed it, and its answer was lost. The
                    // tasks may still be running.
                    Outcome::ReservationConflict => reset(living, lun).await,
                    _ => Err(refused("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", &done)),
                }
            }
        }
    }
}

impl UnitFence {
    /// Chooses the best fencing method that the unit of `session` supports.
    ///
    /// *Errors*: the session failed.
    pub async fn of<W: World>(session: &Session<W>, lun: Lun) -> Result<Self, FenceError> {
        let done = run(session, || cdb::reserve_in(lun, REPORT_CAPABILITIES)).await?;
        let capabilities = match outcome::of(&done) {
            Outcome::Done => page::reserve_capabilities(done.data_in.as_deref().unwrap_or_default()),
            // The command is optional: without it, a reset is the only fence.
            _ => page::ReserveCapabilities::default(),
        };
        Ok(match capabilities.all_registrants {
            true => Self::Reservation { lun, survives: capabilities.survives },
            false => Self::Reset { lun },
        })
    }

    /// Registers `key` for this session's nexus and joins the reservation; an earlier key of the nexus is replaced.
    ///
    /// *Errors*: [`FenceError::Foreign`] where another initiator holds a reservation of another type.
    pub async fn register<W: World>(&self, session: &Session<W>, key: u64) -> Result<(), FenceError> {
        let Self::Reservation { lun, survives } = *self else { return Ok(()) };
        assert_ne!(key, 0, "the key 0 unregisters");
        register(session, lun, key, survives).await?;
        // RESERVE succeeds for every registrant of an All Registrants reservation that exists already.
        let done = run(session, || cdb::reserve_out(lun, ReserveOut::Reserve, key, 0, survives)).await?;
        match outcome::of(&done) {
            Outcome::Done => Ok(()),
            Outcome::ReservationConflict => Err(match reservation(session, lun).await? {
                Some((key, _)) => FenceError::Foreign { key },
                None => refused("PERSISTENT RESERVE OUT, RESERVE", &done),
            }),
            _ => Err(refused("PERSISTENT RESERVE OUT, RESERVE", &done)),
        }
    }

    /// Unregisters the nexus of this session, which had registered `key`. The last one to leave releases the
    /// reservation.
    ///
    /// *Errors*: the session failed or the unit refused.
    pub async fn unregister<W: World>(&self, session: &Session<W>, key: u64) -> Result<(), FenceError> {
        let Self::Reservation { lun, survives } = *self else { return Ok(()) };
        unregister(session, lun, key, survives).await
    }

    /// Preempts every registration for which `is_stale` is true, and waits for the end of its tasks.
    ///
    /// *Shape*: `key` is registered for this session's nexus. *Errors*: the session failed or the unit refused.
    pub async fn preempt<W: World>(
        &self,
        session: &Session<W>,
        key: u64,
        is_stale: impl Fn(u64) -> bool,
    ) -> Result<(), FenceError> {
        let Self::Reservation { lun, survives } = *self else { return Ok(()) };
        let mut stale: Vec<u64> = keys(session, lun).await?;
        stale.retain(|&other| other != key && is_stale(other));
        // Several nexuses may be registered with one key.
        stale.dedup();
        for other in stale {
            tracing::info!(key = format!("{other:#018x}"), "a registration that is not in use is preempted");
            let preempt = || cdb::reserve_out(lun, ReserveOut::PreemptAndAbort, key, other, survives);
            let done = run_within(session, preempt, END_LIMIT).await?;
            // Conflict: the key was registered by two nexuses, and the first preemption removed both.
            if !matches!(outcome::of(&done), Outcome::Done | Outcome::ReservationConflict) {
                return Err(refused("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", &done));
            }
        }
        Ok(())
    }

    /// True when `key` is registered, or when the unit does not support registrations.
    ///
    /// *Errors*: the session failed.
    pub async fn is_registered<W: World>(&self, session: &Session<W>, key: u64) -> Result<bool, FenceError> {
        let Self::Reservation { lun, .. } = *self else { return Ok(true) };
        Ok(keys(session, lun).await?.contains(&key))
    }

    /// Returns the first registered key for which `is_ours` is false.
    ///
    /// *Errors*: the session failed.
    pub async fn foreign_key<W: World>(
        &self,
        session: &Session<W>,
        is_ours: impl Fn(u64) -> bool,
    ) -> Result<Option<u64>, FenceError> {
        let Self::Reservation { lun, .. } = *self else { return Ok(None) };
        Ok(keys(session, lun).await?.into_iter().find(|&key| !is_ours(key)))
    }
}

/// Registers `key` for the nexus of this session.
///
/// *Shape*: with `survives` the registration survives a power loss of the target, if the target can store it now.
async fn register<W: World>(session: &Session<W>, lun: Lun, key: u64, survives: bool) -> Result<(), FenceError> {
    let refusal = match set_key(session, lun, key, survives).await {
        // The target may report that it can store registrations (PTPL_C), and fail to.
        Err(FenceError::Refused { .. }) if survives => set_key(session, lun, key, false).await,
        set => set,
    };
    match refusal {
        // Only believed when READ KEYS shows the key.
        Err(FenceError::Refused { sense, .. }) if cannot_store(&sense) && keys(session, lun).await?.contains(&key) => {
            tracing::info!("the target cannot store registrations: they end when it restarts");
            Ok(())
        }
        other => other,
    }
}

/// Unregisters the nexus of this session, which had registered `key`.
async fn unregister<W: World>(session: &Session<W>, lun: Lun, key: u64, survives: bool) -> Result<(), FenceError> {
    match set_key(session, lun, 0, survives).await {
        // As at the registration: believed only if READ KEYS confirms it.
        Err(FenceError::Refused { sense, .. }) if cannot_store(&sense) && !keys(session, lun).await?.contains(&key) => {
            Ok(())
        }
        other => other,
    }
}

/// Sends REGISTER AND IGNORE EXISTING KEY; key zero removes the registration.
async fn set_key<W: World>(session: &Session<W>, lun: Lun, key: u64, survives: bool) -> Result<(), FenceError> {
    // The existing key is zero: this service action ignores the field.
    let command = || cdb::reserve_out(lun, ReserveOut::RegisterAndIgnore, 0, key, survives);
    let done = run_until(session, command, ANSWER_LIMIT, |done| cannot_store(&done.sense)).await?;
    match outcome::of(&done) {
        Outcome::Done => Ok(()),
        _ => Err(refused("PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", &done)),
    }
}

/// True for LOGICAL UNIT COMMUNICATION FAILURE: LIO has carried out the registration, but could not write its
/// registration file (`/etc/target/pr` or `/var/target/pr` is missing). It also answers so where nothing was to be
/// stored.
fn cannot_store(sense: &[u8]) -> bool {
    ParsedSense::parse(sense).is_some_and(|sensed| sensed.code.0 == 0x08)
}

/// Returns the keys of all registrations of the unit.
async fn keys<W: World>(session: &Session<W>, lun: Lun) -> Result<Vec<u64>, FenceError> {
    let done = run(session, || cdb::reserve_in(lun, READ_KEYS)).await?;
    match outcome::of(&done) {
        Outcome::Done => Ok(page::keys(done.data_in.as_deref().unwrap_or_default())),
        _ => Err(refused("PERSISTENT RESERVE IN, READ KEYS", &done)),
    }
}

/// Returns key and type of the unit's reservation.
async fn reservation<W: World>(session: &Session<W>, lun: Lun) -> Result<Option<(u64, u8)>, FenceError> {
    let done = run(session, || cdb::reserve_in(lun, READ_RESERVATION)).await?;
    match outcome::of(&done) {
        Outcome::Done => Ok(page::holder(done.data_in.as_deref().unwrap_or_default())),
        _ => Err(refused("PERSISTENT RESERVE IN, READ RESERVATION", &done)),
    }
}

/// Resets the logical unit, which ends all of its tasks.
async fn reset<W: World>(session: &Session<W>, lun: Lun) -> Result<FenceMethod, FenceError> {
    match session.manage(TaskFunction::LogicalUnitReset, lun, END_LIMIT).await? {
        TaskFunctionOutcome::Complete => Ok(FenceMethod::Reset),
        outcome => Err(FenceError::ResetRefused(outcome)),
    }
}

fn refused(command: &'static str, done: &Completion) -> FenceError {
    FenceError::Refused { command, status: done.status, sense: done.sense.to_vec() }
}

/// Returns the same command again, sharing its data.
fn clone_of(command: &Command) -> Command {
    let Command { lun, cdb, attribute, data_out, .. } = command;
    let (cdb, data_out) = (cdb.clone(), data_out.clone());
    Command { lun: *lun, cdb, attribute: *attribute, data_out, data_in: iscsi::initiator::DataIn::None }
}

/// Runs a command until it was carried out or refused: retries unit attentions and a busy unit.
///
/// *Errors*: the session failed, or the unit stays busy.
pub async fn run<W: World>(session: &Session<W>, make: impl Fn() -> Command) -> Result<Completion, FenceError> {
    run_within(session, make, ANSWER_LIMIT).await
}

async fn run_within<W: World>(
    session: &Session<W>,
    make: impl Fn() -> Command,
    limit: Duration,
) -> Result<Completion, FenceError> {
    run_until(session, make, limit, |_| false).await
}

/// As [`run_within`], but a completion for which `is_final` is true is not retried.
async fn run_until<W: World>(
    session: &Session<W>,
    make: impl Fn() -> Command,
    limit: Duration,
    is_final: impl Fn(&Completion) -> bool,
) -> Result<Completion, FenceError> {
    let mut tries = 0;
    loop {
        let done = session.execute_within(make(), limit).await?;
        tries += 1;
        if is_final(&done) {
            return Ok(done);
        }
        match outcome::of(&done) {
            // Conditions that are reported once: the command is repeated immediately.
            Outcome::RetryNow(_) if tries < TRIES_MAX => {}
            Outcome::RetryLater if tries < TRIES_MAX => session.pause(BUSY_PAUSE).await,
            // The last of too many attempts ends here as well: the caller reports its status.
            _ => return Ok(done),
        }
    }
}
