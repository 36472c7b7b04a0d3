//! Remote disk: a [`BlockDevice`] over one logical unit of another array and one or more paths to it.
//!
//! One path is active, the others are standby: logged in, registered, ready. I/O of a lost path is retried over another
//! one (see [`crate::fence`]). Without a path it waits for [`DiskConfig::no_path_limit`]; then the disk fails
//! permanently with `Gone`, like a local disk that was pulled. Called by the data plane for members of pools. It must
//! never confuse two logical units, and never acknowledge a write that the target has not acknowledged.

mod config;
mod io;
mod paths;
mod unit;

pub use config::{BlockBytesError, DiskConfig, DiskEvent, OpenError, OpenMode, PathReport, PathState};
pub use unit::UnitFacts;

use crate::cdb;
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use futures_util::future::try_join_all;
use paths::Paths;
use shard::World;
use std::rc::Rc;

/// Open logical unit of another array. Dropping it unregisters its keys and logs out in the background.
pub struct RemoteDisk<W: World> {
    paths: Rc<Paths<W>>,
    geometry: Geometry,
    /// Number of the unit's blocks per block of this device.
    factor: u32,
    transfer_blocks_max: u64,
}

/// Handle to wait for the end of a disk; see [`RemoteDisk::closing`].
pub struct Closing<W: World>(Rc<Paths<W>>);

impl<W: World> Closing<W> {
    /// True when no key of the disk is registered and no session is logged in.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.has_left()
    }

    /// Waits for [`Closing::has_ended`]. Never ready while the disk is open.
    pub async fn ended(&self) {
        self.0.until_left().await;
    }
}

impl<W: World> Drop for RemoteDisk<W> {
    fn drop(&mut self) {
        // Without waiting: the tasks of the paths log out in the background.
        self.paths.abandon();
    }
}

impl<W: World> RemoteDisk<W> {
    /// Opens the unit over at least one path. Other paths are retried in the background.
    ///
    /// *Errors*: [`OpenError`]; nothing stays registered or logged in.
    pub async fn open(world: &W, config: DiskConfig) -> Result<Self, OpenError> {
        let block_bytes = config.block_bytes;
        let paths = Paths::new(world, config);
        if let Err(error) = paths.open().await {
            // Paths that did log in have registered keys, which must not keep the next opener out.
            paths.give_up().await;
            return Err(error);
        }
        // Neither fails: a path is checked against both before it is installed.
        let unit = paths.unit.get().ok_or(OpenError::NoUnit(paths.config.lun))?;
        let factor = unit.factor(block_bytes)?;
        let (geometry, transfer_blocks_max) = (unit.geometry(block_bytes, factor), unit.transfer_blocks_max(factor));
        assert!(transfer_blocks_max > 0 && factor > 0);
        Ok(Self { paths, geometry, factor, transfer_blocks_max })
    }

    /// Closes the disk; returns when nothing is registered or logged in.
    pub async fn close(self) {
        self.paths.close().await;
    }

    /// Handle to wait for the end of the disk after it was dropped.
    #[must_use]
    pub fn closing(&self) -> Closing<W> {
        Closing(self.paths.clone())
    }

    /// Key that another initiator has registered with the unit, if the disk was opened for inspection only.
    #[must_use]
    pub fn foreign_key(&self) -> Option<u64> {
        self.paths.foreign.get()
    }

    /// Properties that the unit reports.
    #[must_use]
    pub fn facts(&self) -> &UnitFacts {
        self.paths.unit.get().expect("an open disk has a unit")
    }

    /// Paths in the order of the portals.
    #[must_use]
    pub fn paths(&self) -> Vec<PathReport> {
        self.paths.reports()
    }

