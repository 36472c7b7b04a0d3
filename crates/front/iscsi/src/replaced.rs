//! LUNs of a session that are another unit than the session knew.
//!
//! Control gives a number to another volume only when an operator forces it. Even then a host goes on to send what it has queued for the
//! volume that was there, and repeats at once what a unit attention has stopped: one attention alone would let all of it into the new
//! volume. So the session gets nothing under such a number until its initiator has asked for the list of units (REPORT LUNS), as a host
//! does that looks anew what is there. Until then the number answers once that the list has changed (3F/0E), and after that as one
//! under which nothing is (25/00). The unit itself then begins with 29/00 and 3F/03.

use crate::access::LunMap;
use model::VolumeId;
use std::collections::{BTreeMap, BTreeSet};

/// What a session knew under its numbers, where that is not what is there now.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    former: BTreeMap<u16, Former>,
    /// Numbers whose new unit the session may use, and has not met yet.
    new: BTreeSet<u16>,
}

#[derive(Debug)]
struct Former {
    unit: VolumeId,
    /// True once the initiator was told that the list has changed.
    told: bool,
}

impl Replaced {
    /// The session saw `before`, and sees `now` from here on.
    pub(crate) fn note(&mut self, before: &LunMap, now: &LunMap) {
        for (number, was) in before {
            if now.get(number).is_none_or(|is| is.unit != was.unit) && !self.former.contains_key(number) {
                self.former.insert(*number, Former { unit: was.unit, told: false });
            }
        }
        // What is back is what the session knows.
        self.former.retain(|number, former| now.get(number).is_none_or(|is| is.unit != former.unit));
        self.new.retain(|number| now.contains_key(number));
    }

    /// True when the session knows another unit under the number.
    #[inline]
    pub(crate) fn withholds(&self, number: u16, unit: VolumeId) -> bool {
        !self.former.is_empty() && self.former.get(&number).is_some_and(|former| former.unit != unit)
    }

    /// True when the initiator has still to be told that the number is another unit; it is told now.
    pub(crate) fn tells_now(&mut self, number: u16, unit: VolumeId) -> bool {
        let former = self.former.get_mut(&number).filter(|former| former.unit != unit);
        former.is_some_and(|former| !std::mem::replace(&mut former.told, true))
    }

    /// The initiator has read which numbers there are.
    pub(crate) fn reported(&mut self, now: &LunMap) {
        let known: Vec<u16> = self.former.keys().filter(|number| now.contains_key(number)).copied().collect();
        known.iter().for_each(|number| _ = self.former.remove(number));
        self.new.extend(known);
    }

    /// True when the number is another unit than the session knew, which it meets now.
    pub(crate) fn is_taken_up(&mut self, number: u16) -> bool {
        self.new.remove(&number)
    }
}
