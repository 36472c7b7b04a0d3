//! Loads of a point: the measured one, and a second one beside it.

use crate::load::{Share, Tallies, Window};
use crate::point::Point;
use crate::run::Sample;
use std::cell::RefCell;
use std::rc::Rc;

/// Loads of a point.
pub(super) struct Workloads {
    own: Workload,
    beside: Option<Workload>,
}

/// Load of the sessions from `first` on.
pub(super) struct Workload {
    pub point: Point,
    pub tallies: Rc<RefCell<Tallies>>,
    first: u32,
}

impl Workloads {
    /// Creates the point's own load, and the one beside it if configured.
    pub(super) fn of(point: &Point) -> Self {
        let workload = |point, first| Workload { point, tallies: Rc::default(), first };
        let beside = point.neighbour().map(|neighbour| workload(neighbour, point.own_sessions()));
        Self { own: workload(point.clone(), 0), beside }
    }

    /// Returns the load that session `index` belongs to, and its share, with all sessions dealt over `units`.
    pub(super) fn share(&self, index: u32, units: u32) -> Option<(&Workload, Share)> {
        let mut workloads = std::iter::once(&self.own).chain(&self.beside);
        workloads.find_map(|workload| Some((workload, workload.share(index, units)?)))
    }

    /// Builds the sample of `window` from the readings in `metered` and the counted commands of the `sessions`.
    pub(super) fn sample(&self, window: Window, metered: Sample, mut sessions: Vec<u64>) -> Sample {
        let tallies = self.own.tallies.borrow();
        let (reads, writes) = tallies.finish();
        let beside = self.beside.as_ref().map(|beside| {
            let (reads, writes) = beside.tallies.borrow().finish();
            reads.with(&writes)
        });
        // The sessions of the load beside it come last, and are not part of the sample.
        sessions.truncate(self.own.point.own_sessions() as usize);
        let seconds = window.to.since(window.from).as_secs_f64();
        let mut sample = Sample { seconds, reads, writes, sessions, beside, ..metered };
        if let Some(seen) = &mut sample.seen {
            // Of the measured load only, like its commands and latencies.
            seen.held_seconds = tallies.held.as_secs_f64();
        }
        sample
    }
}

impl Workload {
    fn share(&self, index: u32, units: u32) -> Option<Share> {
        let of = self.point.own_sessions();
        let own = index.checked_sub(self.first).filter(|&own| own < of)?;
        // Sessions are dealt over the units in turn, so those of one unit are `units` apart.
        Some(Share { index, of, of_unit: (own / units, of.div_ceil(units)), depth: self.point.depth_of(own) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::BackgroundLoad;

    #[test]
    fn sessions_behind_the_measured_ones_are_of_the_load_beside_them() {
        let beside = Some(BackgroundLoad { sessions: 3, depth: 64, ..BackgroundLoad::default() });
        let workloads = Workloads::of(&Point { sessions: 3, depth: 4, beside, ..Point::default() });
        let shares: Vec<_> = (0..7).map(|index| workloads.share(index, 2)).collect();
        let told = shares.iter().map(|share| share.as_ref().map(|(of, share)| (of.first, share.depth, share.of_unit)));
        let wanted = [0, 3]
            .into_iter()
            .zip([4, 64])
            .flat_map(|(first, depth)| [(0, 2), (0, 2), (1, 2)].map(|of_unit| Some((first, depth, of_unit))));
        assert_eq!(told.collect::<Vec<_>>(), wanted.chain([None]).collect::<Vec<_>>());
    }
}
