//! Fencing: how a remote disk makes sure that the writes of a lost path have ended before it sends them again.
//!
//! A target may hold a write for any time after its connection is gone, and carry it out then. Were it sent again over
//! another path at once, the late first one could overwrite what was written after it. So a path that was lost with
//! writes under way is fenced by a living one: PREEMPT AND ABORT of its registered key, which the target answers when
//! the tasks have ended and after which nothing of that nexus may write; LOGICAL UNIT RESET where the unit knows no
//! persistent reservations.
//!
//! Called by [`crate::disk`]. It must never report success unless the target has said that the tasks have ended.

use crate::cdb::{self, READ_KEYS, READ_RESERVATION, REPORT_CAPABILITIES, ReserveOut};
use crate::page;
use crate::session::{Session, SessionError};
use crate::verdict::{self, Verdict};
use iscsi::initiator::{Command, Completion};
use iscsi::pdu::{Lun, TaskFunction, TaskFunctionOutcome};
use scsi::Sensed;
use shard::World;
use std::time::Duration;

/// How long the target may take to end the tasks of a lost path: longer than any disk holds a write.
const END_LIMIT: Duration = Duration::from_secs(300);
/// How long any other command of this module may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How often a command is sent again that the unit did not carry out.
const TRIES_MAX: u32 = 32;
/// The pause before a command that found the unit busy is sent again.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// A path that was lost with writes under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPath {
    /// Its number.
    pub path: usize,
    /// The key that it had registered; zero without reservations.
    pub key: u64,
}

/// A failure of fencing or reserving, as a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// The path that was to do it failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The unit refused the command.
    #[error("{command} ended with status {status:#04x}, sense {sense:02x?}")]
    Refused {
        /// The command's name.
        command: &'static str,
        /// The SCSI status.
        status: u8,
        /// The sense data.
        sense: Vec<u8>,
    },
    /// LOGICAL UNIT RESET was refused.
    #[error("LOGICAL UNIT RESET was answered with {0:?}")]
    ResetRefused(TaskFunctionOutcome),
    /// Another initiator has registered or reserved the unit.
    #[error("the unit is reserved by another initiator with the key {key:#018x}")]
    Foreign {
        /// The other initiator's key.
        key: u64,
    },
}

/// How the writes of a lost path were ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By PREEMPT AND ABORT of the path's key.
    Preempted,
    /// By LOGICAL UNIT RESET, which ends the commands of all other sessions as well, and answers none of them.
    Reset,
}

/// A way to end the writes of a lost path.
#[expect(async_fn_in_trait, reason = "sessions live on one shard; their futures need not be Send")]
pub trait Fence<W: World> {
    /// The writes that `lost` had under way have ended, or never will begin.
    ///
    /// *Shape*: `living` is a session over another path, and `key` what that path has registered.
    /// *Errors*: nobody knows yet; to be tried again.
    async fn end_writes(&self, living: &Session<W>, key: u64, lost: LostPath) -> Result<Ended, FenceError>;
}

/// The fence of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitFence {
    /// Persistent reservations: Write Exclusive, All Registrants.
    Reservation {
        /// The logical unit.
        lun: Lun,
        /// Registrations outlive the target's power.
        survives: bool,
    },
    /// LOGICAL UNIT RESET.
    Reset {
        /// The logical unit.
        lun: Lun,
    },
}

impl<W: World> Fence<W> for UnitFence {
    async fn end_writes(&self, living: &Session<W>, key: u64, lost: LostPath) -> Result<Ended, FenceError> {
        match *self {
            Self::Reset { lun } => reset(living, lun).await,
            Self::Reservation { lun, survives } => {
                assert_ne!(key, lost.key, "a path is fenced by another registration than its own");
                let preempt = cdb::reserve_out(lun, ReserveOut::PreemptAndAbort, key, lost.key, survives);
                let done = run_within(living, || clone_of(&preempt), END_LIMIT).await?;
                match verdict::of(&done) {
                    Verdict::Done => Ok(Ended::Preempted),
                    // The key is not registered any more: an earlier attempt has removed it, and its answer was lost.
                    // The tasks may run still.
                    Verdict::ReservationConflict => reset(living, lun).await,
                    _ => Err(refused("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", &done)),
                }
            }
        }
    }
}

