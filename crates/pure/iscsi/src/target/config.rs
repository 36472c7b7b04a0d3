//! What a portal asks of its connections.

use crate::login::TargetConfig;
use crate::timers::Patience;
use std::time::Duration;

/// The bounds and times of a target's connections. One for all connections of a portal.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the login may agree on.
    pub login: TargetConfig,
    /// Commands that may wait or run at once: the width of the command window. 1 to 32,767.
    pub commands_max: u32,
    /// Immediate requests that may wait or run at once, beside the others.
    pub immediate_max: u32,
    /// The most data that one command can bring. A command that announces more gets only this much of it;
    /// at least FirstBurstLength. A [`Gate`](super::Gate) refuses with sense before.
    pub data_out_bytes_max: u32,
    /// The most memory that the data of all commands of a connection takes. A command that would pass it is
    /// answered TASK SET FULL; one command alone may always have its data.
    pub data_out_held_bytes_max: usize,
    /// The largest size of the receive buffer. It is smaller while there is little to receive.
    pub receive_buffer_bytes_max: usize,
    /// Above error recovery level 0: after how long at least, and twice that at most, data that was asked for and has not come
    /// is asked for again.
    pub recovery_interval: Duration,
    /// How long a login may take in all.
    pub login_timeout: Duration,
    /// How long a peer may be silent before it is pinged.
    pub idle_interval: Duration,
    /// How long a pinged peer may stay silent, and how long output may not move at all.
    pub answer_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            login: TargetConfig::default(),
            commands_max: 128,
            immediate_max: 8,
            data_out_bytes_max: 16 << 20,
            data_out_held_bytes_max: 64 << 20,
            receive_buffer_bytes_max: 256 << 10,
            recovery_interval: Duration::from_secs(2),
            login_timeout: Duration::from_secs(15),
            idle_interval: Duration::from_secs(15),
            answer_timeout: Duration::from_secs(15),
        }
    }
}

impl Config {
    pub(crate) fn patience(&self) -> Patience {
        Patience { idle_interval: self.idle_interval, answer_timeout: self.answer_timeout }
    }

    /// *Panics*: when a bound is outside what its field says.
    pub(crate) fn check(&self) {
        assert!((1..=0x7fff).contains(&self.commands_max), "1 to 32,767 commands fit a window");
        assert!((1..=0x7fff).contains(&self.immediate_max), "1 to 32,767 immediate requests fit");
        assert!(self.login.check().is_ok(), "what a login may agree on was checked where it was configured");
        assert!(self.receive_buffer_bytes_max >= 16 << 10, "a login PDU fits the receive buffer");
    }
}
