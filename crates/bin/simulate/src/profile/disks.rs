//! Disks fail, err, dawdle and are replaced while hosts work; the power goes while a replacement is filled;
//! pools and volumes are made, grown and deleted, and the power goes over that.

mod catalog;
mod faults;
mod rebuild;

use crate::stage::{Judged, Stage};

pub(super) async fn play(stage: &Stage) -> Judged<()> {
    match stage.chance.below(10) {
        0..=4 => faults::play(stage).await,
        5..=6 => rebuild::play(stage).await,
        _ => catalog::play(stage).await,
    }
}
