//! The traces of volumes: which commands they had, and when.

use crate::core::Core;
use crate::request::NewTrace;
use model::{Order, Refusal, TRACE_COMMANDS, TRACE_COMMANDS_MAX, TraceReport, Traced, VolumeName, code};
use std::sync::Arc;

/// Traces of the commands of a volume.
pub struct Traces {
    pub(crate) core: Arc<Core>,
}

impl Traces {
    /// How the trace of the volume is; of one that is not traced it says so.
    ///
    /// *Errors*: there is no such volume, or it is not open.
    pub async fn report(&self, volume: &VolumeName) -> Result<TraceReport, Refusal> {
        self.core.engine.trace(Order::Trace { volume: volume.clone() }).await
    }

    /// The volume is traced from now on. Nothing of that is kept over a restart.
    ///
    /// *Errors*: no such volume; it is traced already; too many commands, for it or with all others.
    pub async fn start(&self, volume: &VolumeName, asked: &NewTrace) -> Result<TraceReport, Refusal> {
        let commands = asked.commands.unwrap_or(TRACE_COMMANDS);
        if !(1..=TRACE_COMMANDS_MAX).contains(&commands) {
            let message = format!("a trace of {commands} commands is not possible");
            return Err(Refusal::new(code::NUMBER_INVALID, message, format!("choose 1 to {TRACE_COMMANDS_MAX}")));
        }
        self.core.engine.trace(Order::StartTrace { volume: volume.clone(), commands }).await
    }

    /// What the trace of the volume holds; it goes on.
    ///
    /// *Errors*: no such volume, or it is not traced.
    pub async fn take(&self, volume: &VolumeName) -> Result<Traced, Refusal> {
        Ok(*self.core.engine.traced(Order::TakeTrace { volume: volume.clone() }).await?)
    }

    /// The volume is not traced any more, and what its trace held is gone; how it was.
    ///
    /// *Errors*: no such volume, or it is not traced.
    pub async fn stop(&self, volume: &VolumeName) -> Result<TraceReport, Refusal> {
        self.core.engine.trace(Order::StopTrace { volume: volume.clone() }).await
    }
}
