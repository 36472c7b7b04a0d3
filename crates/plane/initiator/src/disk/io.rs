//! Commands of a remote disk: sent over the active path, retried when they were not carried out, retried over another
//! path when theirs is lost.
//!
//! Called by [`super::RemoteDisk`]. It must never report a command that the target has not answered as done.

use super::paths::Paths;
use crate::outcome::{self, Attention, Outcome};
use crate::session::SessionError;
use block::IoErrorKind;
use iscsi::initiator::{Command, Completion};
use shard::{Time, World};
use std::rc::Rc;
use std::time::Duration;

/// Back-off before a command that found the unit busy is retried: first and longest pause.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(5);
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Number of session losses per command that restart the no-path timeout.
const LOSSES_MAX: u32 = 8;

/// Runs the command that `make` builds until it has been carried out.
///
/// *Shape*: `writes` is true for one that changes blocks, which waits until lost paths are fenced; `bytes` is the
/// amount of data that it transfers. *Errors*: `Gone` when no path was usable for the no-path timeout, or another
/// initiator has taken the unit: the disk fails then; other kinds as the unit reports.
pub(super) async fn run<W: World>(
    paths: &Rc<Paths<W>>,
    writes: bool,
    bytes: u64,
    make: impl Fn() -> Command,
) -> Result<Completion, IoErrorKind> {
    let limit = paths.config.no_path_limit;
    let mut until = paths.world.now() + limit;
    let (mut pause, mut losses) = (BUSY_PAUSE_MIN, 0);
    loop {
        let (path, session) = paths.usable_until(writes, until).await.map_err(|()| IoErrorKind::Gone)?;
        let verdict = match session.execute(make()).await {
            Ok(done) => match outcome::of(&done) {
                Outcome::Done => {
                    paths.count(path, bytes);
                    // Counted before the caller knows of it, so that a later flush covers it.
                    if writes {
                        paths.note_written(&session);
                    }
                    return Ok(done);
                }
                other => other,
            },
            // Unknown whether it was carried out: `usable_until` holds a write back until its path is fenced.
            Err(SessionError::Ended(_)) => {
                // The timeout is for the time without a path. A command that ends every session is given up.
                losses += 1;
                if losses <= LOSSES_MAX {
                    until = paths.world.now() + limit;
                }
                continue;
            }
            // The target has confirmed the end of the task, so nothing can overtake the retry.
            Err(SessionError::Aborted) => Outcome::RetryNow(Attention::Other),
            Err(SessionError::Rejected(_) | SessionError::TimeLimit(_)) => Outcome::RetryLater,
        };
        match verdict {
            Outcome::Done => unreachable!("it was returned above"),
            Outcome::RetryNow(Attention::AccessChanged) => paths.refresh_access(path, &session).await,
            // The reset may have ended other commands without an answer: a new login gives each of them an end.
            Outcome::RetryNow(Attention::Restarted) => {
                paths.lose_cache();
                paths.drop_session(path, &session, "the target was started or reset");
            }
            Outcome::RetryNow(Attention::Cleared) => {
                paths.drop_session(path, &session, "another initiator has cleared the commands under way");
            }
            Outcome::RetryNow(Attention::UnitChanged) => paths.revalidate(path, &session, false).await,
            Outcome::RetryNow(Attention::Preempted) => paths.revalidate(path, &session, true).await,
            Outcome::NotMapped => {
                paths.drop_session(path, &session, "the LUN is not mapped to this initiator any more")
            }
            Outcome::RetryNow(Attention::Other) => {}
            Outcome::RetryLater => {
                // Exponential back-off: BUSY and TASK SET FULL are signs of overload.
                paths.world.sleep(pause).await;
                pause = (pause * 2).min(BUSY_PAUSE_MAX);
            }
            Outcome::PathUnusable => paths.set_unusable(path),
            Outcome::ReservationConflict => {
                paths.resolve_conflict(path, &session).await;
                if paths.has_failed() {
                    return Err(IoErrorKind::Gone);
                }
            }
            Outcome::Failed(kind) => return Err(kind),
        }
        give_up_at(paths, until)?;
    }
}

/// Fails the disk when the unit has not carried out a command by `until`, in spite of retries.
fn give_up_at<W: World>(paths: &Rc<Paths<W>>, until: Time) -> Result<(), IoErrorKind> {
    if paths.world.now() < until {
        return Ok(());
    }
    paths.fail("the unit does not carry out commands: it is busy or not ready");
    Err(IoErrorKind::Gone)
}
