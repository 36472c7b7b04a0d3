//! Configuration of the connections of a portal.

use crate::login::TargetConfig;
use crate::timers::Timeouts;
use std::time::Duration;

/// Limits and timeouts of target connections, shared by all connections of a portal.
#[derive(Clone, Debug)]
pub struct Config {
    /// Parameters that a login may negotiate.
    pub login: TargetConfig,
    /// Maximum number of commands that wait or run at once: the width of the command window. 1 to 32,767; default 128.
    pub commands_max: u32,
    /// Maximum number of immediate requests that wait or run at once, in addition. Default 8.
    pub immediate_max: u32,
    /// Maximum data-out of one command in bytes, at least FirstBurstLength; default 16 MiB. A command that announces
    /// more receives only this much; a [`Gate`](super::Gate) refuses it with sense data before.
    pub data_out_bytes_max: u32,
    /// Maximum memory for the data-out of all commands of a connection in bytes; default 64 MiB. A command that would
    /// exceed it ends with TASK SET FULL; a single command may always have its data.
    pub data_out_held_bytes_max: usize,
    /// Maximum size of the receive buffer in bytes; default 256 KiB. It is smaller while there is little to receive.
    pub receive_buffer_bytes_max: usize,
    /// Above error recovery level 0: time after which missing solicited data is requested again (at least this, at most
    /// twice this). Default 2 s.
    pub recovery_interval: Duration,
    /// Timeout of a whole login. Default 15 s.
    pub login_timeout: Duration,
    /// Silence of a peer after which it is pinged. Default 15 s.
    pub idle_interval: Duration,
    /// Maximum time for the answer to a ping, and maximum time without progress of queued output. Default 15 s.
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
    pub(crate) fn timeouts(&self) -> Timeouts {
        Timeouts { idle_interval: self.idle_interval, answer_timeout: self.answer_timeout }
    }

    /// Checks the bounds.
    ///
    /// *Panics*: when a value is outside the range of its field.
    pub(crate) fn check(&self) {
        assert!((1..=0x7fff).contains(&self.commands_max), "1 to 32,767 commands fit a window");
        assert!((1..=0x7fff).contains(&self.immediate_max), "1 to 32,767 immediate requests fit");
        assert!(self.login.check().is_ok(), "what a login may agree on was checked where it was configured");
        assert!(self.receive_buffer_bytes_max >= 16 << 10, "a login PDU fits the receive buffer");
    }
}
