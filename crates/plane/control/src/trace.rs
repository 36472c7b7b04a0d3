//! I/O traces of volumes: their latest commands with times.

use crate::core::Core;
use crate::request::NewTrace;
use model::{Order, Refusal, TRACE_COMMANDS, TRACE_COMMANDS_MAX, TraceReport, Traced, VolumeName, code};
use std::sync::Arc;

/// I/O traces of volumes.
pub struct Traces {
    pub(crate) core: Arc<Core>,
}

impl Traces {
    /// Reports the trace of the volume, or that none runs.
    ///
    /// *Errors*: there is no such volume, or it is not open.
    pub async fn report(&self, volume: &VolumeName) -> Result<TraceReport, Refusal> {
        self.core.engine.trace(Order::Trace { volume: volume.clone() }).await
    }

    /// Starts the trace of a volume. It does not survive a restart.
    ///
    /// *Errors*: no such volume; a trace runs already; too many commands, for it or in all traces together.
    pub async fn start(&self, volume: &VolumeName, asked: &NewTrace) -> Result<TraceReport, Refusal> {
        let commands = asked.commands.unwrap_or(TRACE_COMMANDS);
        if !(1..=TRACE_COMMANDS_MAX).contains(&commands) {
            let message = format!("a trace of {commands} commands is out of range");
            return Err(Refusal::new(code::NUMBER_INVALID, message, format!("choose 1 to {TRACE_COMMANDS_MAX}")));
        }
        self.core.engine.trace(Order::StartTrace { volume: volume.clone(), commands }).await
    }

    /// Returns the traced commands; the trace continues.
    ///
    /// *Errors*: no such volume, or no trace runs.
    pub async fn take(&self, volume: &VolumeName) -> Result<Traced, Refusal> {
        Ok(*self.core.engine.traced(Order::TakeTrace { volume: volume.clone() }).await?)
    }

    /// Stops the trace, discards its commands, and returns its last state.
    ///
    /// *Errors*: no such volume, or no trace runs.
    pub async fn stop(&self, volume: &VolumeName) -> Result<TraceReport, Refusal> {
        self.core.engine.trace(Order::StopTrace { volume: volume.clone() }).await
    }
}
