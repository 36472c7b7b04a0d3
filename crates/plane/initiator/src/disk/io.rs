//! Commands of a remote disk: over the active path, again when they were not carried out, over another path when theirs
//! is lost.
//!
//! Called by [`super::RemoteDisk`]. It must never answer for a command that the target has not answered.

use super::paths::Paths;
use crate::session::SessionError;
use crate::verdict::{self, Attention, Verdict};
use block::IoErrorKind;
use iscsi::initiator::{Command, Completion};
use shard::{Time, World};
use std::rc::Rc;
use std::time::Duration;

/// The pauses before a command that found the unit busy is sent again: the first, and the longest.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(5);
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Sessions that may end under a command before the time without a path is counted through.
const LOSSES_MAX: u32 = 8;

/// The command of `make` has been carried out.
///
/// *Shape*: `writes` for one that changes blocks: it waits until lost paths are fenced; `bytes` is what it moves.
/// *Errors*: `Gone` when no path was usable for the time limit, or another initiator has taken the unit: the disk fails
/// then; other kinds as the unit says.
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
            Ok(done) => match verdict::of(&done) {
                Verdict::Done => {
                    paths.count(path, bytes);
                    if writes {
                        paths.note_written(&session);
                    }
                    return Ok(done);
                }
                other => other,
            },
            // Whether it was carried out is unknown: a write waits above until its path is fenced.
            Err(SessionError::Ended(_)) => {
                // The limit is for the time without a path. A command that ends every session is given up.
                losses += 1;
                if losses <= LOSSES_MAX {
                    until = paths.world.now() + limit;
                }
                continue;
            }
            Err(SessionError::Aborted) => Verdict::Again(Attention::Other),
            Err(SessionError::Rejected(_) | SessionError::TimeLimit(_)) => Verdict::Later,
        };
        match verdict {
            Verdict::Done => unreachable!("it was returned above"),
            Verdict::Again(Attention::AccessChanged) => paths.refresh_access(path, &session).await,
            Verdict::Again(Attention::Restarted) => {
                paths.lose_cache();
                paths.drop_session(path, &session, "the target was started or reset");
            }
            Verdict::Again(Attention::Cleared) => {
                paths.drop_session(path, &session, "another initiator has cleared the commands under way");
            }
            Verdict::Again(Attention::UnitChanged) => paths.look_again(path, &session, false).await,
            Verdict::Again(Attention::Preempted) => paths.look_again(path, &session, true).await,
            Verdict::NotMapped => {
                paths.drop_session(path, &session, "the LUN is not mapped to this initiator any more")
            }
            Verdict::Again(Attention::Other) => {}
            Verdict::Later => {
                paths.world.sleep(pause).await;
                pause = (pause * 2).min(BUSY_PAUSE_MAX);
            }
            Verdict::PathUnusable => paths.set_unusable(path),
            Verdict::ReservationConflict => {
                paths.resolve_conflict(path, &session).await;
                if paths.has_failed() {
                    return Err(IoErrorKind::Gone);
                }
            }
            Verdict::Failed(kind) => return Err(kind),
        }
        give_up_at(paths, until)?;
    }
}

/// A unit that has not carried out a command for the time limit, though it was asked again and again, has failed.
fn give_up_at<W: World>(paths: &Rc<Paths<W>>, until: Time) -> Result<(), IoErrorKind> {
    if paths.world.now() < until {
        return Ok(());
    }
    paths.fail("the unit does not carry out commands: it is busy or not ready");
    Err(IoErrorKind::Gone)
}
