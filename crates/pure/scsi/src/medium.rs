//! Medium of a logical unit: all reads and changes of its blocks. Only the work of SANITIZE bypasses it and uses the
//! device.
//!
//! With every read and change go the SCSI side effects: counters, ROD tokens that are canceled when their blocks
//! change, the thresholds of thin provisioning, WCE and FUA. The modules below are the commands on blocks, each a
//! function of the medium. The unit has admitted the command before: the medium does not check reservations, and must
//! never be asked for blocks that the device does not have.

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

/// Limit on the bad blocks that a READ steps back over to find data that it can still send.
const BAD_PLACES_MAX: usize = 8;

/// Blocks of one logical unit.
#[derive(Debug)]
pub(crate) struct Medium<D> {
    device: D,
    provisioning: Provisioning,
    /// True when the device reports its space: a thin unit, with thresholds.
    tells_space: bool,
    counters: Counters,
    tokens: Tokens,
    thresholds: ThresholdWatch,
    mode: Rc<ModePages>,
    /// Receivers of threshold unit attentions.
    nexuses: Rc<Nexuses>,
}

/// Asserts that the device returned exactly the requested bytes.
#[inline]
fn assert_whole(data: &Rope, extent: Extent, geometry: Geometry) {
    let bytes = extent.len.bytes(geometry.block_bytes);
    assert_eq!(data.len() as u64, bytes, "a device reads exactly the blocks that it is asked for");
}

impl<D: BlockDevice> Medium<D> {
    /// Creates the medium on `device`. A device that reports its space makes it thin provisioned, regardless of
    /// `provisioning`.
    pub(crate) fn new(device: D, provisioning: Provisioning, mode: Rc<ModePages>, nexuses: Rc<Nexuses>) -> Self {
        assert!(device.geometry().block_bytes > 0, "a device has blocks of some size");
        let tells_space = device.space().is_some();
        // A device that reports its space can run out of it, so hosts have to know that the unit is thin.
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

    /// READ: returns the blocks of `extent`, or the blocks before the first bad one with its sense.
    pub(crate) async fn read(&self, extent: Extent) -> Result<Rope, Failure> {
        // The device is never asked for nothing.
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
            // Boxed, because the rare error path would enlarge the future of every READ.
            Err(error) if error.kind == IoErrorKind::Medium => Err(Box::pin(self.read_before(extent, error)).await),
            Err(error) => Err(read_failure(error)),
        }
    }

    /// READ for a device that completes synchronously; `None` when nothing was done.
    #[inline]
    pub(crate) fn read_at_once(&self, extent: Extent, geometry: Geometry) -> Option<Rope> {
        assert!(geometry.all().contains(extent), "a READ is admitted to blocks that are there");
        // An error is handled by the slow path, which reads again.
        let data = self.device.try_read(extent)?.ok()?;
        assert_whole(&data, extent, geometry);
        self.counters.count_read(extent.len.0);
        Some(data)
    }

    /// Reads the part of `extent` before the blocks that `error` names, and steps back while that part is bad, too. An
    /// initiator keeps the data before the block in INFORMATION, so all of it must be good.
    async fn read_before(&self, extent: Extent, mut error: IoError) -> Failure {
        for _ in 0..BAD_PLACES_MAX {
            // Not negative: `check_read` has limited the error to the extent.
            let before = Extent { len: error.extent.start - extent.start, ..extent };
            if before.is_empty() {
                break;
            }
            let read = self.device.read(before).await;
            match self.check_read(before, read) {
                Ok(data) => return Failure::CheckBehind(Box::new((read_sense(error), data))),
                // The part before has a bad block of its own, or the device has failed.
                Err(earlier) => error = earlier,
            }
            if error.kind != IoErrorKind::Medium {
                return read_failure(error);
            }
        }
        // No data is sent, so INFORMATION names the first block: no block may be taken for one that was read.
        read_failure(error.at(extent))
    }

    /// Reads at least one block for a command other than READ.
    pub(crate) async fn read_blocks(&self, extent: Extent) -> Result<Rope, Failure> {
        assert!(!extent.is_empty(), "a device is not asked for nothing");
        let read = self.device.read(extent).await;
        self.check_read(extent, read).map_err(read_failure)
    }

