//! Consistency check and repair of all families of a pool.

use super::Pool;
use crate::error::PoolError;
use crate::family::check::{CheckReport, Finding, FindingKind};
use crate::family::{ConsistencyCheck, Repair};
use block::BlockDevice;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Checks the maps of the pool's families. Writes only pending changes to the logs; writes to a family wait
    /// while it is checked.
    ///
    /// *Errors*: `CatalogLost`. A family that cannot be opened is a finding.
    pub async fn check(&self) -> Result<CheckReport, PoolError> {
        self.shared.store.committed(self.shared.store.latest()).await?;
        let families: Vec<Uuid> =
            self.shared.store.with_catalog(|catalog| catalog.families.iter().map(|one| one.id).collect());
        let mut report = CheckReport::default();
        for family in families {
            self.check_family(family, &mut report).await;
        }
        Ok(report)
    }

    /// Repairs leaks, unguarded space and wrong counts that [`Pool::check`] finds; returns all findings.
    ///
    /// A family with damage, double use or places out of range is left alone, because its free space cannot be
    /// determined. With `accept_loss`, and only then, a family with lost map blocks continues with what is
    /// left, as the findings list it. *Durability*: when it returns. *Errors*: `GroupFails`, `MapDamaged`,
    /// `CatalogLost`.
    pub async fn repair(&self, accept_loss: bool) -> Result<CheckReport, PoolError> {
        use crate::family::check::FindingKind::{Count, Leak, Lost, UsedMarkedFree};
        let mut report = CheckReport::default();
        let families: Vec<Uuid> =
            self.shared.store.with_catalog(|catalog| catalog.families.iter().map(|one| one.id).collect());
        for id in families {
            let before = report.findings.len();
            self.check_family(id, &mut report).await;
            let found = &report.findings[before..];
            if accept_loss && found.iter().any(|finding| finding.kind == Lost) {
                self.families.accept_salvage(id).await?;
                continue;
            }
            // Any other finding makes the map an unreliable base for a repair.
            let told = found.iter().all(|finding| matches!(finding.kind, Leak | UsedMarkedFree | Count));
            if !told || found.is_empty() {
                continue;
            }
            let family = self.families.family(id).await?;
            let repaired = async {
                let _held = family.quiesce().await?;
                // Checked again under the locks that the repair keeps; the first check has released its own.
                let checked = ConsistencyCheck::run(&family).await?;
                Repair::of(&family, &checked).run().await
            };
            repaired.await.map_err(|error| error.into_pool_error(id))?;
        }
        Ok(report)
    }

    /// Finding of a family that does not open because of its map, where remains of it can be salvaged.
    async fn lost(&self, id: Uuid, error: &PoolError) -> Option<Finding> {
        let PoolError::MapDamaged { what, .. } = error else { return None };
        let losses = self.families.salvage(id).await.ok()?.losses;
        Some(Finding { family: id, kind: FindingKind::Lost, what: format!("{what}; {losses}") })
    }

    async fn check_family(&self, id: Uuid, report: &mut CheckReport) {
        use crate::family::check::FindingKind::Damaged;
        let damaged = |what: String| Finding { family: id, kind: Damaged, what };
        let family = match self.families.family(id).await {
            Ok(family) => family,
            Err(error) => {
                // A family that does not open is itself a finding, with its losses where they can be
                // determined.
                return report.findings.push(self.lost(id, &error).await.unwrap_or(damaged(error.to_string())));
            }
        };
        let checked = async {
            let _held = family.quiesce().await?;
            ConsistencyCheck::run(&family).await
        };
        match checked.await {
            Ok(checked) => {
                report.entries += checked.entries;
                report.granules += checked.granules;
                report.pages += checked.pages;
                let findings = checked.findings.into_iter();
                report.findings.extend(findings.map(|(kind, what)| Finding { family: id, kind, what }));
            }
            Err(error) => report.findings.push(damaged(error.into_pool_error(id).to_string())),
        }
    }
}
