//! Profile `families`: snapshots and clones are created, rolled back to and deleted during writes and power failures: a
//! snapshot is consistent in time and immutable, and writes to one volume never appear in another.

use crate::families::Families;
use crate::pool::PoolPlan;
use crate::stage::{CheckResult, Stage};
use model::{Level, WritePolicy};

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    let mut families = Families::new(stage, &pool, WritePolicy::Through);
    let block_bytes = stage.chance.pick(&[512, 4096, 4096]);
    for _ in 0..stage.chance.within(1..=2) {
        families.make_volume(block_bytes).await?;
    }
    stage.open_portals().await?;
    families.run_rounds().await
}
