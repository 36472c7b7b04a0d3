//! I/O traces of volumes, recorded on the home shards of the volumes.

use super::IscsiFront;
use crate::iscsi_shard::IscsiShard;
use crate::scsi_unit::ScsiUnit;
use engine::conductor::engine_gone;
use model::{Refusal, TraceReport, Traced, VolumeName, code};
use shard::World;
use std::rc::Rc;

impl<W: World> IscsiFront<W> {
    /// Returns the state of the trace of the volume.
    pub(super) async fn trace(&self, volume: &VolumeName) -> Result<TraceReport, Refusal> {
        self.at_unit(volume, |_, unit| Ok(unit.trace())).await
    }

    /// Starts a trace of the volume.
    pub(super) async fn start_trace(&self, volume: &VolumeName, commands: u32) -> Result<TraceReport, Refusal> {
        self.at_unit(volume, move |shard, unit| unit.start_trace(&shard.trace_room, commands)).await
    }

    /// Returns the recorded commands.
    pub(super) async fn take_trace(&self, volume: &VolumeName) -> Result<Traced, Refusal> {
        self.at_unit(volume, |_, unit| unit.take_trace()).await
    }

    /// Stops the trace of the volume.
    pub(super) async fn stop_trace(&self, volume: &VolumeName) -> Result<TraceReport, Refusal> {
        self.at_unit(volume, |_, unit| unit.stop_trace()).await
    }

    /// Runs `work` with the unit of the volume on its home shard.
    async fn at_unit<R: Send + 'static>(
        &self,
        volume: &VolumeName,
        work: impl FnOnce(&IscsiShard<W>, Rc<ScsiUnit<W>>) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let (home, name) = (engine::home_of(&self.volumes, volume)?, volume.clone());
        let done = self.shard.call(home.home, move |shard| async move {
            // The unit may have been closed while the message was on its way.
            match shard.unit(home.id) {
                Some(unit) => work(&shard, unit),
                None => {
                    let message = format!("volume {name} is offline");
                    Err(Refusal::new(code::VOLUME_UNKNOWN, message, "`blockyard volume list` shows the volumes"))
                }
            }
        });
        done.await.ok_or_else(engine_gone)?
    }
}
