//! A node, its claim on a pool, and how two claims compare.

use std::cmp::Ordering;
use uuid::Uuid;

/// A node that opens pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The same after every restart.
    pub id: Uuid,
    /// What its operators call it.
    pub name: String,
    /// What only one daemon at a time can have on one machine between two starts of it: a daemon that finds its own seat in a
    /// claim knows that the process that wrote it has ended.
    pub seat: Uuid,
    /// The machine that the node runs on, where that is known: the same for every state folder on it.
    pub machine: Option<Uuid>,
}

/// What the owner of a pool writes to each of its disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The node.
    pub node: Uuid,
    /// What it is called.
    pub name: String,
    /// The seat of the daemon that made the claim.
    pub seat: Uuid,
    /// The machine that it ran on, where that was known.
    pub machine: Option<Uuid>,
    /// Every later claim of the pool has a higher number.
    pub epoch: u64,
    /// Moves while the node has the pool.
    pub beat: u64,
    /// When the claim was made, in seconds since 1970. For people: no decision depends on it.
    pub claimed_at: u64,
    /// True when the node has released the pool.
    pub released: bool,
}

/// A claim, and the disk that it was found on.
pub type Seen = (Uuid, Claim);

impl Claim {
    /// The first mark of a claim of `node`, which no claim had before: `highest` is the highest epoch that was ever seen.
    #[must_use]
    pub fn first(node: &Node, highest: u64, now: u64) -> Self {
        Self {
            node: node.id,
            name: node.name.clone(),
            seat: node.seat,
            machine: node.machine,
            epoch: highest + 1,
            beat: 0,
            claimed_at: now,
            released: false,
        }
    }

    /// Orders marks by their age: a higher one was written later, within a claim and between claims.
    #[must_use]
    pub fn age(&self) -> (u64, u64) {
        (self.epoch, self.beat)
    }

    /// True when `other` is a mark of the same claim.
    #[must_use]
    pub fn is_same_claim(&self, other: &Self) -> bool {
        (self.epoch, self.node, self.seat) == (other.epoch, other.node, other.seat)
    }

    /// True when the maker of the claim `own` has lost the pool to the maker of this one.
    #[must_use]
    pub fn has_taken_over(&self, own: &Self) -> bool {
        self.epoch > own.epoch || (self.epoch == own.epoch && !self.is_same_claim(own))
    }

    /// True when its writer has written since an earlier look, which found `known` on its disk and `newest` on any.
    ///
    /// A mark that has decayed since shows the one before it, which is no sign of life; a mark that could not be read then is
    /// one if it is newer than all that were.
    #[must_use]
    pub fn is_life_after(&self, known: Option<&Self>, newest: Option<&Self>) -> bool {
        known.or(newest).is_none_or(|before| match self.age().cmp(&before.age()) {
            Ordering::Less => false,
            Ordering::Equal => !self.is_same_claim(before),
            Ordering::Greater => true,
        })
    }

    /// True when a daemon made it that sat where `node` sits now, and has ended therefore.
    #[must_use]
    pub fn is_of_our_past(&self, node: &Node) -> bool {
        (self.node, self.seat) == (node.id, node.seat)
    }
}

/// The newest of the claims on some disks.
#[must_use]
pub fn newest(seen: &[Seen]) -> Option<&Claim> {
    seen.iter().map(|(_, claim)| claim).max_by_key(|claim| claim.age())
}

/// What was seen on `disk`.
pub(crate) fn seen_on(seen: &[Seen], disk: Uuid) -> Option<&Claim> {
    seen.iter().find(|(known, _)| *known == disk).map(|(_, claim)| claim)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn node(id: u128) -> Node {
        Node { id: Uuid::from_u128(id), name: format!("node-{id}"), seat: Uuid::from_u128(id << 8), machine: None }
    }

    pub(crate) fn claim(id: u128, epoch: u64, beat: u64) -> Claim {
        Claim { beat, ..Claim::first(&node(id), epoch - 1, 5) }
    }

    #[test]
    fn later_claim_and_another_one_with_the_same_number_take_over() {
        let own = claim(1, 3, 4);
        assert!(!claim(1, 3, 9).has_taken_over(&own));
        assert!(!claim(2, 2, 9).has_taken_over(&own));
        assert!(claim(1, 4, 0).has_taken_over(&own));
        assert!(claim(2, 3, 0).has_taken_over(&own));
        assert!(Claim { seat: Uuid::nil(), ..claim(1, 3, 4) }.has_taken_over(&own));
    }

    #[test]
    fn mark_is_a_sign_of_life_when_it_is_newer_or_of_another_claim_with_the_same_age() {
        let known = claim(1, 3, 4);
        for (mark, lives) in [
            (claim(1, 3, 3), false),
            (claim(1, 3, 4), false),
            (claim(1, 3, 5), true),
            (claim(2, 3, 4), true),
            (claim(2, 2, 9), false),
            (claim(2, 4, 0), true),
        ] {
            assert_eq!(mark.is_life_after(Some(&known), None), lives, "{mark:?}");
            assert_eq!(
                mark.is_life_after(None, Some(&known)),
                lives,
                "{mark:?}, on a disk that could not be read before"
            );
        }
        assert!(known.is_life_after(None, None), "where none was before, any is one");
        assert!(
            !claim(1, 3, 4).is_life_after(Some(&known), Some(&claim(1, 3, 3))),
            "its own disk counts before the others"
        );
    }

    #[test]
    fn first_mark_of_a_claim_is_newer_than_every_mark_before() {
        let old = claim(1, 7, u64::MAX);
        let new = Claim::first(&node(2), old.epoch, 0);
        assert!(new.age() > old.age() && new.has_taken_over(&old) && !old.has_taken_over(&new));
        assert_eq!(newest(&[(Uuid::nil(), new.clone()), (Uuid::nil(), old)]), Some(&new));
    }
}
