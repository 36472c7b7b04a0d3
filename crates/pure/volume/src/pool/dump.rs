//! Text dump of a pool for debugging.

use super::Pool;
use crate::error::PoolError;
use crate::family::dump;
use block::BlockDevice;
use std::fmt::Write;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Returns the catalog and the maps of all families as text, one line per entry.
    ///
    /// For humans: the format changes with the code, and the text is as long as the maps. *Errors*:
    /// `CatalogLost`. A family that cannot be opened is a line.
    pub async fn dump(&self) -> Result<String, PoolError> {
        // Committed first: the text shows what the disks hold, and no change that a crash would undo.
        self.shared.store.committed(self.shared.store.latest()).await?;
        // A copy, because opening families below needs the store.
        let catalog = self.shared.store.with_catalog(Clone::clone);
        let mut text = String::new();
        let mut line = |args: std::fmt::Arguments<'_>| writeln!(text, "{args}").expect("a string takes every line");
        let (generation, phase) = (self.shared.store.generation(), catalog.phase);
        line(format_args!("pool {} \"{}\" generation {generation} {phase:?}", catalog.pool, catalog.name));
        for (number, group) in catalog.groups.iter().enumerate() {
            line(format_args!("group {number} {group:?}"));
        }
        if let Some(log) = &catalog.log {
            line(format_args!("{log:?}"));
        }
        for (volume, kept) in catalog.reserved() {
            line(format_args!("reservations of {volume}: {} bytes", kept.len()));
        }
        if let Some(scrub) = &catalog.scrub {
            line(format_args!("scrub {:?} {:?}, {} bytes checked", scrub.phase, scrub.at, scrub.checked_bytes));
        }
        for (volume, copy) in catalog.unfinished_copies() {
            line(format_args!("copy of {} to {volume}: next is block {}", copy.source, copy.next.0));
        }
        for volume in &catalog.volumes {
            line(format_args!(
                "volume {} \"{}\" {} bytes, {:?}",
                volume.id, volume.name, volume.size_bytes, volume.segments
            ));
        }
        for record in &catalog.families {
            writeln!(text, "family {} of {} bytes in a granule", record.id, record.granule_bytes)
                .expect("a string takes every line");
            writeln!(text, "  map on {:?}\n  data on {:?}", record.meta, record.data)
                .expect("a string takes every line");
            for branch in &record.branches {
                writeln!(text, "  {branch:?}").expect("a string takes every line");
            }
            match self.families.family(record.id).await {
                Ok(family) => {
                    let dumped = dump(&family, &mut text).await;
                    dumped.map_err(|error| error.into_pool_error(record.id))?;
                }
                Err(error) => writeln!(text, "  {error}").expect("a string takes every line"),
            }
        }
        Ok(text)
    }
}