    /// Address of the unit, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        self.paths.config.address()
    }

    /// True once the disk has failed permanently.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.paths.has_failed()
    }

    /// Splits `extent` into pieces of one command each.
    fn pieces(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<W> {
        let (most, end) = (self.transfer_blocks_max, extent.end().0);
        // `step_by` panics at zero, which `open` has excluded.
        let starts = (extent.start.0..end).step_by(usize::try_from(most).unwrap_or(usize::MAX));
        starts.map(move |start| Extent::new(start, most.min(end - start)))
    }

    fn lba(&self, extent: Extent) -> (u64, u32) {
        let blocks = extent.len.0 * u64::from(self.factor);
        (extent.start.0 * u64::from(self.factor), u32::try_from(blocks).expect("a piece has few blocks"))
    }

    async fn read_piece(&self, piece: Extent) -> Result<View, IoError> {
        let (lba, blocks) = self.lba(piece);
        let bytes = piece.len.bytes(self.geometry.block_bytes);
        let len = usize::try_from(bytes).expect("a piece fits into memory");
        let lun = self.paths.lun;
        let done = io::run(&self.paths, false, bytes, || cdb::read(lun, lba, blocks, len)).await;
        let done = done.map_err(|kind| IoError::new(kind, piece))?;
        match done.data_in {
            Some(data) if data.len() == len && u64::from(done.data_in_bytes) == bytes => Ok(data.freeze()),
            // GOOD without all of the data: the blocks cannot be trusted.
            _ => Err(IoError::new(IoErrorKind::Medium, piece)),
        }
    }

    async fn write_piece(&self, piece: Extent, data: View) -> Result<(), IoError> {
        let (lba, blocks) = self.lba(piece);
        let bytes = data.len() as u64;
        assert_eq!(bytes, piece.len.bytes(self.geometry.block_bytes), "the data fills the piece");
        let lun = self.paths.lun;
        let done = io::run(&self.paths, true, bytes, || cdb::write(lun, lba, blocks, data.clone())).await;
        let done = done.map_err(|kind| IoError::new(kind, piece))?;
        match done.residual {
            iscsi::pdu::Residual::None => Ok(()),
            // GOOD with a residual: only a part was written.
            _ => Err(IoError::new(IoErrorKind::Medium, piece)),
        }
    }
}

impl<W: World> BlockDevice for RemoteDisk<W> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry.admit(extent)?;
        let mut rope = Rope::new();
        // In parallel: each piece is a command of its own.
        let pieces = try_join_all(self.pieces(extent).map(|piece| self.read_piece(piece))).await;
        pieces.map_err(|error| error.at(extent))?.into_iter().for_each(|view| rope.push(view));
        Ok(rope)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry.extent_of(start, data.len())?;
        let block_bytes = self.geometry.block_bytes as usize;
        let part = |piece: Extent| {
            let from = (piece.start.0 - start.0) as usize * block_bytes;
            data.slice(from..from + piece.len.0 as usize * block_bytes)
        };
        // Pieces do not overlap, so the target may carry them out in any order.
        let writes = self.pieces(extent).map(|piece| self.write_piece(piece, part(piece)));
        try_join_all(writes).await.map_err(|error| error.at(extent))?;
        Ok(Written::attest())
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        // The flush covers the whole unit, so the proof carries no further information.
        drop(after);
        let failed = |kind| IoError::new(kind, self.geometry.all());
        if self.paths.has_failed() {
            return Err(failed(IoErrorKind::Gone));
        }
        // Without a write cache every acknowledged write is stable.
        if !self.geometry.volatile_cache {
            return Ok(Stable::attest());
        }
        // Counted before the command is sent: writes acknowledged while it runs are not covered by it.
        let (covered, lun) = (self.paths.written(), self.paths.lun);
        // Not held back by the fence of a lost path: a flush changes no block.
        if let Err(kind) = io::run(&self.paths, false, 0, || cdb::synchronize_cache(lun)).await {
            // A failed flush is never retried into success, so the disk fails.
            self.paths.fail("SYNCHRONIZE CACHE failed");
            return Err(failed(if kind == IoErrorKind::Medium { kind } else { IoErrorKind::Gone }));
        }
        self.paths.note_flushed(covered).map_err(|()| failed(IoErrorKind::Gone))?;
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.geometry.admit(extent)?;
        let (most, end) = (self.facts().unmap_blocks_max(self.factor), extent.end().0);
        // UNMAP is optional, so a discard is ignored where the unit cannot unmap a whole block.
        if most == 0 || extent.is_empty() {
            return Ok(Written::attest());
        }
        let mut at = extent.start.0;
        while at < end {
            let piece = Extent { start: Lba(at), len: Blocks(most.min(end - at)) };
            let (lba, blocks) = self.lba(piece);
            let lun = self.paths.lun;
            // As a write: an UNMAP that a lost path carries out late would destroy newer data.
            let done = io::run(&self.paths, true, 0, || cdb::unmap(lun, lba, blocks)).await;
            done.map_err(|kind| IoError::new(kind, extent))?;
            at += piece.len.0;
        }
        Ok(Written::attest())
    }
}
