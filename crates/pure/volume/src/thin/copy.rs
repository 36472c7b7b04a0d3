//! Full copy of a volume or snapshot to another device, in this pool or another.

use super::ThinVolume;
use crate::MappedRun;
use crate::layout::BLOCK_BYTES;
use block::{BlockDevice, Blocks, Extent, IoError, IoErrorKind, Stable, Written};
use futures_util::stream::{self, FuturesOrdered, Stream, StreamExt, TryStreamExt};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Number of blocks copied in one piece.
const PIECE: u64 = 256;
/// Number of pieces in flight: some are read while others are written.
const PIECES: usize = 8;
/// Number of runs looked up in one request.
const RUNS: usize = 256;

/// Progress of a copy, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// Mapped bytes copied.
    pub bytes: u64,
    /// Bytes of the source processed, holes included.
    pub scanned_bytes: u64,
    /// Size of the source.
    pub total_bytes: u64,
}

/// Pieces in flight, and results not collected yet.
struct PiecesInFlight<F: Future> {
    pieces: FuturesOrdered<F>,
    ended: VecDeque<F::Output>,
}

impl<F: Future> Default for PiecesInFlight<F> {
    fn default() -> Self {
        Self { pieces: FuturesOrdered::new(), ended: VecDeque::new() }
    }
}

impl<F: Future> PiecesInFlight<F> {
    fn count(&self) -> usize {
        self.pieces.len() + self.ended.len()
    }

    /// Waits for the next piece in order.
    async fn next(&mut self) -> Option<F::Output> {
        match self.ended.pop_front() {
            None => self.pieces.next().await,
            ended => ended,
        }
    }

    /// Waits for `other` while the pieces continue: they may hold locks that others wait for.
    async fn drive_during<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        poll_fn(|cx| {
            while let Poll::Ready(Some(ended)) = self.pieces.poll_next_unpin(cx) {
                self.ended.push_back(ended);
            }
            other.as_mut().poll(cx)
        })
        .await
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> ThinVolume<D, G> {
    /// Copies this device from block `from` on to `target`, which reads as zeros there; holes stay holes.
    ///
    /// `progress` is called after each piece; the copy continues when it returns and stops when it returns
    /// false. A volume that is written meanwhile gives no consistent copy: copy a snapshot instead.
    /// *Durability*: when it returns. *Errors*: those of the two devices, in blocks of 4096 bytes; `OutOfRange`
    /// when the target is smaller or `from` is beyond the end; `Unsupported` when its blocks are not of 4096
    /// bytes. The target then has a partial copy.
    pub async fn copy_to<T: BlockDevice>(
        &self,
        target: &T,
        from: Blocks,
        mut progress: impl AsyncFnMut(CopyProgress) -> bool,
    ) -> Result<CopyProgress, IoError> {
        let all = self.geometry().all();
        if target.geometry().block_bytes != BLOCK_BYTES {
            return Err(IoError::new(IoErrorKind::Unsupported, all));
        }
        // Refused before the first write: a target that is too small would get a part of the source.
        target.geometry().admit(all)?;
        if from > all.len {
            return Err(IoError::new(IoErrorKind::OutOfRange, all));
        }
        let bytes = |blocks: u64| blocks * u64::from(BLOCK_BYTES);
        let mut copied = CopyProgress { total_bytes: bytes(all.len.0), ..CopyProgress::default() };
        let copy = |run: MappedRun| async move {
            if run.mapped {
                let data = self.read(run.extent).await?.into_view();
                // One flush at the end covers all writes.
                let _: Written = target.write(run.extent.start, data).await?;
            }
            Ok(run)
        };
        // Pieces end in any order and are reported in the order of their addresses, so that progress can be
        // resumed.
        let (mut pieces, mut under_way) = (pin!(self.pieces(from)), PiecesInFlight::default());
        let mut more = true;
        loop {
            // Keeps reads and writes overlapping with bounded memory.
            while more && under_way.count() < PIECES {
                match under_way.drive_during(pieces.try_next()).await? {
                    Some(run) => under_way.pieces.push_back(copy(run)),
                    None => more = false,
                }
            }
            let Some(MappedRun { extent, mapped }) = under_way.next().await.transpose()? else { break };
            copied.bytes += if mapped { bytes(extent.len.0) } else { 0 };
            copied.scanned_bytes = bytes(extent.end().0);
            if !under_way.drive_during(progress(copied)).await {
                // Pieces in flight are dropped; none of them was reported as copied.
                return Ok(copied);
            }
        }
        let _: Stable = target.flush(Written::attest()).await?;
        Ok(copied)
    }

    /// Stream of the device from block `from` on, in order: holes, and pieces of mapped runs.
    fn pieces(&self, from: Blocks) -> impl Stream<Item = Result<MappedRun, IoError>> + '_ {
        let end = self.geometry().blocks.0;
        stream::try_unfold((from.0, VecDeque::new()), move |(at, mut runs): (u64, VecDeque<MappedRun>)| async move {
            if runs.is_empty() && at < end {
                // The map is read in portions, so that a large volume needs no large list.
                runs = self.mapped(Extent::new(at, end - at), RUNS).await?.into();
            }
            let Some(MappedRun { extent, mapped }) = runs.pop_front() else { return Ok(None) };
            // A hole costs no I/O, so it is one piece however long it is.
            let here = Extent::new(extent.start.0, if mapped { PIECE.min(extent.len.0) } else { extent.len.0 });
            if here != extent {
                let rest = Extent::new(here.end().0, extent.len.0 - here.len.0);
                runs.push_front(MappedRun { extent: rest, mapped });
            }
            Ok(Some((MappedRun { extent: here, mapped }, (here.end().0, runs))))
        })
    }
}
