//! Consistency check of a pool's maps (`pool check`), their repair (`pool repair`), and a dump as text.

use super::refusals::refusal;
use super::{OpenPool, find};
use crate::shard_context::ShardContext;
use model::{CheckFinding, CheckKind, Name, PoolCheck, Refusal, VolumeName};
use shard::World;
use std::rc::Rc;
use volume::{FindingKind, Uuid};

/// Checks the maps of the pool's volumes. With `repair`, errors that can be repaired are repaired; with `accept_loss`,
/// damaged maps are rebuilt from what is left of them (`docs/adr/0016-two-copies-of-a-map.md`).
pub(crate) async fn check<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    repair: bool,
    accept_loss: bool,
) -> Result<PoolCheck, Refusal> {
    let pool = find(&shard, &pool)?;
    let checked = if repair { pool.pool.repair(accept_loss).await } else { pool.pool.check().await };
    let checked = checked.map_err(|error| refusal(&error, &pool))?;
    // A rebuilt map is used when the pool is opened next; until then its volumes stay held with that reason.
    if repair && accept_loss {
        let lost = checked.findings.iter().filter(|finding| finding.kind == FindingKind::Lost);
        pool.blocked
            .until_opened_again(&pool.pool.status().families, &lost.map(|finding| finding.family).collect::<Vec<_>>());
    }
    let finding = |finding: &volume::Finding| CheckFinding {
        volume: pool.family_name(finding.family),
        kind: kind_of(finding.kind),
        description: finding.what.clone(),
    };
    Ok(PoolCheck {
        // Volumes that do not serve for a reason beside their map are listed as well.
        findings: checked.findings.iter().map(finding).chain(pool.held_findings()).collect(),
        entries: checked.entries,
        granules: checked.granules,
        pages: checked.pages,
    })
}

/// Dumps the catalog and the maps of the pool as text.
pub(crate) async fn dump<W: World>(shard: Rc<ShardContext<W>>, pool: Name) -> Result<String, Refusal> {
    let pool = find(&shard, &pool)?;
    pool.pool.dump().await.map_err(|error| refusal(&error, &pool))
}

impl<W: World> OpenPool<W> {
    /// Name of a family: that of its first volume, or the identity if that was deleted.
    pub(super) fn family_name(&self, family: Uuid) -> String {
        let families = self.pool.status().families;
        let first = families.iter().flat_map(|one| &one.volumes).find(|volume| volume.id == family);
        let name = first.filter(|volume| !volume.is_deleting).and_then(|volume| volume.name.parse().ok());
        name.map_or_else(|| family.to_string(), |own| VolumeName::in_pool(self.name.clone(), own).to_string())
    }
}

fn kind_of(kind: FindingKind) -> CheckKind {
    match kind {
        FindingKind::Leak => CheckKind::Leak,
        FindingKind::UsedMarkedFree => CheckKind::MarkedFree,
        FindingKind::DoubleUse => CheckKind::DoubleUse,
        FindingKind::OutOfRange => CheckKind::OutOfRange,
        FindingKind::Damaged => CheckKind::Damaged,
        FindingKind::Count => CheckKind::Count,
        FindingKind::Lost => CheckKind::Lost,
    }
}
