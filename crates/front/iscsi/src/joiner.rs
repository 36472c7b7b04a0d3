//! A connection on its way from the shard that it came to, to the session that it joins.

use crate::recording::Recorder;
use iscsi::target::Joining;
use shard::StreamHandle;

/// A connection that has logged in.
pub struct Joiner {
    /// What its login came to.
    pub joining: Joining,
    /// Its stream.
    pub stream: StreamHandle,
    /// Those who write down what goes over it.
    pub recorders: Vec<Recorder>,
}