    /// Checks the result of reading `extent`: counts an error and restricts it to the extent.
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

    /// Writes `data` from `start` on and makes it stable unless WCE is one and `fua` is not set. Counted as a WRITE.
    pub(crate) async fn write(&self, start: Lba, data: View, fua: bool) -> Result<Rope, Failure> {
        let bytes = data.len();
        if bytes > 0 {
            // Tokens are canceled before the change, so that no copy reads new blocks under an old token.
            self.about_to_write(start, bytes);
            // Not through `write_blocks`: its future would hold the data a second time.
            let written = self.device.write(start, data).await;
            let written = self.check_written(start, bytes, written)?;
            // Without WCE, GOOD promises stable data; FUA demands the same for one command.
            if fua || !self.mode.get().write_cache {
                self.make_stable(written).await?;
            }
        }
        self.counters.count_write(bytes);
        Ok(Rope::new())
    }

    /// WRITE of all of `extent` for a device that completes synchronously; `None` when nothing was done.
    #[inline]
    pub(crate) fn write_at_once(
        &self,
        extent: Extent,
        data: &[u8],
        fua: bool,
        geometry: Geometry,
    ) -> Option<Result<(), Failure>> {
        // A flush would have to be awaited.
        if geometry.volatile_cache && (fua || !self.mode.get().write_cache) {
            return None;
        }
        assert!(geometry.all().contains(extent), "a WRITE is admitted to blocks that are there");
        assert_eq!(data.len() as u64, extent.len.bytes(geometry.block_bytes), "a WRITE fills all of its blocks");
        let written = self.device.try_write(extent.start, data)?;
        // Canceled after the write here: it is synchronous, so no copy can read in between.
        self.about_to_write(extent.start, data.len());
        // No flush is due: the cases that need one have left above.
        Some(self.check_changed(extent, written).map(|_written| self.counters.count_write(data.len())))
    }

