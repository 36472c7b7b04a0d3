//! Operations of earlier openings of disks that are still in flight.
//!
//! A disk is not opened again before all of them have landed, see `docs/adr/0024-disks-that-do-not-answer.md`.

use model::{Refusal, code};
use shard::InFlightOperations;
use std::cell::RefCell;

/// Openings of disks that may have operations in flight, by path.
#[derive(Default)]
pub struct OperationsInFlight(RefCell<Vec<(String, InFlightOperations)>>);

impl OperationsInFlight {
    /// Watches the operations of the disk at `path`, which was opened just now.
    pub fn watch(&self, path: &str, landings: InFlightOperations) {
        let mut all = self.0.borrow_mut();
        // Entries of openings that are over are dropped here, so the list stays as short as the number of open disks.
        all.retain(|(_, landings)| !landings.is_over());
        all.push((path.to_owned(), landings));
    }

    /// Admits another opening of the disk at `path`. A late write of an earlier opening would overwrite newer data.
    ///
    /// *Errors*: `DISK_UNREADABLE` while an operation of an earlier opening is in flight.
    pub fn admit(&self, path: &str) -> Result<(), Refusal> {
        let all = self.0.borrow();
        let count: usize = all.iter().filter(|(of, _)| of == path).map(|(_, landings)| landings.count()).sum();
        if count == 0 {
            return Ok(());
        }
        let message = format!("{path} does not respond: {count} earlier operations have not completed");
        let hint = "check the disk, its cable and its controller; the disk can be used again when they have \
             completed";
        Err(Refusal::new(code::DISK_UNREADABLE, message, hint))
    }
}
