//! When a connection has been silent, stuck or slow for too long.

use crate::CloseReason;
use shard::Time;
use std::time::Duration;

/// How patient a connection is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long the peer may be silent before it is pinged.
    pub(crate) idle_interval: Duration,
    /// How long a pinged peer may stay silent, and how long output may not move at all.
    pub(crate) answer_timeout: Duration,
}

/// What the clock is asked for.
#[derive(Debug)]
pub(crate) struct Timers {
    patience: Patience,
    /// When the peer was last heard.
    heard: Time,
    /// When it was asked whether it is there, and has not been heard since.
    pinged: Option<Time>,
    /// When the connection ends, whatever comes, and why.
    deadline: Option<(Time, CloseReason)>,
    /// Since when output has been waiting at this count of transmitted bytes.
    stuck: Option<(Time, u64)>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// The peer has been silent for the idle interval.
    Ping,
    Close(CloseReason),
}

/// What the timers look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    pub(crate) queued_bytes: usize,
    pub(crate) transmitted_bytes: u64,
    /// False while nothing is received on purpose: then silence says nothing.
    pub(crate) listening: bool,
}

impl Timers {
    /// The connection has until the deadline to log in.
    pub(crate) fn new(now: Time, patience: Patience, login_timeout: Duration) -> Self {
        let deadline = Some((now + login_timeout, CloseReason::LoginTimeout));
        Self { patience, heard: now, pinged: None, deadline, stuck: None }
    }

    /// The connection ends at `at`, for `reason`, unless this changes. `None` ends only for silence.
    pub(crate) fn set_deadline(&mut self, deadline: Option<(Time, CloseReason)>) {
        self.deadline = deadline;
    }

    /// The peer was heard.
    pub(crate) fn handle_heard(&mut self, now: Time, pulse: Pulse) {
        self.heard = now;
        self.pinged = None;
        self.watch_output(now, pulse);
    }

    /// When something is due at the earliest.
    pub(crate) fn next(&self) -> Time {
        let silence = match self.pinged {
            Some(pinged) => pinged + self.patience.answer_timeout,
            None => self.heard + self.patience.idle_interval,
        };
        let deadline = self.deadline.map_or(silence, |(at, _)| at.min(silence));
        self.stuck.map_or(deadline, |(since, _)| deadline.min(since + self.patience.answer_timeout))
    }

    /// What is due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Time, pulse: Pulse) -> Due {
        if let Some((_, reason)) = self.deadline.filter(|(at, _)| *at <= now) {
            return Due::Close(reason);
        }
        let stuck_before = self.stuck;
        self.watch_output(now, pulse);
        if let (Some((since, _)), true) = (self.stuck, self.stuck == stuck_before)
            && since + self.patience.answer_timeout <= now
        {
            return Due::Close(CloseReason::OutputStuck);
        }
        if !pulse.listening {
            self.heard = now;
            self.pinged = None;
            return Due::Nothing;
        }
        match self.pinged {
            Some(pinged) if pinged + self.patience.answer_timeout <= now => Due::Close(CloseReason::PeerSilent),
            None if self.heard + self.patience.idle_interval <= now => {
                self.pinged = Some(now);
                Due::Ping
            }
            _ => Due::Nothing,
        }
    }

    fn watch_output(&mut self, now: Time, pulse: Pulse) {
        self.stuck = match self.stuck {
            _ if pulse.queued_bytes == 0 => None,
            Some((since, count)) if count == pulse.transmitted_bytes => Some((since, count)),
            _ => Some((now, pulse.transmitted_bytes)),
        };
    }
}
