//! Contention: concurrent claims of one pool, and the presence of the owner's own mark.

use crate::claim::{Claim, DiskClaim, claim_on, newest};
use uuid::Uuid;

/// Returns a node whose mark moved since the pool was read as `found`; `now` has all current marks of each
/// disk. No claim may be made then.
#[must_use]
pub fn contested_before<'a>(now: &'a [(Uuid, Vec<Claim>)], found: &[DiskClaim]) -> Option<&'a Claim> {
    // Per disk, only the newest mark can show that its writer is active.
    let newest_now = now.iter().filter_map(|(disk, marks)| Some((*disk, newest_mark(marks)?)));
    newest_now
        .filter(|(disk, mark)| mark.moved_since(claim_on(found, *disk), newest(found)))
        .map(|(_, mark)| mark)
        .next()
}

/// Returns another node that has written since the read `before`, now that the disks have the mark of the claim
/// `own`.
///
/// That node may write for a while yet, or has claimed at the same time; in both cases both nodes must give up.
#[must_use]
pub fn contested_after<'a>(
    now: &'a [(Uuid, Vec<Claim>)],
    before: &[(Uuid, Vec<Claim>)],
    own: &Claim,
) -> Option<&'a Claim> {
    let newest_before = before.iter().flat_map(|(_, marks)| marks).max_by_key(|mark| mark.age());
    now.iter().find_map(|(disk, marks)| {
        let known = before.iter().find(|(known, _)| known == disk).and_then(|(_, marks)| newest_mark(marks));
        // Our own mark has appeared since as well; it does not count.
        marks.iter().find(|mark| mark.moved_since(known, newest_before) && !mark.is_same_claim(own))
    })
}

/// Presence of the owner's last mark on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastMark {
    /// Present.
    Present,
    /// Missing, although every place of a mark is readable.
    Missing,
    /// Unknown: a place is unreadable, or the owner has not written to the disk yet.
    Unknown,
}

/// Tells whether a disk with `marks` has the last mark of the claim `own` that it took, with beat `written`.
/// `is_whole` is true when every place of a mark could be read.
///
/// The previous mark counts as well: the two are in different places, and damage of one is no sign of another
/// owner.
#[must_use]
pub fn last_mark(own: &Claim, written: Option<u64>, marks: Option<&[Claim]>, is_whole: bool) -> LastMark {
    // Without a completed write there is no mark to look for.
    let (Some(written), Some(marks)) = (written, marks) else { return LastMark::Unknown };
    // Marks of a claim alternate between two places, so the last two are on the disk (docs/on-disk.md).
    if marks.iter().any(|mark| mark.is_same_claim(own) && mark.beat + 1 >= written) {
        LastMark::Present
    } else if is_whole {
        LastMark::Missing
    } else {
        LastMark::Unknown
    }
}

fn newest_mark(marks: &[Claim]) -> Option<&Claim> {
    marks.iter().max_by_key(|mark| mark.age())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::tests::claim;

    const DISK: Uuid = Uuid::from_u128(10);

    fn on(marks: &[Claim]) -> Vec<(Uuid, Vec<Claim>)> {
        vec![(DISK, marks.to_vec())]
    }

    #[test]
    fn claim_is_not_made_where_somebody_has_moved_since_the_pool_was_found() {
        let found = [(DISK, claim(2, 3, 4))];
        assert_eq!(contested_before(&on(&[claim(2, 3, 3), claim(2, 3, 4)]), &found), None);
        assert_eq!(contested_before(&on(&[]), &found), None);
        assert_eq!(contested_before(&on(&[claim(2, 3, 5), claim(2, 3, 4)]), &found), Some(&claim(2, 3, 5)));
        assert_eq!(contested_before(&on(&[claim(3, 4, 0)]), &found), Some(&claim(3, 4, 0)));
        assert_eq!(
            contested_before(&on(&[claim(3, 4, 0)]), &[]),
            Some(&claim(3, 4, 0)),
            "nobody had it when it was found"
        );
    }

    #[test]
    fn two_that_claim_at_the_same_time_see_each_other() {
        let before = on(&[claim(9, 3, 4)]);
        let (own, other) = (claim(1, 4, 0), claim(2, 4, 0));
        let now = on(&[claim(9, 3, 4), own.clone(), other.clone()]);
        assert_eq!(contested_after(&now, &before, &own), Some(&other));
        assert_eq!(contested_after(&now, &before, &other), Some(&own));
        assert_eq!(contested_after(&on(&[claim(9, 3, 4), own.clone()]), &before, &own), None);
        let owner_lives = on(&[claim(9, 3, 5), own.clone()]);
        assert_eq!(
            contested_after(&owner_lives, &before, &own),
            Some(&claim(9, 3, 5)),
            "who had it before still writes"
        );
    }

    #[test]
    fn last_mark_is_missing_only_where_every_place_can_be_read() {
        let own = claim(1, 3, 7);
        for (marks, written, is_whole, expected) in [
            (Some(vec![claim(1, 3, 7)]), Some(7), true, LastMark::Present),
            (Some(vec![claim(1, 3, 6)]), Some(7), true, LastMark::Present),
            (Some(vec![claim(1, 3, 5)]), Some(7), true, LastMark::Missing),
            (Some(vec![claim(1, 3, 5)]), Some(7), false, LastMark::Unknown),
            (Some(vec![claim(2, 3, 7)]), Some(7), true, LastMark::Missing),
            (Some(vec![]), None, true, LastMark::Unknown),
            (None, Some(7), true, LastMark::Unknown),
        ] {
            assert_eq!(last_mark(&own, written, marks.as_deref(), is_whole), expected, "{marks:?}, {written:?}");
        }
    }
}
