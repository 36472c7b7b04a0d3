//! The medium of a logical unit: its blocks are read and changed here. Only the work of SANITIZE goes past it, to the device.
//!
//! With every read and change goes what SCSI keeps of it: counters, ROD tokens that end when their blocks change, the
//! thresholds of thin provisioning, WCE and FUA. The modules below are the commands on blocks, each a function on the medium.
//! The unit has admitted them before: the medium knows no reservations, and must never be asked for blocks that the device
//! does not have.

pub(crate) mod capacity;
pub(crate) mod compare;
pub(crate) mod diagnostic;
pub(crate) mod lba_status;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod write_same;

use crate::failure::{Failure, read_failure, read_sense, within, write_failure};
use crate::identity::Provisioning;
use crate::log::Counters;
use crate::mode::ModePages;
use crate::nexus::{Nexuses, UnitAttention};
use crate::threshold::{ThresholdWatch, Thresholds};
use crate::token::Tokens;
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Run, Space, View, Written};
use std::rc::Rc;

/// How many bad places a READ looks behind for blocks that it can still send.
const BAD_PLACES_MAX: usize = 8;

/// The blocks of one logical unit.
#[derive(Debug)]
pub(crate) struct Medium<D> {
    device: D,
    provisioning: Provisioning,
    /// True when the device tells its space: a thin one, with thresholds.
    tells_space: bool,
    counters: Counters,
    tokens: Tokens,
    thresholds: ThresholdWatch,
    mode: Rc<ModePages>,
    /// Who is told of a threshold.
    nexuses: Rc<Nexuses>,
}

/// What was read is what was asked for.
#[inline]
fn assert_whole(data: &Rope, extent: Extent, geometry: Geometry) {
    let bytes = extent.len.bytes(geometry.block_bytes);
    assert_eq!(data.len() as u64, bytes, "a device reads exactly the blocks that it is asked for");
}

impl<D: BlockDevice> Medium<D> {
    /// The medium on `device`. It is thin when the device tells its space, whatever `provisioning` says.
    pub(crate) fn new(device: D, provisioning: Provisioning, mode: Rc<ModePages>, nexuses: Rc<Nexuses>) -> Self {
        assert!(device.geometry().block_bytes > 0, "a device has blocks of some size");
        let tells_space = device.space().is_some();
        let provisioning = if tells_space { Provisioning::Thin } else { provisioning };
        let (counters, tokens, thresholds) = (Counters::default(), Tokens::default(), ThresholdWatch::default());
        Self { device, provisioning, tells_space, counters, tokens, thresholds, mode, nexuses }
    }

