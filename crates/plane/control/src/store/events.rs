//! Event files: each holds the events of a run of numbers, so an event rewrites one small file, and a damaged
//! file loses its own events only.

use super::folder::ReadResult;
use super::{Store, unwritable};
use model::{Event, Refusal, event};
use std::collections::{BTreeSet, VecDeque};

/// Name of the event files.
pub(super) const EVENTS: &str = "events";

/// Event numbers per file.
const IN_FILE: u64 = 128;

impl Store {
    /// Returns the events that are kept, oldest first, and the lowest number that was never assigned. An event
    /// in the form of a later version is skipped; events of a damaged file are missing, which a finding
    /// reports.
    ///
    /// *Errors*: the folder cannot be read.
    pub(crate) fn events(&self) -> Result<(Vec<Event>, u64), Refusal> {
        let (mut events, mut free) = (Vec::new(), 1);
        for file in self.folder.list()?.remove(EVENTS).unwrap_or_default() {
            match self.folder.read(EVENTS, file)? {
                ReadResult::Whole(_, body) => {
                    // Parsed row by row: one event of a later version must not hide the others of its file.
                    let rows: Vec<serde_json::Value> = serde_json::from_slice(&body).unwrap_or_default();
                    events.extend(rows.into_iter().filter_map(|row| serde_json::from_value::<Event>(row).ok()));
                }
                ReadResult::Damaged(why) => {
                    // File numbers have at most 12 digits, so the products fit.
                    let (first, last) = (file * IN_FILE, file * IN_FILE + IN_FILE - 1);
                    let sentence = format!("events of the numbers {first} to {last} are damaged and left out: {why}");
                    self.current().findings.push((event::STATE_COPY_DAMAGED, sentence));
                    // Numbers of lost events are never assigned again.
                    free = free.max(last + 1);
                }
            }
        }
        // Events are stored in order, so the last one has the highest number.
        let next = events.last().map_or(1, |event| event.number + 1);
        Ok((events, free.max(next)))
    }

    /// Writes the files that hold the events numbered `changed`, and deletes files without any of `events`.
    ///
    /// *Errors*: it could not be written. *Durability*: it survives power loss.
    pub(crate) fn keep_events(&self, events: &VecDeque<Event>, changed: &BTreeSet<u64>) -> Result<(), Refusal> {
        let files: BTreeSet<u64> = changed.iter().map(|number| number / IN_FILE).collect();
        // Held across the writes, so that all headers name the same state.
        let current = self.current();
        for &file in &files {
            let rows: Vec<&Event> = events.iter().filter(|event| event.number / IN_FILE == file).collect();
            // No event of this run is kept any more: the file is deleted below.
            if rows.is_empty() {
                continue;
            }
            let body = serde_json::to_vec(&rows).map_err(|error| unwritable(self.folder.path(), &error))?;
            self.folder.write(&self.header(&current, EVENTS, file), &body)?;
        }
        // While only the first file is written, no file can have expired, and listing the folder is saved.
        if files.last().is_some_and(|last| *last > 0) {
            let kept: BTreeSet<u64> = events.iter().map(|event| event.number / IN_FILE).collect();
            let all = self.folder.list()?.remove(EVENTS).unwrap_or_default();
            all.into_iter().filter(|file| !kept.contains(file)).for_each(|file| self.folder.remove(EVENTS, file));
        }
        Ok(())
    }
}
