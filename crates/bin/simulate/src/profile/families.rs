//! Snapshots and clones are made, gone back to and deleted while hosts write, and the power goes over it: a snapshot
//! shows one instant, for ever, and nobody's writes are ever seen anywhere else.

use crate::families::Families;
use crate::pool::PoolPlan;
use crate::stage::{Judged, Stage};
use model::{Level, WritePolicy};

pub(super) async fn play(stage: &Stage) -> Judged<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    let mut families = Families::new(stage, &pool, WritePolicy::Through);
    let block_bytes = stage.chance.pick(&[512, 4096, 4096]);
    for _ in 0..stage.chance.within(1..=2) {
        families.make_volume(block_bytes).await?;
    }
    stage.open_portals().await?;
    families.live().await
}
