//! Every deliberate bug must be detected by the check responsible for it.

use super::crash::{Script, check_some, guarded, whole_life};
use super::rig::*;
use super::together::snapshots_under_load;
use crate::Provisioning;
use crate::bug_injection::{self, InjectedBug};
use crate::layout::DATA_START;
use crate::tests::disk::{PowerCut, block_on};
use crate::tests::world::{World, volume_id};
use block::IoErrorKind;

/// Guard that ends the deliberate bug when it is dropped.
struct Chosen;

impl Drop for Chosen {
    fn drop(&mut self) {
        bug_injection::inject(None);
    }
}

type Find = fn() -> Result<(), String>;

/// Check that detects a bug; most are detected by power loss in the middle of a life.
fn finder(mistake: InjectedBug) -> Find {
    match mistake {
        InjectedBug::SnapshotPassesWrites => || {
            let (world, opened) = mirror();
            world.disks.iter().for_each(|disk| disk.lag.set(40));
            snapshots_under_load(&opened, 5)
        },
        InjectedBug::BothHeads => torn_heads,
        InjectedBug::KeepOldKey => super::encrypted::old_key_is_nowhere,
        InjectedBug::SplitAtomic => || super::atomic::whole_after_cuts(1),
        InjectedBug::SkipMapReserve => full_to_the_last_page,
        // Both copies are written apart, so that only few cuts show the bug; the state is constructed by hand
        // instead.
        InjectedBug::AcceptOldLives => crate::maplog::tests::interrupted_commit_is_left_behind,
        // Few states show these bugs, so every event is cut.
        InjectedBug::CommitBeforeCatalog | InjectedBug::RootBeforePages => || {
            let (base, script) = whole_life(false);
            told(check_some(&script, &base, 1, 24, 1).wrong)
        },
        // Moving granules frees places.
        InjectedBug::ReuseBeforeCommit | InjectedBug::LeakMoved => || {
            let (base, script) = whole_life(true);
            told(check_some(&script, &base, 2, 24, 2).wrong)
        },
        _ => || {
            let (base, script) = whole_life(false);
            told(check_some(&script, &base, 1, 16, 4).wrong)
        },
    }
}

/// Finding while all code exhibits this bug.
fn found(mistake: InjectedBug) -> Option<String> {
    let _chosen = Chosen;
    bug_injection::inject(Some(mistake));
    guarded(finder(mistake)).err()
}

/// Power loss while heads are written, which leaves garbage of all of them.
fn torn_heads() -> Result<(), String> {
    let mut script = Script::begin(false);
    let base = script.world.images();
    script.create(1, 400, Provisioning::Thin);
    script.write(1, 3, 30);
    script.flush(1);
    script.checkpoint(1);
    let done = script.world.journal.borrow().len();
    script.write(1, 100, 3);
    script.flush(1);
    script.checkpoint(1);
    let mut power = PowerCut::of(base);
    for (at, event) in script.world.journal.borrow().iter().enumerate() {
        power.push(event);
        let heads = [0, 1, 16, 17].map(|block| DATA_START + block);
        let opened = World::of(power.torn(|start| heads.contains(&start))).open();
        if at >= done {
            let opened = opened.map_err(|refusal| refusal.to_string())?;
            block_on(opened.pool.open_thin_volume(volume_id(1))).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn told(wrong: Vec<String>) -> Result<(), String> {
    wrong.into_iter().next().map_or(Ok(()), Err)
}

/// Pool filled with scattered granules, which a snapshot keeps, and emptied again.
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
    while block_on(pool.run_maintenance()).map_err(|error| error.to_string())?.more {}
    let report = block_on(pool.check()).map_err(|error| error.to_string())?;
    if report.findings.is_empty() { Ok(()) } else { Err(format!("{:?}", report.findings)) }
}

#[test]
fn head_that_is_torn_leaves_the_one_before() {
    torn_heads().unwrap();
}

#[test]
fn metadata_is_never_what_fills_up() {
    full_to_the_last_page().unwrap();
}

/// Asserts that every one of `mistakes` is detected.
fn assert_found(mistakes: &[InjectedBug]) {
    for &mistake in mistakes {
        let what = found(mistake);
        assert!(what.is_some(), "nobody has found {mistake:?}");
        println!("{mistake:?}: {}", what.unwrap_or_default().chars().take(160).collect::<String>());
    }
}

// Split into two tests, which run concurrently.
#[test]
fn every_mistake_on_purpose_is_found() {
    assert_found(&InjectedBug::ALL[..8]);
}

#[test]
fn every_other_mistake_on_purpose_is_found() {
    assert_found(&InjectedBug::ALL[8..]);
}
