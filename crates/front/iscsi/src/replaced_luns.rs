//! LUNs of a session that now address a different volume than before.
//!
//! The control plane assigns a LUN to another volume only when an operator forces it. Even then a host continues to
//! send requests that were queued for the former volume, and repeats at once a command that was terminated with a unit
//! attention: a single unit attention would let all of these requests reach the new volume. Therefore commands with
//! such a LUN are not executed until the initiator has sent REPORT LUNS, as a host does when it rescans. Until then the
//! LUN answers once with REPORTED LUNS DATA HAS CHANGED (3F/0E), and afterwards with LOGICAL UNIT NOT SUPPORTED
//! (25/00). The new unit then starts with the unit attentions 29/00 and 3F/03.

use crate::access::LunMap;
use model::VolumeId;
use std::collections::{BTreeMap, BTreeSet};

/// LUNs of a session whose volume differs from the one that the initiator knows.
#[derive(Debug, Default)]
pub(crate) struct ReplacedLuns {
    /// Former volume of each LUN, until the initiator has sent REPORT LUNS.
    former: BTreeMap<u16, Former>,
    /// LUNs that the initiator has read with REPORT LUNS and whose new unit it has not addressed yet.
    new: BTreeSet<u16>,
}

/// Former volume of a LUN.
#[derive(Debug)]
struct Former {
    /// Volume that the initiator knows under this LUN.
    unit: VolumeId,
    /// True once the initiator has received REPORTED LUNS DATA HAS CHANGED.
    told: bool,
}

impl ReplacedLuns {
    /// Records a change of the LUN map of the session from `before` to `now`.
    pub(crate) fn note(&mut self, before: &LunMap, now: &LunMap) {
        for (number, was) in before {
            // The oldest volume is kept when a LUN changes several times before REPORT LUNS: that is the one the
            // initiator knows.
            if now.get(number).is_none_or(|is| is.unit != was.unit) && !self.former.contains_key(number) {
                self.former.insert(*number, Former { unit: was.unit, told: false });
            }
        }
        // A LUN that addresses its former volume again needs no fencing.
        self.former.retain(|number, former| now.get(number).is_none_or(|is| is.unit != former.unit));
        self.new.retain(|number| now.contains_key(number));
    }

    /// True when commands for `unit` under LUN `number` must not be executed, because the initiator knows another
    /// volume there.
    #[inline]
    pub(crate) fn withholds(&self, number: u16, unit: VolumeId) -> bool {
        // Common case first: no LUN was replaced.
        !self.former.is_empty() && self.former.get(&number).is_some_and(|former| former.unit != unit)
    }

    /// True when the initiator has not received REPORTED LUNS DATA HAS CHANGED for this LUN yet. Marks it as reported.
    pub(crate) fn take_report_due(&mut self, number: u16, unit: VolumeId) -> bool {
        let former = self.former.get_mut(&number).filter(|former| former.unit != unit);
        former.is_some_and(|former| !std::mem::replace(&mut former.told, true))
    }

    /// Handles REPORT LUNS: the initiator knows the LUNs of `now`.
    pub(crate) fn reported(&mut self, now: &LunMap) {
        // A LUN that is unmapped at present stays fenced: the initiator has not seen a new volume under it.
        let known: Vec<u16> = self.former.keys().filter(|number| now.contains_key(number)).copied().collect();
        known.iter().for_each(|number| _ = self.former.remove(number));
        self.new.extend(known);
    }

    /// True when the initiator addresses the new unit of the LUN for the first time. Returns true once.
    pub(crate) fn take_first_use(&mut self, number: u16) -> bool {
        self.new.remove(&number)
    }
}
