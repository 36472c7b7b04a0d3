//! Visibility of granule versions, decided from epochs alone (ADR 0007).
//!
//! Epochs rise with time. A viewer in an epoch sees the newest version up to it. A roll-back leaves a dead
//! range of epochs: a viewer above that range continues below it, at the epoch to which the volume was rolled
//! back.

use crate::catalog::DeadRange;
use smallvec::SmallVec;

/// Returns one step of a lookup by `viewer`: it sees versions above the returned floor and up to `viewer`; if
/// there are none, it continues at the second value.
pub(crate) fn lookup_step(dead: &[DeadRange], viewer: u64) -> (u64, Option<u64>) {
    // Of several dead ranges below the viewer, the highest one is met first.
    let below = dead.iter().filter(|range| range.last < viewer).max_by_key(|range| range.last);
    below.map_or((0, None), |range| (range.last, Some(range.after)))
}

/// Returns the index of the version that `viewer` sees, of those written in the ascending epochs `versions`.
pub(crate) fn visible(versions: &[u64], dead: &[DeadRange], viewer: u64) -> Option<usize> {
    let mut viewer = viewer;
    loop {
        let (floor, next) = lookup_step(dead, viewer);
        let newest = versions.partition_point(|&epoch| epoch <= viewer).checked_sub(1)?;
        if versions[newest] > floor {
            return Some(newest);
        }
        viewer = next?;
    }
}

/// Tells for each version whether one of `viewers` sees it.
///
/// *Shape*: both slices ascend.
pub(crate) fn retained(versions: &[u64], dead: &[DeadRange], viewers: &[u64]) -> SmallVec<[bool; 16]> {
    let mut kept = SmallVec::from_elem(false, versions.len());
    // All viewers between two of these points see the same version, so one viewer per interval is examined.
    let mut points: SmallVec<[u64; 16]> = versions.iter().copied().collect();
    points.extend(dead.iter().map(|range| range.last + 1));
    points.sort_unstable();
    for (at, &point) in points.iter().enumerate() {
        let end = points.get(at + 1).copied();
        let first = viewers.partition_point(|&viewer| viewer < point);
        let Some(&viewer) = viewers.get(first).filter(|&&viewer| end.is_none_or(|end| viewer < end)) else { continue };
        if let Some(seen) = visible(versions, dead, viewer) {
            kept[seen] = true;
        }
    }
    kept
}

/// Returns the dead ranges that a lookup by one of `viewers` passes through.
pub(crate) fn reachable_ranges(dead: &[DeadRange], viewers: &[u64]) -> Vec<DeadRange> {
    let mut used = SmallVec::<[bool; 16]>::from_elem(false, dead.len());
    for &viewer in viewers {
        let mut viewer = viewer;
        while let (floor, Some(next)) = lookup_step(dead, viewer) {
            let at = dead.iter().position(|range| range.last == floor).expect("the step is one of them");
            // The rest of the way from this range was followed for an earlier viewer.
            if std::mem::replace(&mut used[at], true) {
                break;
            }
            viewer = next;
        }
    }
    dead.iter().zip(used).filter(|(_, used)| *used).map(|(range, _)| *range).collect()
}

