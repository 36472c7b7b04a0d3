//! Timers of a connection: login deadline, keep-alive pings, silent peers, and output that does not move.

use crate::CloseReason;
use shard::Time;
use std::time::Duration;

/// Timeouts of a connection in full feature phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Silence of the peer after which it is pinged.
    pub(crate) idle_interval: Duration,
    /// Maximum time for the answer to a ping, and maximum time without progress of queued output.
    pub(crate) answer_timeout: Duration,
}

/// State of the timers of a connection.
#[derive(Debug)]
pub(crate) struct Timers {
    timeouts: Timeouts,
    /// Time of the last reception.
    heard: Time,
    /// Time of the ping that has not been answered by any reception since.
    pinged: Option<Time>,
    /// Time at which the connection ends unconditionally, and the reason.
    deadline: Option<(Time, CloseReason)>,
    /// Time since which output is queued without progress, and the count of sent bytes at that time.
    stuck: Option<(Time, u64)>,
}

/// Action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Ping the peer, which has been silent for the idle interval.
    Ping,
    Close(CloseReason),
}

/// Input of the timers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerInput {
    pub(crate) queued_bytes: usize,
    pub(crate) transmitted_bytes: u64,
    /// False while reception is paused on purpose: silence has no meaning then.
    pub(crate) listening: bool,
}

impl Timers {
    /// Starts the timers with the login deadline.
    pub(crate) fn new(now: Time, patience: Timeouts, login_timeout: Duration) -> Self {
        let deadline = Some((now + login_timeout, CloseReason::LoginTimeout));
        Self { timeouts: patience, heard: now, pinged: None, deadline, stuck: None }
    }

    /// Sets the deadline and the reason for ending the connection. With `None` only silence and stuck output end it.
    pub(crate) fn set_deadline(&mut self, deadline: Option<(Time, CloseReason)>) {
        self.deadline = deadline;
    }

    /// Records a reception.
    pub(crate) fn handle_heard(&mut self, now: Time, pulse: TimerInput) {
        self.heard = now;
        // Any reception answers a ping.
        self.pinged = None;
        self.watch_output(now, pulse);
    }

    /// Returns the earliest time at which an action can be due.
    pub(crate) fn next(&self) -> Time {
        let silence = match self.pinged {
            Some(pinged) => pinged + self.timeouts.answer_timeout,
            None => self.heard + self.timeouts.idle_interval,
        };
        let deadline = self.deadline.map_or(silence, |(at, _)| at.min(silence));
        self.stuck.map_or(deadline, |(since, _)| deadline.min(since + self.timeouts.answer_timeout))
    }

    /// Returns the action that is due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Time, pulse: TimerInput) -> Due {
        // The deadline applies even while reception is paused.
        if let Some((_, reason)) = self.deadline.filter(|(at, _)| *at <= now) {
            return Due::Close(reason);
        }
        let stuck_before = self.stuck;
        self.watch_output(now, pulse);
        // Only output that was stuck before this call and still is counts; progress in between restarts the timeout.
        if let (Some((since, _)), true) = (self.stuck, self.stuck == stuck_before)
            && since + self.timeouts.answer_timeout <= now
        {
            return Due::Close(CloseReason::OutputStuck);
        }
        // Reception is paused, so silence is our own doing.
        if !pulse.listening {
            // The idle interval restarts once reception resumes.
            self.heard = now;
            self.pinged = None;
            return Due::Nothing;
        }
        match self.pinged {
            Some(pinged) if pinged + self.timeouts.answer_timeout <= now => Due::Close(CloseReason::PeerSilent),
            None if self.heard + self.timeouts.idle_interval <= now => {
                self.pinged = Some(now);
                Due::Ping
            }
            _ => Due::Nothing,
        }
    }

    fn watch_output(&mut self, now: Time, pulse: TimerInput) {
        // Progress shows in the count of sent bytes: a queue that is refilled as it drains need not become shorter.
        self.stuck = match self.stuck {
            _ if pulse.queued_bytes == 0 => None,
            Some((since, count)) if count == pulse.transmitted_bytes => Some((since, count)),
            _ => Some((now, pulse.transmitted_bytes)),
        };
    }
}
