//! Fast path of READ and WRITE: executed synchronously when no task restrains them and the device completes without
//! waiting.

use super::LogicalUnit;
use crate::command::{CommandRef, NexusId, Outcome, TaskAttribute};
use crate::operation::Verb;
use crate::shape::Shape;
use block::{BlockDevice, Geometry, Rope};

/// Operation codes of READ and WRITE (10, 12 and 16 bytes), the only ones with a fast path.
const FAST_PATH_CODES: [u8; 6] = [0x28, 0x2A, 0x88, 0x8A, 0xA8, 0xAA];

impl<D: BlockDevice> LogicalUnit<D> {
    /// Executes a command synchronously, with the same result as [`LogicalUnit::execute`] but without entering the task
    /// set, since nothing can interleave. Returns `None` when the command cannot complete at once; nothing was done
    /// then, and the caller must call `execute`.
    #[inline]
    pub fn execute_fast_path(&self, nexus: NexusId, command: CommandRef<'_>) -> Option<Outcome> {
        let is_short = FAST_PATH_CODES.contains(&command.cdb.operation_code());
        // A command that bypasses the task set must not overtake an ORDERED or HEAD OF QUEUE task, nor one that runs
        // alone.
        if !is_short || command.attribute != TaskAttribute::Simple || !self.tasks.permits_bypass() {
            return None;
        }
        let geometry = self.medium.geometry();
        // Admission reports unit attentions and conflicts exactly as the slow path does.
        let request = match self.admit(nexus, command.cdb, &self.shape_of_transfers(geometry)) {
            // A transfer of zero blocks is left to `execute`, so that the device is never asked for an empty extent
            // here.
            Ok(request) if request.extent.is_empty() => return None,
            Ok(request) => request,
            Err(failure) => return Some(self.failed(failure)),
        };
        if request.operation.verb == Verb::Read {
            // The device returns `None` when it would have to wait; nothing was done in this case.
            return Some(Outcome::good(self.medium.read_at_once(request.extent, geometry)?));
        }
        // Too few or too many bytes need the residual handling of `execute`.
        if command.data_out.len() as u64 != request.need.data_out {
            return None;
        }
        let answer = self.medium.write_at_once(request.extent, command.data_out, request.is_forced(), geometry)?;
        Some(answer.map_or_else(|failure| self.failed(failure), |()| Outcome::good(Rope::new())))
    }

    /// Limits that READ and WRITE are validated against. They do not depend on the optional features of the unit, which
    /// take longer to look up.
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