impl UnitFence {
    /// The best fence that the unit of `session` supports.
    ///
    /// *Errors*: the session failed.
    pub async fn of<W: World>(session: &Session<W>, lun: Lun) -> Result<Self, FenceError> {
        let done = run(session, || cdb::reserve_in(lun, REPORT_CAPABILITIES)).await?;
        let capabilities = match verdict::of(&done) {
            Verdict::Done => page::reserve_capabilities(done.data_in.as_deref().unwrap_or_default()),
            _ => page::ReserveCapabilities::default(),
        };
        Ok(match capabilities.all_registrants {
            true => Self::Reservation { lun, survives: capabilities.survives },
            false => Self::Reset { lun },
        })
    }

    /// `key` is registered for this session's nexus and takes part in the reservation; an earlier key of the nexus is
    /// replaced.
    ///
    /// *Errors*: [`FenceError::Foreign`] where another initiator holds a reservation of another kind.
    pub async fn enter<W: World>(&self, session: &Session<W>, key: u64) -> Result<(), FenceError> {
        let Self::Reservation { lun, survives } = *self else { return Ok(()) };
        assert_ne!(key, 0, "the key 0 unregisters");
        register(session, lun, key, survives).await?;
        let done = run(session, || cdb::reserve_out(lun, ReserveOut::Reserve, key, 0, survives)).await?;
        match verdict::of(&done) {
            Verdict::Done => Ok(()),
            Verdict::ReservationConflict => Err(match reservation(session, lun).await? {
                Some((key, _)) => FenceError::Foreign { key },
                None => refused("PERSISTENT RESERVE OUT, RESERVE", &done),
            }),
            _ => Err(refused("PERSISTENT RESERVE OUT, RESERVE", &done)),
        }
    }

    /// The nexus of this session, which had registered `key`, has no registration any more. The last one that leaves releases the reservation.
    ///
    /// *Errors*: the session failed or the unit refused.
    pub async fn leave<W: World>(&self, session: &Session<W>, key: u64) -> Result<(), FenceError> {
        let Self::Reservation { lun, survives } = *self else { return Ok(()) };
        unregister(session, lun, key, survives).await
    }

    /// Every registration that `is_stale` says is preempted, and its tasks have ended.
    ///
    /// *Shape*: `key` is what this session's nexus has registered. *Errors*: the session failed or the unit refused.
    pub async fn preempt<W: World>(
        &self,
        session: &Session<W>,
        key: u64,
        is_stale: impl Fn(u64) -> bool,
    ) -> Result<(), FenceError> {
        let Self::Reservation { lun, survives } = *self else { return Ok(()) };
        let mut stale: Vec<u64> = keys(session, lun).await?;
        stale.retain(|&other| other != key && is_stale(other));
        stale.dedup();
        for other in stale {
            tracing::info!(key = format!("{other:#018x}"), "a registration that is not in use is preempted");
            let preempt = || cdb::reserve_out(lun, ReserveOut::PreemptAndAbort, key, other, survives);
            let done = run_within(session, preempt, END_LIMIT).await?;
            // In conflict: it was registered twice, and both are gone.
            if !matches!(verdict::of(&done), Verdict::Done | Verdict::ReservationConflict) {
                return Err(refused("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", &done));
            }
        }
        Ok(())
    }

    /// `key` is registered, or the unit knows no registrations.
    ///
    /// *Errors*: the session failed.
    pub async fn has<W: World>(&self, session: &Session<W>, key: u64) -> Result<bool, FenceError> {
        let Self::Reservation { lun, .. } = *self else { return Ok(true) };
        Ok(keys(session, lun).await?.contains(&key))
    }

    /// The first registered key that `is_ours` does not know.
    ///
    /// *Errors*: the session failed.
    pub async fn foreign<W: World>(
        &self,
        session: &Session<W>,
        is_ours: impl Fn(u64) -> bool,
    ) -> Result<Option<u64>, FenceError> {
        let Self::Reservation { lun, .. } = *self else { return Ok(None) };
        Ok(keys(session, lun).await?.into_iter().find(|&key| !is_ours(key)))
    }
}

