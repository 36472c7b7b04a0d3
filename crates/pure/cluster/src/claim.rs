//! Node identity, ownership claims on a pool, and comparison of claims.

use std::cmp::Ordering;
use uuid::Uuid;

/// Node that opens pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Node UUID, stable across restarts.
    pub id: Uuid,
    /// Name of the node.
    pub name: String,
    /// Identity of the running daemon on its machine: at most one daemon at a time holds it between two starts
    /// of the machine. A daemon that finds its own boot instance in a claim knows that the process that wrote it has
    /// ended.
    pub boot_instance: Uuid,
    /// Identity of the machine, the same for every state folder on it; none where it is unknown.
    pub machine: Option<Uuid>,
}

/// Claim of an owner, as its marks on the member disks state it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// UUID of the owning node.
    pub node: Uuid,
    /// Name of the node.
    pub name: String,
    /// Boot instance of the daemon that made the claim.
    pub boot_instance: Uuid,
    /// Machine that it ran on, if known.
    pub machine: Option<Uuid>,
    /// Epoch; every later claim of the pool has a higher one.
    pub epoch: u64,
    /// Heartbeat counter, raised while the node owns the pool.
    pub beat: u64,
    /// Time of the claim in seconds since 1970. Informational: no decision depends on it.
    pub claimed_at: u64,
    /// True when the node has released the pool.
    pub released: bool,
}

/// Claim with the disk that it was read from.
pub type DiskClaim = (Uuid, Claim);

impl Claim {
    /// Creates the first mark of a new claim of `node`, given the highest epoch ever seen.
    #[must_use]
    pub fn first(node: &Node, highest: u64, now: u64) -> Self {
        Self {
            node: node.id,
            name: node.name.clone(),
            boot_instance: node.boot_instance,
            machine: node.machine,
            // Above every epoch seen, so that the marks of earlier owners are recognizably older.
            // A forged mark with the highest epoch cannot be overtaken: the claim then loses to it at the first beat.
            epoch: highest.saturating_add(1),
            beat: 0,
            claimed_at: now,
            released: false,
        }
    }

    /// Age of the mark: epoch, then beat. A higher value was written later.
    #[must_use]
    pub fn age(&self) -> (u64, u64) {
        (self.epoch, self.beat)
    }

    /// True when `other` is a mark of the same claim.
    #[must_use]
    pub fn is_same_claim(&self, other: &Self) -> bool {
        // The boot instance distinguishes two daemons that use the same node identity.
        (self.epoch, self.node, self.boot_instance) == (other.epoch, other.node, other.boot_instance)
    }

    /// True when the maker of the claim `own` has lost the pool to the maker of this one.
    #[must_use]
    pub fn has_taken_over(&self, own: &Self) -> bool {
        // Two nodes that claimed at the same time may have taken the same epoch; then both have lost.
        self.epoch > own.epoch || (self.epoch == own.epoch && !self.is_same_claim(own))
    }

    /// True when its writer has written since an earlier read, which found `known` on its disk and `newest` on
    /// any.
    ///
    /// A damaged mark exposes the previous one, which is no sign of life. A mark that was unreadable at the
    /// earlier read is a sign of life if it is newer than all that were readable.
    #[must_use]
    pub fn moved_since(&self, known: Option<&Self>, newest: Option<&Self>) -> bool {
        // Without any earlier mark to compare with, a mark is news.
        known.or(newest).is_none_or(|before| match self.age().cmp(&before.age()) {
            Ordering::Less => false,
            // The same age from another claim: two nodes took the same epoch.
            Ordering::Equal => !self.is_same_claim(before),
            Ordering::Greater => true,
        })
    }

    /// True when a daemon with the present boot instance of `node` made the claim; it has therefore ended.
    #[must_use]
    pub fn is_by_ended_self(&self, node: &Node) -> bool {
        (self.node, self.boot_instance) == (node.id, node.boot_instance)
    }
}

/// Returns the newest of the claims.
#[must_use]
pub fn newest(seen: &[DiskClaim]) -> Option<&Claim> {
    seen.iter().map(|(_, claim)| claim).max_by_key(|claim| claim.age())
}

/// Returns the claim read from `disk`.
pub(crate) fn claim_on(seen: &[DiskClaim], disk: Uuid) -> Option<&Claim> {
    seen.iter().find(|(known, _)| *known == disk).map(|(_, claim)| claim)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn node(id: u128) -> Node {
        Node {
            id: Uuid::from_u128(id),
            name: format!("node-{id}"),
            boot_instance: Uuid::from_u128(id << 8),
            machine: None,
        }
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
        assert!(Claim { boot_instance: Uuid::nil(), ..claim(1, 3, 4) }.has_taken_over(&own));
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
            assert_eq!(mark.moved_since(Some(&known), None), lives, "{mark:?}");
            assert_eq!(
                mark.moved_since(None, Some(&known)),
                lives,
                "{mark:?}, on a disk that could not be read before"
            );
        }
        assert!(known.moved_since(None, None), "where none was before, any is one");
        assert!(
            !claim(1, 3, 4).moved_since(Some(&known), Some(&claim(1, 3, 3))),
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
