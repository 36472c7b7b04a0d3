//! A disk of another array: a [`BlockDevice`] over one logical unit and one or more paths to it.
//!
//! One path is active, the others stand by: logged in, registered, ready. I/O that a path loses goes over another one
//! (see [`crate::fence`]); without a path it waits for [`DiskConfig::no_path_limit`], and then the disk fails with
//! `Gone` for good, as a local disk that was pulled. Called by the data plane for members of pools. It must never
//! confuse two logical units, and never acknowledge what the target has not.

mod config;
mod io;
mod paths;
mod unit;

pub use config::{DiskConfig, DiskEvent, OpenError, PathReport, PathState, Use};
pub use unit::UnitFacts;

use crate::cdb;
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use futures_util::future::try_join_all;
use paths::Paths;
use shard::World;
use std::rc::Rc;

/// A logical unit of another array, open. Dropping it unregisters its keys and logs out in the background.
pub struct RemoteDisk<W: World> {
    paths: Rc<Paths<W>>,
    geometry: Geometry,
    /// How many of the unit's blocks make one of ours.
    factor: u32,
    transfer_blocks_max: u64,
}

/// The end of a disk; see [`RemoteDisk::closing`].
pub struct Closing<W: World>(Rc<Paths<W>>);

impl<W: World> Closing<W> {
    /// Nothing of the disk is registered or logged in any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.has_left()
    }

    /// Is ready when [`Closing::has_ended`]. It never is while the disk is open.
    pub async fn ended(&self) {
        self.0.until_left().await;
    }
}

impl<W: World> Drop for RemoteDisk<W> {
    fn drop(&mut self) {
        self.paths.abandon();
    }
}

impl<W: World> RemoteDisk<W> {
    /// The unit is open over at least one path. Other paths are tried again in the background.
    ///
    /// *Errors*: [`OpenError`]; nothing stays registered or logged in.
    pub async fn open(world: &W, config: DiskConfig) -> Result<Self, OpenError> {
        let block_bytes = config.block_bytes;
        let paths = Paths::new(world, config);
        if let Err(error) = paths.open().await {
            paths.give_up().await;
            return Err(error);
        }
        let unit = paths.unit.get().ok_or(OpenError::NoUnit(paths.config.lun))?;
        let factor = unit.factor(block_bytes)?;
        let (geometry, transfer_blocks_max) = (unit.geometry(block_bytes, factor), unit.transfer_blocks_max(factor));
        assert!(transfer_blocks_max > 0 && factor > 0);
        Ok(Self { paths, geometry, factor, transfer_blocks_max })
    }

    /// Nothing is registered or logged in any more.
    pub async fn close(self) {
        self.paths.close().await;
    }

    /// The end of the disk, for whoever waits for it after the disk was dropped.
    #[must_use]
    pub fn closing(&self) -> Closing<W> {
        Closing(self.paths.clone())
    }

    /// The key of another initiator that has registered with the unit, where the disk was opened to look at it.
    #[must_use]
    pub fn foreign_key(&self) -> Option<u64> {
        self.paths.foreign.get()
    }

    /// What the unit says of itself.
    #[must_use]
    pub fn facts(&self) -> &UnitFacts {
        self.paths.unit.get().expect("an open disk has a unit")
    }

    /// The paths, in the order of the portals.
    #[must_use]
    pub fn paths(&self) -> Vec<PathReport> {
        self.paths.reports()
    }

    /// The address of the unit, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        self.paths.config.address()
    }

    /// True once the disk has failed for good.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.paths.has_failed()
    }

    /// `extent` in pieces of one command each.
    fn pieces(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<W> {
        let (most, end) = (self.transfer_blocks_max, extent.end().0);
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
            // GOOD without the data: the blocks cannot be believed.
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
            // GOOD for a part of it.
            _ => Err(IoError::new(IoErrorKind::Medium, piece)),
        }
    }

    /// The longest range of one UNMAP, in our blocks.
    fn unmap_blocks_max(&self) -> u64 {
        let most = match self.facts().limits.unmap_blocks_max {
            0 => 1 << 21,
            most => most,
        };
        u64::from((most / self.factor).max(1))
    }
}

impl<W: World> BlockDevice for RemoteDisk<W> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry.admit(extent)?;
        let mut rope = Rope::new();
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
        let writes = self.pieces(extent).map(|piece| self.write_piece(piece, part(piece)));
        try_join_all(writes).await.map_err(|error| error.at(extent))?;
        Ok(Written::attest())
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        drop(after);
        let failed = |kind| IoError::new(kind, self.geometry.all());
        if self.paths.has_failed() {
            return Err(failed(IoErrorKind::Gone));
        }
        if !self.geometry.volatile_cache {
            return Ok(Stable::attest());
        }
        let (covered, lun) = (self.paths.written(), self.paths.lun);
        if let Err(kind) = io::run(&self.paths, false, 0, || cdb::synchronize_cache(lun)).await {
            // A flush is never tried again into success.
            self.paths.fail("SYNCHRONIZE CACHE failed");
            return Err(failed(if kind == IoErrorKind::Medium { kind } else { IoErrorKind::Gone }));
        }
        self.paths.note_flushed(covered).map_err(|()| failed(IoErrorKind::Gone))?;
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.geometry.admit(extent)?;
        if !self.facts().unmaps || extent.is_empty() {
            return Ok(Written::attest());
        }
        let (most, end) = (self.unmap_blocks_max(), extent.end().0);
        let mut at = extent.start.0;
        while at < end {
            let piece = Extent { start: Lba(at), len: Blocks(most.min(end - at)) };
            let (lba, blocks) = self.lba(piece);
            let lun = self.paths.lun;
            let done = io::run(&self.paths, true, 0, || cdb::unmap(lun, lba, blocks)).await;
            done.map_err(|kind| IoError::new(kind, extent))?;
            at += piece.len.0;
        }
        Ok(Written::attest())
    }
}
