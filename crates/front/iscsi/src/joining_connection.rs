//! Connection in transfer from the shard that accepted it to the session that it joins.

use crate::recording::Recorder;
use iscsi::target::Joining;
use shard::StreamHandle;

/// Connection that has completed the login of an existing session.
pub struct JoiningConnection {
    /// Result of the login.
    pub joining: Joining,
    /// TCP stream, detached from its former shard.
    pub stream: StreamHandle,
    /// Recorders of packet captures that include the connection.
    pub recorders: Vec<Recorder>,
}