    /// WRITE ATOMIC (16) of SBC-4. The task set excludes other commands from its blocks, and the device leaves either
    /// the old or the new content after a crash.
    pub(crate) async fn write_atomic(&self, extent: Extent, data: View, fua: bool) -> Result<Rope, Failure> {
        let bytes = data.len();
        if !extent.is_empty() {
            // Canceled before the change, as for a WRITE.
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

    /// Writes at least one block for a command other than WRITE; stable after [`Medium::make_stable`].
    pub(crate) async fn write_blocks(&self, start: Lba, data: View) -> Result<Written, Failure> {
        let bytes = data.len();
        assert!(bytes > 0, "a device is not given nothing");
        self.about_to_write(start, bytes);
        let written = self.device.write(start, data).await;
        self.check_written(start, bytes, written)
    }

    /// Cancels ROD tokens that represent any of the blocks that `bytes` from `start` on cover.
    fn about_to_write(&self, start: Lba, bytes: usize) {
        // Common case: no token exists, so the extent is not computed.
        if self.tokens.are_some_valid() {
            let blocks = bytes as u64 / u64::from(self.device.geometry().block_bytes);
            self.tokens.cancel(Extent { start, len: Blocks(blocks) });
        }
    }

    /// Checks the result of writing `bytes` from `start` on.
    fn check_written(&self, start: Lba, bytes: usize, written: Result<Written, IoError>) -> Result<Written, Failure> {
        let (bytes, block_bytes) = (bytes as u64, u64::from(self.device.geometry().block_bytes));
        let blocks = bytes / block_bytes;
        assert_eq!(blocks * block_bytes, bytes, "whole blocks are written");
        self.check_changed(Extent { start, len: Blocks(blocks) }, written)
    }

    /// Discards the blocks of `extent`.
    pub(crate) async fn discard(&self, extent: Extent) -> Result<Written, Failure> {
        assert!(!extent.is_empty(), "a device is not asked to discard nothing");
        // Before the change, and even if it fails: some of the blocks may be discarded by then.
        self.tokens.cancel(extent);
        let written = self.device.discard(extent).await;
        self.check_changed(extent, written)
    }

    /// Discards the blocks of `extent` for UNMAP, which is a request without guarantee: `None` where freeing them would
    /// take space (a part of a granule that a snapshot shares). Their content is unchanged then, and the shortage is
    /// not reported.
    pub(crate) async fn unmap(&self, extent: Extent) -> Result<Option<Written>, Failure> {
        assert!(!extent.is_empty(), "a device is not asked to discard nothing");
        self.tokens.cancel(extent);
        let written = self.device.discard(extent).await;
        // SBC-4 UNMAP: the device server may leave blocks mapped.
        if written.as_ref().is_err_and(|error| error.kind == IoErrorKind::NoSpace) {
            return Ok(None);
        }
        self.check_changed(extent, written).map(Some)
    }

    /// Checks the result of changing `extent`: evaluates the thresholds, counts an error and restricts it to the
    /// extent.
    fn check_changed(&self, extent: Extent, written: Result<Written, IoError>) -> Result<Written, Failure> {
        // Space can be exhausted by any change, also by one that has failed.
        self.check_thresholds();
        written.map_err(|error| self.write_error(within(extent, error)))
    }

    /// Returns the first run of equal provisioning state in the non-empty `extent`.
    pub(crate) async fn run(&self, extent: Extent) -> Result<Run, Failure> {
        assert!(!extent.is_empty(), "a device is not asked about nothing");
        let run = self.device.run(extent).await.map_err(read_failure)?;
        let begins = run.extent.start == extent.start && !run.extent.is_empty();
        assert!(begins && extent.contains(run.extent), "a device tells a run from the first block on");
        Ok(run)
    }

    /// Makes `written` survive power loss.
    pub(crate) async fn make_stable(&self, written: Written) -> Result<(), Failure> {
        // A device without a volatile cache acknowledges only stable data.
        if self.device.geometry().volatile_cache { self.flush(written).await } else { Ok(()) }
    }

    /// Makes the writes of completed commands survive power loss, where the device has a volatile cache.
    pub(crate) async fn make_earlier_writes_stable(&self) -> Result<(), Failure> {
        self.make_stable(earlier_writes()).await
    }

    /// SYNCHRONIZE CACHE (SBC-4). Without WCE, acknowledged writes are stable already; the flush covers data that
    /// aborted commands left behind and reports a device that failed a flush. IMMED permits an early response and does
    /// not require one, so it is ignored.
    pub(crate) async fn synchronize_cache(&self) -> Result<Rope, Failure> {
        // The range of the CDB is not passed on, because a device flushes all of its blocks.
        self.flush(earlier_writes()).await?;
        Ok(Rope::new())
    }

    async fn flush(&self, written: Written) -> Result<(), Failure> {
        match self.device.flush(written).await {
            Ok(_stable) => Ok(()),
            // Counted as a write error: the data of earlier WRITEs may be lost.
            Err(error) => Err(self.write_error(error)),
        }
    }

    fn write_error(&self, error: IoError) -> Failure {
        self.counters.count_write_error();
        write_failure(error)
    }

    /// Establishes 38/07 for every nexus for each host threshold that was crossed since the last check, once per
    /// crossing. Costs nothing while no host has enabled a threshold.
    pub(crate) fn check_thresholds(&self) {
        let crossed = self.thresholds.check(self.mode.get().thresholds, || self.device.space());
        if crossed.available {
            self.nexuses.establish_for_all(UnitAttention::AvailableThreshold);
        }
        if crossed.used {
            self.nexuses.establish_for_all(UnitAttention::UsedThreshold);
        }
    }

    /// Re-arms the thresholds that MODE SELECT changed: one that is exceeded already is reported at once.
    pub(crate) fn rearm_thresholds(&self, before: Thresholds) {
        assert!(self.tells_space || before == self.mode.get().thresholds, "only a thin unit has thresholds");
        // Re-armed before the check, so that a threshold that is exceeded already is reported.
        self.thresholds.rearm(before, self.mode.get().thresholds);
        self.check_thresholds();
    }
}

/// Represents the writes of completed commands, which the device accepted earlier.
fn earlier_writes() -> Written {
    Written::attest()
}
