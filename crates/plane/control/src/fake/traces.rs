//! Traces of volumes that get no commands.

use super::Fake;
use model::{Order, Refusal, Report, TraceReport, Traced, VolumeName, code};

impl Fake {
    pub(super) fn obey_of_traces(&mut self, order: &Order) -> Result<Report, Refusal> {
        match order {
            Order::Trace { volume } => self.trace(volume).map(Report::Trace),
            Order::StartTrace { volume, commands } => {
                if self.trace(volume)?.is_on {
                    let message = format!("volume {volume} is traced already");
                    return Err(Refusal::new(code::TRACED_ALREADY, message, "stop it first"));
                }
                self.traces.insert(volume.clone(), *commands);
                self.trace(volume).map(Report::Trace)
            }
            Order::TakeTrace { volume } => self.traced(volume).map(|traced| Report::Traced(Box::new(traced))),
            Order::StopTrace { volume } => {
                self.traced(volume)?;
                let told = self.trace(volume);
                self.traces.remove(volume);
                told.map(Report::Trace)
            }
            _ => unreachable!("{order:?} is not of traces"),
        }
    }

    fn trace(&self, volume: &VolumeName) -> Result<TraceReport, Refusal> {
        if !self.volumes().iter().any(|known| known.name == *volume) {
            let message = format!("no volume is called {volume}");
            return Err(Refusal::new(code::VOLUME_UNKNOWN, message, "see blockyard volume list"));
        }
        let commands_max = self.traces.get(volume).copied();
        Ok(TraceReport {
            volume: volume.clone(),
            is_on: commands_max.is_some(),
            commands_max: commands_max.unwrap_or_default(),
            kept: 0,
            overwritten: 0,
            unended: 0,
            sessions: 0,
            running_ms: 0,
        })
    }

    fn traced(&self, volume: &VolumeName) -> Result<Traced, Refusal> {
        if !self.trace(volume)?.is_on {
            let message = format!("volume {volume} is not traced");
            return Err(Refusal::new(code::TRACE_UNKNOWN, message, "start it first"));
        }
        Ok(Traced {
            volume: volume.clone(),
            block_bytes: 512,
            blocks: 2048,
            begun_unix_ns: 1_795_000_000_000_000_000,
            span_ns: 0,
            overwritten: 0,
            unended: 0,
            sessions: Vec::new(),
            commands: Vec::new(),
        })
    }
}
