//! Where the members of a pool sit: whether it survives the loss of an enclosure, and how to arrange disks so that it does.

use crate::{DiskName, Level};
use std::collections::{BTreeMap, BTreeSet};

/// A disk and the enclosure that it sits in, where that is known.
pub type Placed = (DiskName, Option<String>);

/// The disks shared out to `groups` groups of `level`, so that as few disks as possible of one group sit in one
/// enclosure, and mirrored pairs sit in two.
///
/// *Shape*: as many disks as go evenly into the groups; each group has its disks in the order of their slots.
#[must_use]
pub fn spread(level: Level, disks: &[Placed], groups: usize) -> Vec<Vec<DiskName>> {
    let mut shelves: BTreeMap<&Option<String>, Vec<&Placed>> = BTreeMap::new();
    for disk in disks {
        shelves.entry(&disk.1).or_default().push(disk);
    }
    let mut shelves: Vec<Vec<&Placed>> = shelves.into_values().collect();
    // The largest enclosure first: what is dealt in this order is dealt evenly, enclosure by enclosure.
    shelves.sort_by_key(|shelf| std::cmp::Reverse(shelf.len()));
    let mut hands: Vec<Vec<DiskName>> = vec![Vec::new(); groups.max(1)];
    let count = hands.len();
    for (turn, (disk, _)) in shelves.into_iter().flatten().enumerate() {
        hands[turn % count].push(disk.clone());
    }
    if level == Level::Raid10 {
        hands.iter_mut().for_each(|hand| *hand = paired(hand));
    }
    hands
}

/// Disks in the order of their enclosures, with each of the first half beside one of the second: two of one
/// enclosure are partners only where it has more than half of all.
fn paired(disks: &[DiskName]) -> Vec<DiskName> {
    let (first, second) = disks.split_at(disks.len() / 2);
    first.iter().zip(second).flat_map(|(one, other)| [one.clone(), other.clone()]).collect()
}

/// The enclosures without which a group of these members would lose data, worst first.
#[must_use]
pub fn weak_enclosures(level: Level, members: &[Placed]) -> Vec<String> {
    let shelves: BTreeSet<&String> = members.iter().filter_map(|(_, enclosure)| enclosure.as_ref()).collect();
    let inside = |shelf: &String| members.iter().filter(|(_, enclosure)| enclosure.as_ref() == Some(shelf)).count();
    let mut weak: Vec<&String> = shelves.into_iter().filter(|shelf| !survives(level, members, shelf)).collect();
    weak.sort_by_key(|shelf| std::cmp::Reverse(inside(shelf)));
    weak.into_iter().cloned().collect()
}

/// True when the group serves without everything in the enclosure.
fn survives(level: Level, members: &[Placed], shelf: &String) -> bool {
    let lost = |(_, enclosure): &Placed| enclosure.as_ref() == Some(shelf);
    match level {
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

    /// Disks `a0`… in enclosure `a`, `b0`… in `b`, as many as told; those of `-` sit nowhere that is known.
    fn disks(shelves: &[(&str, usize)]) -> Vec<Placed> {
        let disk = |shelf: &str, n: usize| {
            let name = if shelf == "-" { format!("z{n}") } else { format!("{shelf}{n}") };
            (name.parse().expect("a name"), (shelf != "-").then(|| shelf.to_owned()))
        };
        shelves.iter().flat_map(|&(shelf, count)| (0..count).map(move |n| disk(shelf, n))).collect()
    }

    fn placed(names: &[DiskName], disks: &[Placed]) -> Vec<Placed> {
        names.iter().map(|name| disks.iter().find(|(disk, _)| disk == name).expect("one of them").clone()).collect()
    }

    /// The enclosures that some group cannot do without.
    fn weak(level: Level, shelves: &[(&str, usize)], groups: usize) -> Vec<String> {
        let disks = disks(shelves);
        let groups = spread(level, &disks, groups);
        groups.iter().flat_map(|names| weak_enclosures(level, &placed(names, &disks))).collect()
    }

    #[test]
    fn spread_survives_the_loss_of_an_enclosure_where_that_is_possible() {
        let none: Vec<String> = Vec::new();
        // The paper's: five drawers, two disks each, 8+2.
        assert_eq!(weak(Level::Raid6, &[("a", 2), ("b", 2), ("c", 2), ("d", 2), ("e", 2)], 1), none);
        // Two such groups, given drawer by drawer.
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
