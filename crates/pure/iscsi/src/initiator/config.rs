//! What an initiator asks of its connection.

use crate::login::InitiatorConfig;
use crate::timers::Patience;
use std::time::Duration;

/// Tasks of a session that have tags.
pub const TASKS_MAX: u32 = 0xfffe;

/// The login, the bounds and the times of an initiator's connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who logs in, where to, and what is offered.
    pub login: InitiatorConfig,
    /// Requests that may wait or run at once, beside the target's own limit. At most [`TASKS_MAX`].
    pub tasks_max: u32,
    /// The largest size of the receive buffer. It is smaller while there is little to receive.
    pub receive_buffer_bytes_max: usize,
    /// How long the login may take in all.
    pub login_timeout: Duration,
    /// How long the target may be silent before it is pinged.
    pub idle_interval: Duration,
    /// How long a pinged target may stay silent, and how long output may not move at all.
    pub answer_timeout: Duration,
}

impl Config {
    /// A connection that logs in as `login` says, with bounds and times that suit a LAN.
    #[must_use]
    pub fn new(login: InitiatorConfig) -> Self {
        Self {
            login,
            tasks_max: 1024,
            receive_buffer_bytes_max: 256 << 10,
            login_timeout: Duration::from_secs(15),
            idle_interval: Duration::from_secs(15),
            answer_timeout: Duration::from_secs(15),
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience { idle_interval: self.idle_interval, answer_timeout: self.answer_timeout }
    }

    /// *Panics*: when a bound is outside what its field says.
    pub(crate) fn check(&self) {
        assert!((1..=TASKS_MAX).contains(&self.tasks_max), "1 to 65,534 tasks have tags");
        assert!(self.receive_buffer_bytes_max >= 16 << 10, "a login PDU fits the receive buffer");
    }
}
