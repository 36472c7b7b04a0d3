//! Disks that were opened before and have not done yet what they were asked.

use model::{Refusal, code};
use shard::Landings;
use std::cell::RefCell;

/// By path, the openings of disks that may have something under way.
#[derive(Default)]
pub struct Unlanded(RefCell<Vec<(String, Landings)>>);

impl Unlanded {
    /// The disk at `path` is open.
    pub fn watch(&self, path: &str, landings: Landings) {
        let mut all = self.0.borrow_mut();
        all.retain(|(_, landings)| !landings.is_over());
        all.push((path.to_owned(), landings));
    }

    /// Admits that the disk at `path` is opened again: a write that lands later would overwrite what is written from now on.
    ///
    /// *Errors*: `DISK_UNREADABLE` while an operation of an earlier opening has not landed.
    pub fn admit(&self, path: &str) -> Result<(), Refusal> {
        let all = self.0.borrow();
        let count: usize = all.iter().filter(|(of, _)| of == path).map(|(_, landings)| landings.count()).sum();
        if count == 0 {
            return Ok(());
        }
        let message = format!("{path} does not answer: {count} of its earlier operations have not ended");
        let hint = "check the disk, its cable and its controller; it can be used again when they have ended";
        Err(Refusal::new(code::DISK_UNREADABLE, message, hint))
    }
}
