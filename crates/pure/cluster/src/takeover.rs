//! Takeover: the decision table of import and start, whether a node may open a pool that was found.

use crate::claim::{Claim, DiskClaim, Node, claim_on, newest};

/// Decision about opening a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// Open at once: the pool was never claimed, was released, or was owned by this daemon before its start.
    Free,
    /// Read again after [`WATCH`](crate::WATCH): the owner may be alive.
    Watch,
    /// Open: the owner has stopped writing, and an operator says that it is down, or it was this node.
    Forced,
    /// Refuse: `owner` is active.
    Owned {
        /// Last owner.
        owner: Claim,
        /// True when that is another daemon of this same node.
        is_us: bool,
    },
    /// Refuse without an operator: `owner` is silent and did not release the pool.
    NotReleased {
        /// Last owner.
        owner: Claim,
    },
}

/// Decides whether `node` may open a pool.
///
/// `now` are the newest claims of its members; `earlier` are those of a read at least [`WATCH`](crate::WATCH)
/// before, where there was one. `owner_confirmed_down` is true when an operator says that the last owner is down.
#[must_use]
pub fn decide_takeover(
    now: &[DiskClaim],
    earlier: Option<&[DiskClaim]>,
    node: &Node,
    owner_confirmed_down: bool,
) -> Takeover {
    let Some(owner) = newest(now).filter(|_| must_be_watched(now, node)) else { return Takeover::Free };
    assert!(!owner.released, "who has let go of a pool is not waited for");
    // A single read cannot tell a live owner from one that has crashed.
    let Some(earlier) = earlier else { return Takeover::Watch };
    let owner = owner.clone();
    let is_us = owner.node == node.id;
    // A release is the last mark of its claim, and no sign of life.
    let lives =
        |(disk, claim): &DiskClaim| !claim.released && claim.moved_since(claim_on(earlier, *disk), newest(earlier));
    // A mark that moves on any disk is a sign of life.
    if now.iter().any(lives) {
        Takeover::Owned { owner, is_us }
    // A silent owner with the identity of this node ended with the previous start of the machine.
    } else if owner_confirmed_down || is_us {
        Takeover::Forced
    } else {
        Takeover::NotReleased { owner }
    }
}

/// True when only a second read tells whether a node other than `node` owns the pool.
#[must_use]
pub fn must_be_watched(now: &[DiskClaim], node: &Node) -> bool {
    // The newest mark of any member decides; older ones are left over from earlier claims.
    newest(now).is_some_and(|owner| !owner.released && !owner.is_by_ended_self(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::tests::{claim, node};
    use uuid::Uuid;

    const DISKS: [Uuid; 2] = [Uuid::from_u128(10), Uuid::from_u128(11)];

    fn on_both(claim: &Claim) -> Vec<DiskClaim> {
        DISKS.iter().map(|&disk| (disk, claim.clone())).collect()
    }

    /// Name of the decision, without the owner.
    fn kind(verdict: &Takeover) -> &'static str {
        match verdict {
            Takeover::Free => "free",
            Takeover::Watch => "watch",
            Takeover::Forced => "forced",
            Takeover::Owned { is_us: true, .. } => "owned by us",
            Takeover::Owned { .. } => "owned",
            Takeover::NotReleased { .. } => "not released",
        }
    }

    #[test]
    fn table_of_takeovers() {
        let other = claim(2, 3, 4);
        let released = Claim { released: true, ..claim(2, 3, 5) };
        let ours = claim(1, 3, 4);
        let ours_elsewhere = Claim { boot_instance: Uuid::nil(), ..claim(1, 3, 4) };
        let beat = |claim: &Claim| Claim { beat: claim.beat + 1, ..claim.clone() };
        // Current claim; claim of the first read, where there was one; statement of the operator; decision.
        let rows: [(Option<&Claim>, Option<Claim>, bool, &str); 14] = [
            (None, None, false, "free"),
            (Some(&released), None, false, "free"),
            (Some(&ours), None, false, "free"),
            (Some(&ours_elsewhere), None, false, "watch"),
            (Some(&other), None, false, "watch"),
            (Some(&other), None, true, "watch"),
            (Some(&other), Some(other.clone()), false, "not released"),
            (Some(&other), Some(other.clone()), true, "forced"),
            (Some(&beat(&other)), Some(other.clone()), false, "owned"),
            (Some(&beat(&other)), Some(other.clone()), true, "owned"),
            (Some(&ours_elsewhere), Some(ours_elsewhere.clone()), false, "forced"),
            (Some(&beat(&ours_elsewhere)), Some(ours_elsewhere.clone()), true, "owned by us"),
            (Some(&released), Some(other.clone()), false, "free"),
            (Some(&claim(3, 4, 0)), Some(other.clone()), true, "owned"),
        ];
        for (number, (now, earlier, told, decision)) in rows.into_iter().enumerate() {
            let now = now.map(on_both).unwrap_or_default();
            let earlier = earlier.as_ref().map(on_both);
            let verdict = decide_takeover(&now, earlier.as_deref(), &node(1), told);
            assert_eq!(kind(&verdict), decision, "row {number}: {verdict:?}");
            let is_first_look = earlier.is_none();
            assert_eq!(must_be_watched(&now, &node(1)) && is_first_look, decision == "watch", "row {number}");
        }
    }

    #[test]
    fn one_disk_that_moves_is_enough_and_one_that_shows_an_older_mark_is_not() {
        let (old, new) = (claim(2, 3, 4), claim(2, 3, 5));
        let earlier = on_both(&old);
        let one_moved = [(DISKS[0], old.clone()), (DISKS[1], new.clone())];
        assert_eq!(kind(&decide_takeover(&one_moved, Some(&earlier), &node(1), true)), "owned");
        // The newest mark of a disk was damaged since: the one before it is no sign of life.
        let decayed = [(DISKS[0], new.clone()), (DISKS[1], old)];
        assert_eq!(kind(&decide_takeover(&decayed, Some(&on_both(&new)), &node(1), true)), "forced");
        // A disk that was unreadable at the first read is no news.
        let earlier = [(DISKS[0], new.clone())];
        assert_eq!(kind(&decide_takeover(&on_both(&new), Some(&earlier), &node(1), true)), "forced");
    }
}
