//! Every mistake that can be made on purpose is found by what is there to find it.

use super::crash::{check_some, guarded, two_families, whole_life};
use super::model::live;
use super::rig::*;
use super::together::snapshots_under_load;
use crate::sabotage::{self, Sabotage};
use crate::tests::disk::block_on;
use crate::tests::world::volume_id;
use block::IoErrorKind;

/// Makes the mistakes of a closure end with it.
struct Chosen;

impl Drop for Chosen {
    fn drop(&mut self) {
        sabotage::choose(None);
    }
}

/// What is found when everything makes this mistake.
fn found(mistake: Sabotage) -> Option<String> {
    let _chosen = Chosen;
    sabotage::choose(Some(mistake));
    let finders: [fn() -> Result<(), String>; 5] = [
        || {
            let (base, script) = whole_life(false);
            told(check_some(&script, &base, 1, 24, 1).wrong)
        },
        || {
            let (base, script) = whole_life(true);
            told(check_some(&script, &base, 2, 48, 1).wrong)
        },
        || {
            let (base, script) = two_families();
            told(check_some(&script, &base, 3, 48, 1).wrong)
        },
        || snapshots_under_load(&mirror().1, 5),
        full_to_the_last_page,
    ];
    let found = finders.iter().find_map(|find| guarded(find).err());
    found.or_else(|| guarded(|| told(live(1, 20, 40, 2).wrong)).err())
}

fn told(wrong: Vec<String>) -> Result<(), String> {
    wrong.into_iter().next().map_or(Ok(()), Err)
}

/// A pool is filled with granules that lie apart, kept by a snapshot, and emptied again.
fn full_to_the_last_page() -> Result<(), String> {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let volume = block_on(pool.create_thin_volume(thin_plan(1, 1 << 20))).map_err(|error| error.to_string())?;
    let mut granule = 0;
    loop {
        match write(&volume, granule * 3 * GRANULE, GRANULE, 1) {
            Ok(()) => granule += 1,
            Err(error) if error.kind == IoErrorKind::NoSpace => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    let kept = snapshot(pool, 1, 1).is_ok();
    for at in (0..granule).rev() {
        let extent = block::Extent::new(at * 3 * GRANULE, GRANULE);
        let _ = block_on(block::BlockDevice::discard(&*volume, extent)).map_err(|error| error.to_string())?;
    }
    let family = pool.open_family(volume_id(1)).expect("it is open");
    block_on(family.checkpoint()).map_err(|error| format!("{error:?}"))?;
    if kept {
        block_on(pool.delete_snapshot(snapshot_id(1), 0)).map_err(|error| error.to_string())?;
    }
    while block_on(pool.tend()).map_err(|error| error.to_string())?.more {}
    let report = block_on(pool.check()).map_err(|error| error.to_string())?;
    if report.findings.is_empty() { Ok(()) } else { Err(format!("{:?}", report.findings)) }
}

#[test]
fn metadata_is_never_what_fills_up() {
    full_to_the_last_page().unwrap();
}

#[test]
fn every_mistake_on_purpose_is_found() {
    let missed: Vec<Sabotage> = Sabotage::ALL
        .into_iter()
        .filter(|&mistake| match found(mistake) {
            Some(what) => {
                println!("{mistake:?}: {}", what.chars().take(160).collect::<String>());
                false
            }
            None => true,
        })
        .collect();
    assert!(missed.is_empty(), "nobody has found {missed:?}");
}
