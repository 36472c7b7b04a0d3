//! Distribution of pool members over enclosures, such that a pool survives the loss of an enclosure.

use crate::{DiskName, Level};
use std::collections::{BTreeMap, BTreeSet};

/// Disk and its enclosure, if known.
pub type DiskLocation = (DiskName, Option<String>);

/// Distributes the disks over `groups` groups of `level`, such that each group has as few disks as possible in one
/// enclosure, and mirrored pairs are in different enclosures.
///
/// *Shape*: groups of equal size if the number of disks permits it; the disks of a group are in slot order.
#[must_use]
pub fn spread(level: Level, disks: &[DiskLocation], groups: usize) -> Vec<Vec<DiskName>> {
    // Sorted, so that equal disks are always distributed in the same way.
    let mut shelves: BTreeMap<&Option<String>, Vec<&DiskLocation>> = BTreeMap::new();
    for disk in disks {
        shelves.entry(&disk.1).or_default().push(disk);
    }
    let mut shelves: Vec<Vec<&DiskLocation>> = shelves.into_values().collect();
    // Largest enclosure first: round-robin in this order distributes each enclosure evenly over the groups.
    shelves.sort_by_key(|shelf| std::cmp::Reverse(shelf.len()));
    // At least one, because the remainder below divides by the number.
    let mut hands: Vec<Vec<DiskName>> = vec![Vec::new(); groups.max(1)];
    let count = hands.len();
    for (turn, (disk, _)) in shelves.into_iter().flatten().enumerate() {
        hands[turn % count].push(disk.clone());
    }
    // RAID-10 mirrors adjacent slots, so disks of different enclosures must alternate.
    if level == Level::Raid10 {
        hands.iter_mut().for_each(|hand| *hand = paired(hand));
    }
    hands
}

/// Interleaves the two halves of a list sorted by enclosure. Both disks of a pair are in the same enclosure only if it
/// has more than half of all disks.
fn paired(disks: &[DiskName]) -> Vec<DiskName> {
    // `zip` drops no disk: `Level::admit_members` has refused an odd number before.
    let (first, second) = disks.split_at(disks.len() / 2);
    first.iter().zip(second).flat_map(|(one, other)| [one.clone(), other.clone()]).collect()
}

/// Returns the enclosures whose loss would cause data loss in a group with these members, worst first.
#[must_use]
pub fn weak_enclosures(level: Level, members: &[DiskLocation]) -> Vec<String> {
    // Disks without a known enclosure form none: each may be anywhere.
    let shelves: BTreeSet<&String> = members.iter().filter_map(|(_, enclosure)| enclosure.as_ref()).collect();
    let inside = |shelf: &String| members.iter().filter(|(_, enclosure)| enclosure.as_ref() == Some(shelf)).count();
    let mut weak: Vec<&String> = shelves.into_iter().filter(|shelf| !survives(level, members, shelf)).collect();
    weak.sort_by_key(|shelf| std::cmp::Reverse(inside(shelf)));
    weak.into_iter().cloned().collect()
}

/// Returns true if the group can serve without the members in the enclosure.
fn survives(level: Level, members: &[DiskLocation], shelf: &String) -> bool {
    let lost = |(_, enclosure): &DiskLocation| enclosure.as_ref() == Some(shelf);
    match level {
        // Mirrored pairs are adjacent slots, and each pair survives with one of its disks.
        Level::Raid10 => members.chunks(2).all(|pair| !pair.iter().all(lost)),
        Level::Raid0 | Level::Raid1 | Level::Raid5 | Level::Raid6 => {
            members.iter().filter(|member| lost(member)).count() <= level.tolerated(members.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns disks `a0`… in enclosure `a`, `b0`… in `b` with the given counts; those of `-` have no known enclosure.
    fn disks(shelves: &[(&str, usize)]) -> Vec<DiskLocation> {
        let disk = |shelf: &str, n: usize| {
            let name = if shelf == "-" { format!("z{n}") } else { format!("{shelf}{n}") };
            (name.parse().expect("a name"), (shelf != "-").then(|| shelf.to_owned()))
        };
        shelves.iter().flat_map(|&(shelf, count)| (0..count).map(move |n| disk(shelf, n))).collect()
    }

    fn placed(names: &[DiskName], disks: &[DiskLocation]) -> Vec<DiskLocation> {
        names.iter().map(|name| disks.iter().find(|(disk, _)| disk == name).expect("one of them").clone()).collect()
    }

    /// Returns the enclosures whose loss would cause data loss in some group.
    fn weak(level: Level, shelves: &[(&str, usize)], groups: usize) -> Vec<String> {
        let disks = disks(shelves);
        let groups = spread(level, &disks, groups);
        groups.iter().flat_map(|names| weak_enclosures(level, &placed(names, &disks))).collect()
    }

    #[test]
    fn spread_survives_the_loss_of_an_enclosure_where_that_is_possible() {
        let none: Vec<String> = Vec::new();
        // Example of the paper: five drawers with two disks each, 8+2.
        assert_eq!(weak(Level::Raid6, &[("a", 2), ("b", 2), ("c", 2), ("d", 2), ("e", 2)], 1), none);
        // Two such groups, with the disks listed drawer by drawer.
        assert_eq!(weak(Level::Raid6, &[("a", 4), ("b", 4), ("c", 4), ("d", 4), ("e", 4)], 2), none);
        assert_eq!(weak(Level::Raid10, &[("a", 4), ("b", 4)], 1), none);
        assert_eq!(weak(Level::Raid10, &[("a", 3), ("b", 3), ("c", 2)], 2), none);
        assert_eq!(weak(Level::Raid5, &[("a", 1), ("b", 1), ("c", 1), ("d", 1)], 1), none);
        assert_eq!(weak(Level::Raid1, &[("a", 1), ("b", 1)], 1), none);
    }

    #[test]
    fn spread_says_which_enclosures_cannot_be_lost() {
        assert_eq!(weak(Level::Raid6, &[("a", 3), ("b", 3)], 1), ["a", "b"]);
        assert_eq!(weak(Level::Raid10, &[("a", 5), ("b", 3)], 1), ["a"]);
        assert_eq!(weak(Level::Raid0, &[("a", 1), ("b", 1)], 1), ["a", "b"]);
        assert_eq!(weak(Level::Raid5, &[("b", 1), ("a", 3)], 1), ["a"]);
        assert_eq!(weak(Level::Raid6, &[("-", 6)], 1), Vec::<String>::new(), "of what is not known nothing is said");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn spread_deals_every_disk_once_and_every_enclosure_evenly(
            counts in proptest::collection::vec(0_usize..7, 1..6),
            groups in 1_usize..4,
        ) {
            let names = ["a", "b", "c", "d", "e"];
            let shelves: Vec<(&str, usize)> = names.into_iter().zip(counts).collect();
            let disks = disks(&shelves);
            let dealt = spread(Level::Raid6, &disks, groups);
            let mut all: Vec<&DiskName> = dealt.iter().flatten().collect();
            all.sort();
            all.dedup();
            prop_assert_eq!(all.len(), disks.len());
            for (shelf, count) in shelves {
                for names in &dealt {
                    let inside = placed(names, &disks).iter().filter(|disk| disk.1.as_deref() == Some(shelf)).count();
                    prop_assert!(inside <= count.div_ceil(groups), "{} of {} in one group", inside, count);
                }
            }
        }
    }
}
