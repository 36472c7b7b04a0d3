//! Configuration of an initiator's connection.

use crate::login::InitiatorConfig;
use crate::timers::Timeouts;
use std::time::Duration;

/// Maximum number of commands that all connections of a session may have. Other requests have tags of their own.
pub const TASKS_MAX: u32 = 0xf000;

/// Number of task tags in a session: the lower half of a tag is the place of its task, and FFFFh is left out.
pub(crate) const TAGS_MAX: u32 = 0xfffe;

/// Number of tags that a connection has in addition to those of its commands, for pings, text, task management and
/// logout: a command that does not end must be abortable, and its target pinged.
const OTHER_TAGS: u32 = 64;

/// Login parameters, limits and timeouts of an initiator's connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Initiator, target, credentials and offered parameters of the login.
    pub login: InitiatorConfig,
    /// Maximum number of requests that wait or run at once, in addition to the target's window; at most [`TASKS_MAX`].
    /// Default 1,024.
    pub tasks_max: u32,
    /// Maximum size of the receive buffer in bytes; default 256 KiB. It is smaller while there is little to receive.
    pub receive_buffer_bytes_max: usize,
    /// Timeout of a whole login. Default 15 s.
    pub login_timeout: Duration,
    /// Silence of the target after which it is pinged. Default 15 s.
    pub idle_interval: Duration,
    /// Maximum time for the answer to a ping, and maximum time without progress of queued output. Default 15 s.
    pub answer_timeout: Duration,
}

impl Config {
    /// Creates a configuration for the given login, with limits and timeouts that suit a LAN.
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

    pub(crate) fn timeouts(&self) -> Timeouts {
        Timeouts { idle_interval: self.idle_interval, answer_timeout: self.answer_timeout }
    }

    /// Number of tags of a connection.
    pub(crate) fn tags(&self) -> u32 {
        self.tasks_max + OTHER_TAGS
    }

    /// Checks the bounds.
    ///
    /// *Panics*: when a value is outside the range of its field.
    pub(crate) fn check(&self) {
        // Behind the limit there are tags left for other requests, so no place reaches FFFFh, that of the reserved tag.
        assert!((1..=TASKS_MAX).contains(&self.tasks_max), "1 to 61,440 tasks have tags");
        assert!(self.receive_buffer_bytes_max >= 16 << 10, "a login PDU fits the receive buffer");
    }
}
