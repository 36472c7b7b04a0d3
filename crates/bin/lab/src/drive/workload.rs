//! What the sessions of a point do: those that are measured, and those beside them.

use crate::load::{Share, Tallies};
use crate::point::Point;
use anyhow::{Result, ensure};
use std::cell::RefCell;
use std::rc::Rc;

/// One load, of the sessions from `first` on.
pub(super) struct Workload {
    pub point: Point,
    pub tallies: Rc<RefCell<Tallies>>,
    first: u32,
    depths: Vec<u32>,
}

impl Workload {
    /// The point's own, and the one beside it where there is one.
    ///
    /// *Errors*: one without sessions, or whose sessions may have nothing under way.
    pub fn all_of(point: &Point) -> Result<Vec<Self>> {
        let mut first = 0;
        let workload = |point: Point| {
            let depths = point.depths();
            ensure!(depths.first().is_some_and(|&depth| depth > 0), "a load has a session and a depth");
            let workload = Self { tallies: Rc::default(), first, depths, point };
            first += workload.sessions();
            Ok(workload)
        };
        [Some(point.clone()), point.neighbour()].into_iter().flatten().map(workload).collect()
    }

    /// How many sessions it has.
    pub fn sessions(&self) -> u32 {
        self.point.own_sessions()
    }

    /// What session `index` of all is of it, where all are dealt over `units`; nothing where it is of another load.
    pub fn share(&self, index: u32, units: u32) -> Option<Share> {
        let own = index.checked_sub(self.first)?;
        let depth = *self.depths.get(own as usize)?;
        let of = self.sessions();
        Some(Share { index, of, of_unit: (own / units, of.div_ceil(units)), depth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Beside;

    #[test]
    fn sessions_behind_the_measured_ones_are_of_the_load_beside_them() {
        let beside = Some(Beside { sessions: 3, depth: 64, ..Beside::default() });
        let workloads = Workload::all_of(&Point { sessions: 3, depth: 4, beside, ..Point::default() }).expect("sound");
        let shares = |workload: &Workload| -> Vec<_> {
            let shares = (0..7).map(|index| workload.share(index, 2));
            shares.map(|share| share.map(|share| (share.depth, share.of_unit))).collect()
        };
        let (own, other) =
            ([(0, 2), (0, 2), (1, 2)].map(|of| Some((4, of))), [(0, 2), (0, 2), (1, 2)].map(|of| Some((64, of))));
        assert_eq!(shares(&workloads[0]), [&own[..], &[None; 4]].concat());
        assert_eq!(shares(&workloads[1]), [&[None; 3][..], &other, &[None]].concat());
        let nobody = Some(Beside { sessions: 0, ..Beside::default() });
        assert!(Workload::all_of(&Point { beside: nobody, ..Point::default() }).is_err());
    }
}
