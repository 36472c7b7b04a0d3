//! Simulated power cuts: the disks of a run are recovered by the production code, cut again during that, and
//! recovered again.

use super::randomized::{BLOCKS, LOG, Owner, Plan, RandomizedRun};
use crate::WriteLog;
use crate::rig::disk::{Disk, Event, Image, Journal, PowerCut};
use crate::rig::{Random, Rig};
use block::{BlockDevice, Extent, Rope};
use std::rc::Rc;

/// Durable knowledge of the log's owner at a cut.
struct Catalog {
    abandoned: Option<Vec<u128>>,
    settled: bool,
}

impl Catalog {
    fn of(events: &[Event]) -> Self {
        let abandoned = events.iter().find_map(|event| match event {
            Event::Abandoned(volumes) => Some(volumes.clone()),
            _ => None,
        });
        Self { abandoned, settled: events.iter().any(|event| matches!(event, Event::Settled)) }
    }

    fn names_as_lost(&self, volume: usize) -> bool {
        !self.settled && self.abandoned.as_ref().is_some_and(|volumes| volumes.contains(&(volume as u128)))
    }
}

/// State after a recovery: the disks, the content read from them, and the events of the recovery.
struct Recovered {
    images: Vec<Image>,
    contents: Vec<Rope>,
    events: Vec<Event>,
}

fn recover(images: &[Image], catalog: &Catalog, with_log: bool, log_block_bytes: u32) -> Result<Recovered, String> {
    let rig = Rig::seeded(7);
    let journal = Journal::default();
    let disk = |number: usize, block_bytes, bytes| {
        let shape = Disk::new(&rig.runtime, number, block_bytes, bytes, &journal).geometry();
        Disk::with_image(&rig.runtime, number, shape, images[number].clone(), &journal)
    };
    let volumes: Vec<Disk> = (0..2).map(|number| disk(number, 512, BLOCKS * 512)).collect();
    let log = disk(2, log_block_bytes, super::randomized::LOG_BYTES);
    if with_log && catalog.abandoned.is_none() {
        let (log, volumes, runtime, owner) =
            (log.clone(), volumes.clone(), rig.runtime.clone(), Rc::new(Owner(journal.clone())));
        rig.run(async move {
            let mut recovery = WriteLog::open(log, LOG, runtime, owner).await.map_err(|error| error.to_string())?;
            if recovery.damaged_batches() > 0 {
                return Err("a batch is called damaged".to_owned());
            }
            for volume in recovery.volumes() {
                let replayed =
                    recovery.replay(volume, &volumes[volume.0 as usize]).await.map_err(|error| error.to_string())?;
                if !replayed.lost.is_empty() {
                    return Err(format!("{:?} called lost", replayed.lost));
                }
            }
            recovery.finish().await.map(drop).map_err(|error| error.to_string())
        })?;
    }
    let contents = volumes.iter().map(|volume| {
        let volume = volume.clone();
        rig.run(async move { volume.read(Extent::new(0, BLOCKS)).await }).map_err(|error| error.to_string())
    });
    let contents = contents.collect::<Result<_, _>>()?;
    let images = volumes.iter().chain([&log]).map(Disk::image).collect();
    Ok(Recovered { images, contents, events: journal.events() })
}

/// Simulates power cuts at some instants of `run`, and checks the content found after each.
pub(super) fn judge_cuts(run: &RandomizedRun, seed: u64, plan: &Plan) -> Result<(), String> {
    let events = run.journal.events();
    let mut random = Random(seed ^ 0xc07);
    let mut cuts: Vec<usize> = (0..plan.cuts).map(|_| random.below(events.len() as u64 + 1) as usize).collect();
    cuts.sort_unstable();
    let mut power = PowerCut::of(run.begin.clone());
    let mut at = 0;
    for cut in cuts {
        events[at..cut].iter().for_each(|event| power.push(event));
        at = cut;
        let catalog = Catalog::of(&events[..cut]);
        for images in power.states(&mut random) {
            judge_state(run, plan, cut, &catalog, &images, &mut random).map_err(|what| format!("cut {cut}: {what}"))?;
        }
    }
    Ok(())
}

fn judge_state(
    run: &RandomizedRun,
    plan: &Plan,
    cut: usize,
    catalog: &Catalog,
    images: &[Image],
    random: &mut Random,
) -> Result<(), String> {
    let judge = |recovered: &Recovered| {
        for (number, (oracle, content)) in run.oracles.iter().zip(&recovered.contents).enumerate() {
            let lost = catalog.names_as_lost(number);
            oracle
                .judge_cut(Extent::new(0, BLOCKS), content.clone(), cut, lost)
                .map_err(|what| format!("volume {number}: {what}"))?;
        }
        Ok::<(), String>(())
    };
    let recovered = recover(images, catalog, plan.log, run.log_block_bytes)?;
    judge(&recovered)?;
    // The recovery itself is cut as well.
    let mut power = PowerCut::of(images.to_vec());
    for event in &recovered.events {
        power.push(event);
        if random.one_in(4) {
            for images in power.states(random).into_iter().take(4) {
                let again = recover(&images, catalog, plan.log, run.log_block_bytes)?;
                judge(&again).map_err(|what| format!("recovery cut off: {what}"))?;
            }
        }
    }
    let again = recover(&recovered.images, catalog, plan.log, run.log_block_bytes)?;
    judge(&again)?;
    // Opening once more writes both anchors and nothing else.
    if again.events.iter().filter(|event| matches!(event, Event::Submit { .. })).count() > 2 {
        return Err("to recover what was recovered writes again".into());
    }
    Ok(())
}
