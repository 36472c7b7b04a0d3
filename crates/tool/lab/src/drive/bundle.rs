//! Connections of one session (MC/S): commands are dealt over them in turn, and each completes on its connection (RFC
//! 7143 §4.2.5).

use super::wire::{Carrier, exchange};
use crate::load::{Due, Source};
use anyhow::{Context, Result};
use shard::{Time, World, yield_now};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Quantum after which a session that never waits yields to the others.
const SHARE: Duration = Duration::from_micros(50);

/// Connection: its stream and its protocol machine.
pub(super) struct Line<S, C> {
    pub stream: S,
    pub carrier: C,
}

/// Carries the commands of `source` over all `lines` until the source is over and the last command has completed;
/// returns the number of counted commands.
///
/// *Errors*: a connection broke or ended, since the session is then not the one to be measured. Names the connection.
pub(super) async fn carry<W: World, C: Carrier>(
    world: &W,
    lines: &mut [Line<&W::Stream, &mut C>],
    source: &mut Source,
) -> Result<u64> {
    let (mut now, mut turn) = (world.now(), 0);
    let mut stretch = Quantum::from(now);
    let all = lines.len();
    let which = |index: usize| format!("connection {} of {all} of the session", index + 1);
    loop {
        // Everything that is due is submitted first, so that it goes out in one gathered send.
        let until = loop {
            match source.next(now) {
                Due::Now(op) => {
                    let content = source.begin(&op);
                    lines[turn].carrier.submit(op, content).with_context(|| which(turn))?;
                    // In turn, so that every connection has the same share of the commands.
                    turn = (turn + 1) % all;
                }
                Due::At(then) => break Some(then),
                Due::Full => break None,
                Due::Over if source.under_way() == 0 => return Ok(source.commands()),
                Due::Over => break None,
            }
        };
        // Sampled before the wait: a command that waits for the window now is charged for the whole wait.
        let held = lines.iter().any(|line| line.carrier.is_held());
        let mut waited = false;
        let mut timer = pin!(until.map(|until| world.sleep_until(until)));
        poll_fn(|cx| {
            let mut moved = false;
            for (index, line) in lines.iter_mut().enumerate() {
                moved |= exchange(cx, world, line.stream, line.carrier).with_context(|| which(index))?;
            }
            let due = !moved && timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
            // Waiting for the network yields by itself; only a session that never waits must yield explicitly.
            waited |= !moved && !due;
            if moved || due { Poll::Ready(anyhow::Ok(())) } else { Poll::Pending }
        })
        .await?;
        let since = std::mem::replace(&mut now, world.now());
        if held {
            source.held(since, now);
        }
        for (index, line) in lines.iter_mut().enumerate() {
            // One time for all completions of an exchange: they were received by one call.
            while let Some((op, well, data)) = line.carrier.poll_end().with_context(|| which(index))? {
                source.ended(&op, now, well, data.as_deref());
            }
        }
        // MaxCmdSN belongs to the session: an answer on one connection may admit commands on another one.
        lines.iter_mut().for_each(|line| line.carrier.handle_window_moved());
        now = stretch.goes_on(world, waited, now).await;
    }
}

/// Time since a session's last wait, during which others may have been waiting.
struct Quantum {
    end: Time,
}

impl Quantum {
    /// Starts a stretch.
    fn from(now: Time) -> Self {
        Self { end: now + SHARE }
    }

    /// Yields if the stretch has lasted for the quantum without a wait, and returns the present time.
    async fn goes_on<W: World>(&mut self, world: &W, waited: bool, now: Time) -> Time {
        let now = match waited {
            true => now,
            false if now < self.end => return now,
            false => {
                yield_now().await;
                world.now()
            }
        };
        *self = Self::from(now);
        now
    }
}
