//! Volumes affected by a damaged group: those with data or a map on it, or with writes in a log that lies on it.

use model::{Refusal, code, first_few};
use volume::catalog::{Catalog, SlabRun};
use volume::{AssembledPool, Uuid};

/// Names listed in a text; more are only counted.
const NAMED_MAX: usize = 8;

/// Names of the volumes with anything on the group, as text for an operator.
pub(super) fn volumes_on(pool: &str, catalog: &Catalog, group: usize) -> String {
    let is_there = |run: &SlabRun| usize::from(run.group) == group;
    let log = catalog.log.iter().filter(|log| usize::from(log.group) == group);
    let logged: Vec<Uuid> = log.flat_map(|log| log.volumes.iter().copied()).collect();
    let mapped = catalog.families.iter().flat_map(|family| {
        let lies_there = family.meta.iter().chain(&family.data).any(is_there);
        let own = family.branches.iter().filter(|branch| !branch.deleting);
        // Volumes that are being deleted do not matter.
        own.filter(|branch| lies_there || logged.contains(&branch.id)).collect::<Vec<_>>()
    });
    let plain = catalog.volumes.iter().filter(|volume| {
        let mut columns = volume.segments.iter().flat_map(|segment| &segment.columns);
        columns.any(|column| usize::from(column.group) == group) || logged.contains(&volume.id)
    });
    let names = mapped.map(|branch| &branch.name).chain(plain.map(|volume| &volume.name));
    let names: Vec<String> = names.map(|name| format!("{pool}/{name}")).collect();
    if names.is_empty() { "no volumes affected".to_owned() } else { first_few(names.iter(), NAMED_MAX) }
}

/// Adds the affected volumes to the refusal of a group whose redo log is damaged.
pub(super) fn of_group(refusal: Refusal, found: &AssembledPool, group: usize) -> Refusal {
    if refusal.code != code::REDO_LOG_DAMAGED {
        return refusal;
    }
    let volumes = volumes_on(&found.catalog.name, &found.catalog, group);
    let hint = format!("{}. Volumes on group {group}: {volumes}", refusal.hint);
    Refusal { hint, ..refusal }
}
