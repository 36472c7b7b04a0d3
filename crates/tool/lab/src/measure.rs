//! Measurement of a scenario: every point in turn, round by round.

use crate::drive;
use crate::meter::stay_on;
use crate::peer::{CLIENT_CORE, TestResources};
use crate::point::{Backing, Peer, Point};
use crate::run::{Measured, Sample};
use crate::scenario::{self, Scenario};
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Observer of a measurement.
pub trait Watch {
    /// Reports a sample of the point with this number in this round.
    fn sampled(&mut self, point: usize, round: u32, measured: &Measured);
    /// Returns true to stop here and keep the results so far.
    fn stops(&self) -> bool;
}

/// Results of a measurement, and its end.
pub struct Outcome {
    /// Every point with its samples.
    pub points: Vec<Measured>,
    /// `Ok(true)`: complete. `Ok(false)`: stopped by the observer. An error: a peer that does not start, or a broken
    /// session; earlier samples are kept all the same.
    pub end: Result<bool>,
}

/// Measures every point of `scenario` in all rounds.
///
/// *Errors*: invalid points; nothing was measured then.
pub fn run(scenario: &Scenario, means: &TestResources, watch: &mut dyn Watch) -> Result<Outcome> {
    let mut points: Vec<Measured> = Vec::new();
    for (labels, point) in scenario.points()? {
        // Recorded instead of failing: one missing program must not end a run of hours.
        let untried = means.lacks(&point);
        points.push(Measured { labels, point, samples: Vec::new(), untried });
    }
    let end = rounds(scenario.rounds, &mut points, means, watch);
    Ok(Outcome { points, end })
}

/// Returns the order of points in a round: every other round is backwards, since earlier measurements leave traces in
/// the machine's memory, and a point would always follow the same one.
fn order(points: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..points).map(move |nth| if round.is_multiple_of(2) { nth } else { points - 1 - nth })
}

fn rounds(rounds: u32, points: &mut [Measured], means: &TestResources, watch: &mut dyn Watch) -> Result<bool> {
    for round in 0..rounds {
        for index in order(points.len(), round) {
            let measured = &mut points[index];
            if watch.stops() {
                return Ok(false);
            }
            if measured.untried.is_some() {
                continue;
            }
            // A distinct seed for every sample, reproducible across runs.
            let seed = u64::from(round) << 32 | index as u64;
            let sample = match once(&measured.point, means, seed) {
                // A stop by the user may have ended the peer as well.
                Err(_) if watch.stops() => return Ok(false),
                sample => sample.with_context(|| scenario::place(&measured.labels))?,
            };
            measured.samples.push(sample);
            watch.sampled(index, round, measured);
        }
    }
    Ok(true)
}

/// Starts the target of the point, measures the point once, and ends the target.
///
/// *Errors*: the target does not start, a session breaks, or the unit holds data that would be overwritten.
pub fn once(point: &Point, means: &TestResources, seed: u64) -> Result<Sample> {
    let folder = tempfile::tempdir()?;
    let serving = means.start(point, folder.path())?;
    let foreign = means.is_foreign(point);
    let guards = foreign && !means.overwrite && point.writes();
    // Null devices and the raw server keep nothing, so filling them would be pointless unless verification asks for it.
    let holds = point.backing != Backing::Null && point.peer != Peer::Bare || point.verify;
    let fresh = holds && !foreign;
    let (point, way, meter) = (point.clone(), serving.way.clone(), serving.meter.clone());
    // A thread of its own, pinned to the client's core, so that its CPU time is the client's alone.
    let thread = std::thread::Builder::new().name("load".to_owned()).spawn(move || {
        stay_on(CLIENT_CORE)?;
        let busy_poll = if point.client_polls { uring::BUSY_POLL } else { Duration::ZERO };
        uring::run(&uring::Options { busy_poll, ..uring::Options::default() }, async move |world| {
            if guards && let Some(why) = drive::in_use(&world, &point, &way).await? {
                bail!("{why}; with --overwrite it is written over");
            }
            drive::run(&world, &point, &way, &meter, fresh, seed).await
        })?
    })?;
    match thread.join() {
        Ok(sample) => sample,
        // A panic of the load is a defect of the lab, and is not recorded as a result.
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_round_goes_backwards() {
        let orders = [0, 1, 2].map(|round| order(3, round).collect::<Vec<_>>());
        assert_eq!(orders, [[0, 1, 2], [2, 1, 0], [0, 1, 2]]);
        assert_eq!(order(0, 1).count(), 0);
    }
}
