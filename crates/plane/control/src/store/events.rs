//! Events in files of a run of numbers each: an event rewrites its own file alone, and a damaged file costs its own events alone.

use super::folder::Found;
use super::{Store, unwritable};
use model::{Event, Refusal, event};
use std::collections::{BTreeSet, VecDeque};

/// The name of their files.
pub(super) const EVENTS: &str = "events";

/// How many numbers a file is for.
const IN_FILE: u64 = 128;

impl Store {
    /// The events that are kept, oldest first, and the lowest number that was never given. An event that a later version wrote in another
    /// form is passed over; events of a damaged file are missing, and a finding tells so.
    ///
    /// *Errors*: the folder cannot be read.
    pub(crate) fn events(&self) -> Result<(Vec<Event>, u64), Refusal> {
        let (mut events, mut free) = (Vec::new(), 1);
        for file in self.folder.list()?.remove(EVENTS).unwrap_or_default() {
            match self.folder.read(EVENTS, file)? {
                Found::Whole(_, body) => {
                    let rows: Vec<serde_json::Value> = serde_json::from_slice(&body).unwrap_or_default();
                    events.extend(rows.into_iter().filter_map(|row| serde_json::from_value::<Event>(row).ok()));
                }
                Found::Damaged(why) => {
                    let (first, last) = (file * IN_FILE, file * IN_FILE + IN_FILE - 1);
                    let sentence = format!("events of the numbers {first} to {last} are damaged and left out: {why}");
                    self.current().findings.push((event::STATE_COPY_DAMAGED, sentence));
                    free = free.max(last + 1);
                }
            }
        }
        let next = events.last().map_or(1, |event| event.number + 1);
        Ok((events, free.max(next)))
    }

    /// The events of the numbers `changed` are kept, and no file without one of `events`.
    ///
    /// *Errors*: it could not be written. *Durability*: it survives power loss.
    pub(crate) fn keep_events(&self, events: &VecDeque<Event>, changed: &BTreeSet<u64>) -> Result<(), Refusal> {
        let files: BTreeSet<u64> = changed.iter().map(|number| number / IN_FILE).collect();
        let current = self.current();
        for &file in &files {
            let rows: Vec<&Event> = events.iter().filter(|event| event.number / IN_FILE == file).collect();
            if rows.is_empty() {
                continue;
            }
            let body = serde_json::to_vec(&rows).map_err(|error| unwritable(self.folder.path(), &error))?;
            self.folder.write(&self.header(&current, EVENTS, file), &body)?;
        }
        if files.last().is_some_and(|last| *last > 0) {
            let kept: BTreeSet<u64> = events.iter().map(|event| event.number / IN_FILE).collect();
            let all = self.folder.list()?.remove(EVENTS).unwrap_or_default();
            all.into_iter().filter(|file| !kept.contains(file)).for_each(|file| self.folder.remove(EVENTS, file));
        }
        Ok(())
    }
}