    pub(crate) fn device(&self) -> &D {
        &self.device
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    pub(crate) fn space(&self) -> Option<Space> {
        self.device.space()
    }

    pub(crate) fn provisioning(&self) -> Provisioning {
        self.provisioning
    }

    pub(crate) fn tells_space(&self) -> bool {
        self.tells_space
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// LBPRZ: unmapped blocks read as zeros.
    pub(crate) fn reads_zeros_where_unmapped(&self, geometry: Geometry) -> bool {
        self.provisioning != Provisioning::Full && geometry.discard_zeroes
    }

    /// READ: the blocks of `extent`, or those before the first bad one with the sense of it.
    pub(crate) async fn read(&self, extent: Extent) -> Result<Rope, Failure> {
        if extent.is_empty() {
            self.counters.count_read(0);
            return Ok(Rope::new());
        }
        let read = self.device.read(extent).await;
        match self.check_read(extent, read) {
            Ok(data) => {
                self.counters.count_read(extent.len.0);
                Ok(data)
            }
            Err(error) if error.kind == IoErrorKind::Medium => Err(Box::pin(self.read_before(extent, error)).await),
            Err(error) => Err(read_failure(error)),
        }
    }

    /// READ where the device does it without waiting; `None` when nothing was done.
    #[inline]
    pub(crate) fn read_at_once(&self, extent: Extent, geometry: Geometry) -> Option<Rope> {
        assert!(geometry.all().contains(extent), "a READ is admitted to blocks that are there");
        // What is behind an error is found on the long way.
        let data = self.device.read_at_once(extent)?.ok()?;
        assert_whole(&data, extent, geometry);
        self.counters.count_read(extent.len.0);
        Some(data)
    }

    /// Reads what of `extent` lies before the blocks that `error` names, which are then the first bad ones: an
    /// initiator keeps what comes before the block that INFORMATION names.
    async fn read_before(&self, extent: Extent, mut error: IoError) -> Failure {
        for _ in 0..BAD_PLACES_MAX {
            let before = Extent { len: error.extent.start - extent.start, ..extent };
            if before.is_empty() {
                break;
            }
            let read = self.device.read(before).await;
            match self.check_read(before, read) {
                Ok(data) => return Failure::CheckBehind(Box::new((read_sense(error), data))),
                // Worse than it looked: there is a bad place before it, or no device.
                Err(earlier) => error = earlier,
            }
            if error.kind != IoErrorKind::Medium {
                return read_failure(error);
            }
        }
        // Nothing is sent, so no block may be taken for one that was read.
        read_failure(error.at(extent))
    }

    /// Reads blocks, at least one, for a command other than READ.
    pub(crate) async fn read_blocks(&self, extent: Extent) -> Result<Rope, Failure> {
        assert!(!extent.is_empty(), "a device is not asked for nothing");
        let read = self.device.read(extent).await;
        self.check_read(extent, read).map_err(read_failure)
    }

    /// What the device made of reading `extent`: counted, and placed within it.
    fn check_read(&self, extent: Extent, read: Result<Rope, IoError>) -> Result<Rope, IoError> {
        match read {
            Ok(data) => {
                assert_whole(&data, extent, self.device.geometry());
                Ok(data)
            }
            Err(error) => {
                self.counters.count_read_error();
                Err(within(extent, error))
            }
        }
    }

    /// Writes `data` from `start` on and makes it stable, unless WCE is one and `fua` is not; counts it as a WRITE.
    pub(crate) async fn write(&self, start: Lba, data: View, fua: bool) -> Result<Rope, Failure> {
        let bytes = data.len();
        if bytes > 0 {
            self.about_to_write(start, bytes);
            // Not by way of `write_blocks`, whose future would hold the data once more.
            let written = self.device.write(start, data).await;
            let written = self.check_written(start, bytes, written)?;
            if fua || !self.mode.get().write_cache {
                self.make_stable(written).await?;
            }
        }
        self.counters.count_write(bytes);
        Ok(Rope::new())
    }

    /// WRITE of all of `extent` where the device does it without waiting; `None` when nothing was done.
    #[inline]
    pub(crate) fn write_at_once(
        &self,
        extent: Extent,
        data: &[u8],
        fua: bool,
        geometry: Geometry,
    ) -> Option<Result<(), Failure>> {
        if geometry.volatile_cache && (fua || !self.mode.get().write_cache) {
            return None;
        }
        assert!(geometry.all().contains(extent), "a WRITE is admitted to blocks that are there");
        assert_eq!(data.len() as u64, extent.len.bytes(geometry.block_bytes), "a WRITE fills all of its blocks");
        let written = self.device.write_at_once(extent.start, data)?;
        self.about_to_write(extent.start, data.len());
        Some(self.check_changed(extent, written).map(|_written| self.counters.count_write(data.len())))
    }

    /// WRITE ATOMIC (16) of SBC-4. The task set lets nobody else see its blocks meanwhile, and the device leaves them old or new.
    pub(crate) async fn write_atomic(&self, extent: Extent, data: View, fua: bool) -> Result<Rope, Failure> {
        let bytes = data.len();
        if !extent.is_empty() {
            self.tokens.cancel(extent);
            let written = self.device.write_atomic(extent.start, data).await;
            let written = self.check_changed(extent, written)?;
            if fua || !self.mode.get().write_cache {
                self.make_stable(written).await?;
            }
        }
        self.counters.count_write(bytes);
        Ok(Rope::new())
    }

    /// Writes blocks, at least one, for a command other than WRITE; stable when [`Medium::make_stable`] says so.
    pub(crate) async fn write_blocks(&self, start: Lba, data: View) -> Result<Written, Failure> {
        let bytes = data.len();
        assert!(bytes > 0, "a device is not given nothing");
        self.about_to_write(start, bytes);
        let written = self.device.write(start, data).await;
        self.check_written(start, bytes, written)
    }

    /// A token that stands for one of the blocks that `bytes` from `start` on fill is not valid any more.
    fn about_to_write(&self, start: Lba, bytes: usize) {
        if self.tokens.are_some_valid() {
            let blocks = bytes as u64 / u64::from(self.device.geometry().block_bytes);
            self.tokens.cancel(Extent { start, len: Blocks(blocks) });
        }
    }

    /// What the device made of writing `bytes` from `start` on.
    fn check_written(&self, start: Lba, bytes: usize, written: Result<Written, IoError>) -> Result<Written, Failure> {
        let (bytes, block_bytes) = (bytes as u64, u64::from(self.device.geometry().block_bytes));
        let blocks = bytes / block_bytes;
        assert_eq!(blocks * block_bytes, bytes, "whole blocks are written");
        self.check_changed(Extent { start, len: Blocks(blocks) }, written)
    }

    /// Frees the blocks of `extent`.
    pub(crate) async fn discard(&self, extent: Extent) -> Result<Written, Failure> {
        assert!(!extent.is_empty(), "a device is not asked to discard nothing");
        self.tokens.cancel(extent);
        let written = self.device.discard(extent).await;
        self.check_changed(extent, written)
    }

    /// Frees the blocks of `extent` for UNMAP, which asks and does not demand: `None` where freeing them would take space (a
    /// part of a granule that a snapshot shares). The blocks stay as they are then, and nobody is told that space is short.
    pub(crate) async fn unmap(&self, extent: Extent) -> Result<Option<Written>, Failure> {
        assert!(!extent.is_empty(), "a device is not asked to discard nothing");
        self.tokens.cancel(extent);
        let written = self.device.discard(extent).await;
        if written.as_ref().is_err_and(|error| error.kind == IoErrorKind::NoSpace) {
            return Ok(None);
        }
        self.check_changed(extent, written).map(Some)
    }

    /// What the device made of writing or discarding `extent`: counted, placed within it, and held against the
    /// thresholds.
    fn check_changed(&self, extent: Extent, written: Result<Written, IoError>) -> Result<Written, Failure> {
        self.check_thresholds();
        written.map_err(|error| self.write_error(within(extent, error)))
    }

    /// The run that `extent`, which is not empty, begins with.
    pub(crate) async fn run(&self, extent: Extent) -> Result<Run, Failure> {
        assert!(!extent.is_empty(), "a device is not asked about nothing");
        let run = self.device.run(extent).await.map_err(read_failure)?;
        let begins = run.extent.start == extent.start && !run.extent.is_empty();
        assert!(begins && extent.contains(run.extent), "a device tells a run from the first block on");
        Ok(run)
    }

    /// What was written survives power loss.
    pub(crate) async fn make_stable(&self, written: Written) -> Result<(), Failure> {
        if self.device.geometry().volatile_cache { self.flush(written).await } else { Ok(()) }
    }

    /// What commands that ended before have written survives power loss, where the device has a volatile cache.
    pub(crate) async fn make_earlier_writes_stable(&self) -> Result<(), Failure> {
        self.make_stable(earlier_writes()).await
    }

    /// SYNCHRONIZE CACHE (SBC-4). What was answered is stable already; the flush is for what
    /// aborted commands left behind, and tells of a device that failed one. IMMED allows an early answer
    /// and does not ask for one.
    pub(crate) async fn synchronize_cache(&self) -> Result<Rope, Failure> {
        self.flush(earlier_writes()).await?;
        Ok(Rope::new())
    }

    async fn flush(&self, written: Written) -> Result<(), Failure> {
        match self.device.flush(written).await {
            Ok(_stable) => Ok(()),
            Err(error) => Err(self.write_error(error)),
        }
    }

    fn write_error(&self, error: IoError) -> Failure {
        self.counters.count_write_error();
        write_failure(error)
    }

    /// Every nexus will be told of each threshold of a host's that was reached since the last look, once per crossing (38/07).
    /// Costs nothing while no host has enabled a threshold.
    pub(crate) fn check_thresholds(&self) {
        let crossed = self.thresholds.check(self.mode.get().thresholds, || self.device.space());
        if crossed.available {
            self.nexuses.establish_for_all(UnitAttention::AvailableThreshold);
        }
        if crossed.used {
            self.nexuses.establish_for_all(UnitAttention::UsedThreshold);
        }
    }

    /// Thresholds that MODE SELECT changed are armed anew: one that is reached already is told.
    pub(crate) fn rearm_thresholds(&self, before: Thresholds) {
        assert!(self.tells_space || before == self.mode.get().thresholds, "only a thin unit has thresholds");
        self.thresholds.rearm(before, self.mode.get().thresholds);
        self.check_thresholds();
    }
}

/// Stands for the writes of commands that ended before: the device accepted them then.
fn earlier_writes() -> Written {
    Written::attest()
}
