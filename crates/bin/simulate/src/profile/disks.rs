//! Profile `disks`: disks fail, return errors, lie and respond slowly, and are replaced while hosts work; the power
//! fails during a rebuild; pools and volumes are created, grown and deleted across power failures.

mod catalog;
mod decay;
mod faults;
mod rebuild;

pub(super) use decay::scrub;
pub(super) use faults::PROTECTED;

use crate::stage::{CheckResult, Stage};

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    // Checksums would detect and repair the effect of a bug that is planted below the array.
    let decays = !stage.plant.alters_disks();
    match stage.chance.below(10) {
        0..=1 if decays => decay::play(stage).await,
        0..=4 => faults::play(stage).await,
        5..=6 => rebuild::play(stage).await,
        _ => catalog::play(stage).await,
    }
}