/// `key` is registered for the nexus of this session.
///
/// *Shape*: with `survives` it outlives the target's power, where the target can store it now.
async fn register<W: World>(session: &Session<W>, lun: Lun, key: u64, survives: bool) -> Result<(), FenceError> {
    let refusal = match set_key(session, lun, key, survives).await {
        // It may report that it can store registrations (PTPL_C), and fail to.
        Err(FenceError::Refused { .. }) if survives => set_key(session, lun, key, false).await,
        set => set,
    };
    match refusal {
        Err(FenceError::Refused { sense, .. }) if cannot_store(&sense) && keys(session, lun).await?.contains(&key) => {
            tracing::info!("the target cannot store registrations: they end when it restarts");
            Ok(())
        }
        other => other,
    }
}

/// The nexus of this session, which had registered `key`, has no registration.
async fn unregister<W: World>(session: &Session<W>, lun: Lun, key: u64, survives: bool) -> Result<(), FenceError> {
    match set_key(session, lun, 0, survives).await {
        Err(FenceError::Refused { sense, .. }) if cannot_store(&sense) && !keys(session, lun).await?.contains(&key) => {
            Ok(())
        }
        other => other,
    }
}

/// REGISTER AND IGNORE EXISTING KEY; zero removes the registration.
async fn set_key<W: World>(session: &Session<W>, lun: Lun, key: u64, survives: bool) -> Result<(), FenceError> {
    let command = || cdb::reserve_out(lun, ReserveOut::RegisterAndIgnore, 0, key, survives);
    let done = run_until(session, command, ANSWER_LIMIT, |done| cannot_store(&done.sense)).await?;
    match verdict::of(&done) {
        Verdict::Done => Ok(()),
        _ => Err(refused("PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", &done)),
    }
}

/// LOGICAL UNIT COMMUNICATION FAILURE: LIO has carried out the registration, and could not write its file of registrations
/// (`/etc/target/pr` or `/var/target/pr` is missing). It answers so also where nothing was to be stored.
fn cannot_store(sense: &[u8]) -> bool {
    Sensed::parse(sense).is_some_and(|sensed| sensed.code.0 == 0x08)
}

/// The keys of all registrations of the unit.
async fn keys<W: World>(session: &Session<W>, lun: Lun) -> Result<Vec<u64>, FenceError> {
    let done = run(session, || cdb::reserve_in(lun, READ_KEYS)).await?;
    match verdict::of(&done) {
        Verdict::Done => Ok(page::keys(done.data_in.as_deref().unwrap_or_default())),
        _ => Err(refused("PERSISTENT RESERVE IN, READ KEYS", &done)),
    }
}

/// Key and type of the reservation of the unit.
async fn reservation<W: World>(session: &Session<W>, lun: Lun) -> Result<Option<(u64, u8)>, FenceError> {
    let done = run(session, || cdb::reserve_in(lun, READ_RESERVATION)).await?;
    match verdict::of(&done) {
        Verdict::Done => Ok(page::holder(done.data_in.as_deref().unwrap_or_default())),
        _ => Err(refused("PERSISTENT RESERVE IN, READ RESERVATION", &done)),
    }
}

/// All tasks of the unit have ended.
async fn reset<W: World>(session: &Session<W>, lun: Lun) -> Result<Ended, FenceError> {
    match session.manage(TaskFunction::LogicalUnitReset, lun, END_LIMIT).await? {
        TaskFunctionOutcome::Complete => Ok(Ended::Reset),
        outcome => Err(FenceError::ResetRefused(outcome)),
    }
}

fn refused(command: &'static str, done: &Completion) -> FenceError {
    FenceError::Refused { command, status: done.status, sense: done.sense.to_vec() }
}

/// The same command once more: its data is shared.
fn clone_of(command: &Command) -> Command {
    let Command { lun, cdb, attribute, data_out, .. } = command;
    let (cdb, data_out) = (cdb.clone(), data_out.clone());
    Command { lun: *lun, cdb, attribute: *attribute, data_out, data_in: iscsi::initiator::DataIn::None }
}

/// A command of `make` has been carried out or refused: unit attentions and a busy unit are waited out.
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

/// As [`run_within`]; what `is_final` knows is not tried again either.
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
        match verdict::of(&done) {
            Verdict::Again(_) if tries < TRIES_MAX => {}
            Verdict::Later if tries < TRIES_MAX => session.pause(BUSY_PAUSE).await,
            _ => return Ok(done),
        }
    }
}
