//! The short way of READ and WRITE: nobody holds them back, and the device does them without waiting.

use super::LogicalUnit;
use crate::command::{CommandRef, NexusId, Outcome, TaskAttribute};
use crate::operation::Verb;
use crate::shape::Shape;
use block::{BlockDevice, Geometry, Rope};

/// READ and WRITE of 10, 12 and 16 bytes.
const SHORT: [u8; 6] = [0x28, 0x2A, 0x88, 0x8A, 0xA8, 0xAA];

impl<D: BlockDevice> LogicalUnit<D> {
    /// What [`LogicalUnit::execute`] comes to, where that is known at once: without a place in the task set, for nothing
    /// can happen meanwhile. With `None` nothing was done, and the command is to be executed.
    #[inline]
    pub fn execute_at_once(&self, nexus: NexusId, command: CommandRef<'_>) -> Option<Outcome> {
        let is_short = SHORT.contains(&command.cdb.operation_code());
        if !is_short || command.attribute != TaskAttribute::Simple || !self.tasks.lets_pass() {
            return None;
        }
        let geometry = self.medium.geometry();
        let request = match self.admit(nexus, command.cdb, &self.shape_of_transfers(geometry)) {
            Ok(request) if request.extent.is_empty() => return None,
            Ok(request) => request,
            Err(failure) => return Some(self.failed(failure)),
        };
        if request.operation.verb == Verb::Read {
            return Some(Outcome::good(self.medium.read_at_once(request.extent, geometry)?));
        }
        if command.data_out.len() as u64 != request.need.data_out {
            return None;
        }
        let answer = self.medium.write_at_once(request.extent, command.data_out, request.is_forced(), geometry)?;
        Some(answer.map_or_else(|failure| self.failed(failure), |()| Outcome::good(Rope::new())))
    }

    /// What READ and WRITE are judged against: they do not depend on what else the unit offers, which takes longer to find out.
    #[inline]
    fn shape_of_transfers(&self, geometry: Geometry) -> Shape {
        Shape {
            block_bytes: geometry.block_bytes,
            blocks: geometry.blocks.0,
            transfer_bytes_max: self.options.transfer_bytes_max,
            ..Shape::default()
        }
    }
}
