//! Disks fail, err, lie, dawdle and are replaced while hosts work; the power goes while a replacement is filled;
//! pools and volumes are made, grown and deleted, and the power goes over that.

mod catalog;
mod decay;
mod faults;
mod rebuild;

pub(super) use decay::scrub;
pub(super) use faults::PROTECTED;

use crate::stage::{Judged, Stage};

pub(super) async fn play(stage: &Stage) -> Judged<()> {
    // What is planted below an array with sums is found and put right by it.
    let decays = !stage.plant.bends_disks();
    match stage.chance.below(10) {
        0..=1 if decays => decay::play(stage).await,
        0..=4 => faults::play(stage).await,
        5..=6 => rebuild::play(stage).await,
        _ => catalog::play(stage).await,
    }
}
