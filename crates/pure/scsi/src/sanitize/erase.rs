//! Work of SANITIZE: overwrites and discards blocks, resumable from the stored progress.

use super::{Method, Sanitize, SanitizeOperation, State};
use crate::medium::Medium;
use crate::medium::write_same::repeated;
use crate::persistence::StoreError;
use crate::task_set::EVERYTHING;
use block::{BlockDevice, Blocks, Extent, IoError, IoErrorKind, Lba, Stable, Written};

/// Bytes written at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes discarded at a time.
const DISCARD_BYTES: u64 = 1 << 30;
/// Interval at which progress is stored: at least this number of bytes, or this fraction of a pass, whichever is
/// larger.
const KEEP_BYTES: u64 = 1 << 30;
const KEEP_PARTS: u64 = 64;

/// Reason for an early end of the work.
enum EarlyEnd {
    /// Stop requested by the owner of the unit.
    Stopped,
    Failed(IoError),
}

impl From<IoError> for EarlyEnd {
    fn from(error: IoError) -> Self {
        Self::Failed(error)
    }
}

/// True when unmapped blocks may stay unmapped, because they read as the data that the method leaves.
pub(super) fn keeps_holes<D: BlockDevice>(method: &Method, medium: &Medium<D>) -> bool {
    method.leaves_zeros() && medium.reads_zeros_where_unmapped(medium.geometry())
}

impl Sanitize {
    /// Carries out a pending SANITIZE, ordered now or before the unit was restored. `keep` persists the state of the
    /// unit with the given sanitize state, or with the current one. Wakes the commands that await the end.
    ///
    /// *Durability*: progress, completion and failure survive power loss when it returns; where the device is gone, a
    /// restart resumes the operation.
    pub(crate) async fn carry_out<D: BlockDevice>(
        &self,
        medium: &Medium<D>,
        keep: impl AsyncFn(Option<State>) -> Result<(), StoreError>,
    ) {
        // Nothing is pending, for example after a stop that came too late.
        let State::Running(order) = self.state() else { return };
        let _at_work = self.begin_work();
        let failed = State::Failed { exits: order.exits };
        let end = match (Work { sanitize: self, medium, keep: &keep }).erase(order).await {
            Ok(()) => State::Idle,
            // The state stays Running, so that a restart or the owner resumes the operation.
            Err(EarlyEnd::Stopped) => return,
            // A device that is gone has not failed to sanitize: the stored order resumes when it is back.
            Err(EarlyEnd::Failed(error)) if error.kind == IoErrorKind::Gone => return self.install(failed),
            Err(EarlyEnd::Failed(_)) => failed.clone(),
        };
        // No command learns of an end that a restart would not remember.
        let kept = keep(Some(end.clone())).await;
        self.install(if kept.is_ok() { end } else { failed });
    }
}

/// One order in execution.
struct Work<'a, D, K> {
    sanitize: &'a Sanitize,
    medium: &'a Medium<D>,
    keep: &'a K,
}

impl<D: BlockDevice, K: AsyncFn(Option<State>) -> Result<(), StoreError>> Work<'_, D, K> {
    fn device(&self) -> &D {
        self.medium.device()
    }

    async fn erase(&self, mut order: SanitizeOperation) -> Result<(), EarlyEnd> {
        while order.pass < order.method.passes() {
            match order.method {
                Method::CryptographicErase => self.lose_key().await?,
                Method::Overwrite { .. } | Method::BlockErase => self.pass(&mut order).await?,
            }
            // A pass counts as complete only after its last block.
            (order.pass, order.at) = (order.pass + 1, Lba(0));
            self.note(&order).await?;
        }
        // The content is unrecoverable already, so its space can be freed.
        if keeps_holes(&order.method, self.medium) || order.method == Method::CryptographicErase {
            self.discard_all().await?;
        }
        Ok(())
    }

    async fn lose_key(&self) -> Result<(), IoError> {
        match &self.sanitize.sanitizer {
            Some(sanitizer) => sanitizer.replace_key().await,
            // Not reached without a sanitizer, which alone offers the operation.
            None => Err(IoError::new(IoErrorKind::Unsupported, EVERYTHING)),
        }
    }

    /// Writes every block once, from the stored position on; a unit that grows meanwhile is written up to its new end.
    async fn pass(&self, order: &mut SanitizeOperation) -> Result<(), EarlyEnd> {
        let block_bytes = self.device().geometry().block_bytes;
        let keeps_holes = keeps_holes(&order.method, self.medium);
        let piece_blocks = PIECE_BYTES / u64::from(block_bytes);
        // Computed once per pass; the pieces of one pass are identical.
        let pattern = order.method.block(order.pass, block_bytes as usize);
        assert!(piece_blocks > 0, "a block is shorter than a piece");
        let piece = repeated(&pattern, piece_blocks);
        let mut kept = order.at;
        loop {
            // Read anew in each round, since the device may grow.
            let geometry = self.device().geometry();
            let rest = Blocks(geometry.blocks.0.saturating_sub(order.at.0));
            if rest.0 == 0 {
                return Ok(());
            }
            if self.sanitize.is_stopping() {
                self.note(order).await?;
                return Err(EarlyEnd::Stopped);
            }
            let rest = Extent { start: order.at, len: rest };
            let run =
                // Without holes to keep, the device is not queried.
                if keeps_holes { self.device().run(rest).await? } else { block::Run { extent: rest, mapped: true } };
            let begins = run.extent.start == order.at && !run.extent.is_empty();
            assert!(begins && rest.contains(run.extent), "a device tells a run from the first block on");
            if run.mapped {
                let len = run.extent.len.0.min(piece_blocks);
                let data = piece.slice(..(len * u64::from(block_bytes)) as usize);
                let _: Written = self.device().write(order.at, data).await?;
                order.at = order.at + Blocks(len);
            } else {
                order.at = run.extent.end();
            }
            // Progress is published for each piece but stored only at intervals, because a store flushes the device.
            self.sanitize.advance(order);
            let apart = (geometry.bytes() / KEEP_PARTS).max(KEEP_BYTES) / u64::from(block_bytes);
            // No underflow: the position only grows.
            if order.at.0 - kept.0 >= apart {
                self.note(order).await?;
                kept = order.at;
            }
        }
    }

    /// Stores the progress, from which a restart resumes.
    async fn note(&self, order: &SanitizeOperation) -> Result<(), IoError> {
        // The writes must be stable before the progress that counts them.
        let _: Stable = self.device().flush(Written::attest()).await?;
        self.sanitize.advance(order);
        // Progress that cannot be stored is repeated after a restart; a store that is gone shows up as an error of the
        // device.
        let _ = (self.keep)(None).await;
        Ok(())
    }

    /// Discards all blocks.
    async fn discard_all(&self) -> Result<(), IoError> {
        let geometry = self.device().geometry();
        let most = DISCARD_BYTES / u64::from(geometry.block_bytes);
        let mut at = Lba(0);
        while at.0 < geometry.blocks.0 {
            let extent = Extent { start: at, len: Blocks(most.min(geometry.blocks.0 - at.0)) };
            // Discarded in pieces, so that one request does not occupy the device for the whole unit.
            let _: Written = self.device().discard(extent).await?;
            at = extent.end();
        }
        self.device().flush(Written::attest()).await.map(drop)
    }
}