/// Returns the dead ranges that hide something from a viewer, assuming that no version is left in a dead epoch
/// unless a snapshot or the start of another range is there.
pub(crate) fn effective_ranges(dead: &[DeadRange], viewers: &[u64]) -> Vec<DeadRange> {
    let mut left = reachable_ranges(dead, viewers);
    loop {
        let empty = left.iter().position(|range| {
            // The epoch at which another range continues is a viewpoint too.
            let others = left.iter().filter(|other| *other != range).map(|other| other.after);
            let mut stand = viewers.iter().copied().chain(others);
            let stands = stand.any(|epoch| (range.after + 1..=range.last).contains(&epoch));
            // Another range that ends at the start of this one, or inside it, would take its place.
            let nested = left.iter().any(|other| other != range && (range.after..=range.last).contains(&other.last));
            !stands && !nested
        });
        let Some(at) = empty else { return left };
        left.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// History as a host sees it: the content of each snapshot and of the volume.
    struct History {
        epoch: u64,
        live: Option<u64>,
        snapshots: BTreeMap<u64, Option<u64>>,
        versions: Vec<u64>,
        dead: Vec<DeadRange>,
    }

    impl History {
        fn step(&mut self, kind: u8, pick: usize) {
            match kind {
                0..=3 => {
                    self.live = Some(self.epoch);
                    if self.versions.last() != Some(&self.epoch) {
                        self.versions.push(self.epoch);
                    }
                }
                4..=6 => {
                    self.snapshots.insert(self.epoch, self.live);
                    self.epoch += 1;
                }
                7 if !self.snapshots.is_empty() => {
                    let (&to, &held) = self.snapshots.iter().nth(pick % self.snapshots.len()).unwrap();
                    self.dead.push(DeadRange { after: to, last: self.epoch });
                    self.epoch += 1;
                    self.live = held;
                }
                8 if !self.snapshots.is_empty() => {
                    let epoch = *self.snapshots.keys().nth(pick % self.snapshots.len()).unwrap();
                    self.snapshots.remove(&epoch);
                    let viewers = self.viewers();
                    self.dead = reachable_ranges(&self.dead, &viewers);
                }
                9 => {
                    let viewers = self.viewers();
                    let kept = retained(&self.versions, &self.dead, &viewers);
                    let all = std::mem::take(&mut self.versions);
                    self.versions =
                        all.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(epoch, _)| epoch).collect();
                    self.dead = effective_ranges(&self.dead, &viewers);
                }
                _ => {}
            }
        }

        fn viewers(&self) -> Vec<u64> {
            self.snapshots.keys().copied().chain([u64::MAX]).collect()
        }

        fn seen(&self, viewer: u64) -> Option<u64> {
            visible(&self.versions, &self.dead, viewer).map(|at| self.versions[at])
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn everybody_sees_what_he_saw_whatever_was_rolled_back_deleted_and_cleaned(
            steps in prop::collection::vec((0u8..10, any::<usize>()), 1..60),
        ) {
            let (snapshots, versions, dead) = (BTreeMap::new(), Vec::new(), Vec::new());
            let mut history = History { epoch: 1, live: None, snapshots, versions, dead };
            for (kind, pick) in steps {
                history.step(kind, pick);
                prop_assert_eq!(history.seen(u64::MAX), history.live);
                prop_assert_eq!(history.seen(history.epoch), history.live);
                for (&epoch, &held) in &history.snapshots {
                    prop_assert_eq!(history.seen(epoch), held, "snapshot {}", epoch);
                }
                let viewers = history.viewers();
                let kept = retained(&history.versions, &history.dead, &viewers);
                let seen: Vec<u64> = viewers.iter().filter_map(|&viewer| history.seen(viewer)).collect();
                for (epoch, kept) in history.versions.iter().zip(kept) {
                    prop_assert_eq!(kept, seen.contains(epoch));
                }
            }
        }
    }

    #[test]
    fn range_stays_as_long_as_somebody_goes_on_from_an_epoch_in_it() {
        // Rolled back to 1 in epoch 6, then to 5 in epoch 8: the volume sees what was written in epoch 5, the
        // snapshot of epoch 7 does not.
        let dead = [DeadRange { after: 1, last: 6 }, DeadRange { after: 5, last: 8 }];
        let versions = [1, 5];
        assert_eq!((visible(&versions, &dead, u64::MAX), visible(&versions, &dead, 7)), (Some(1), Some(0)));
        assert_eq!(effective_ranges(&dead, &[1, 7, u64::MAX]), dead);
    }

    #[test]
    fn ranges_that_hide_nothing_are_dropped() {
        let dead = [DeadRange { after: 1, last: 5 }];
        assert_eq!(effective_ranges(&dead, &[1, 3, u64::MAX]), dead, "a snapshot stands in epoch 3");
        assert_eq!(effective_ranges(&dead, &[1, u64::MAX]), []);
        assert_eq!(reachable_ranges(&dead, &[1, 3]), [], "nobody stands above it");
    }
}
