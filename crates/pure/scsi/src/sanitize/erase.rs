//! The work of SANITIZE: block by block, and on from where it was kept last.

use super::{Method, Sanitize, Sanitizing, State};
use crate::keeper::NotKept;
use crate::medium::Medium;
use crate::medium::write_same::repeated;
use crate::task_set::EVERYTHING;
use block::{BlockDevice, Blocks, Extent, IoError, IoErrorKind, Lba, Stable, Written};

/// How much is written at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// How much is given back at a time.
const DISCARD_BYTES: u64 = 1 << 30;
/// How often it is kept how far the work is, at the least and for small units: in bytes, and in parts of a pass.
const KEEP_BYTES: u64 = 1 << 30;
const KEEP_PARTS: u64 = 64;

/// Why the work has ended before its end.
enum Halt {
    /// By order of the unit's owner.
    Stopped,
    Failed(IoError),
}

impl From<IoError> for Halt {
    fn from(error: IoError) -> Self {
        Self::Failed(error)
    }
}

/// True when blocks without a place stay so: they read as what the method leaves.
pub(super) fn keeps_holes<D: BlockDevice>(method: &Method, medium: &Medium<D>) -> bool {
    method.leaves_zeros() && medium.reads_zeros_where_unmapped(medium.geometry())
}

impl Sanitize {
    /// Does what a SANITIZE has ordered that is under way, if one is: now, or before the unit was restored. `keep` has survive what
    /// the unit keeps, with the state that it is given or else the one that holds. Who waits hears of the end.
    ///
    /// *Durability*: what it has done, and that it is done or has failed, survives power loss when it returns; where the device is
    /// gone, a restart goes on.
    pub(crate) async fn carry_out<D: BlockDevice>(
        &self,
        medium: &Medium<D>,
        keep: impl AsyncFn(Option<State>) -> Result<(), NotKept>,
    ) {
        let State::Running(order) = self.state() else { return };
        let _at_work = self.begin_work();
        let failed = State::Failed { exits: order.exits };
        let end = match (Work { sanitize: self, medium, keep: &keep }).erase(order).await {
            Ok(()) => State::Idle,
            Err(Halt::Stopped) => return,
            // When the device is there again, the work goes on.
            Err(Halt::Failed(error)) if error.kind == IoErrorKind::Gone => return self.install(failed),
            Err(Halt::Failed(_)) => failed.clone(),
        };
        // Nobody hears of an end that a restart would not remember.
        let kept = keep(Some(end.clone())).await;
        self.install(if kept.is_ok() { end } else { failed });
    }
}

/// The work of one order on one unit.
struct Work<'a, D, K> {
    sanitize: &'a Sanitize,
    medium: &'a Medium<D>,
    keep: &'a K,
}

impl<D: BlockDevice, K: AsyncFn(Option<State>) -> Result<(), NotKept>> Work<'_, D, K> {
    fn device(&self) -> &D {
        self.medium.device()
    }

    async fn erase(&self, mut order: Sanitizing) -> Result<(), Halt> {
        while order.pass < order.method.passes() {
            match order.method {
                Method::CryptographicErase => self.lose_key().await?,
                Method::Overwrite { .. } | Method::BlockErase => self.pass(&mut order).await?,
            }
            (order.pass, order.at) = (order.pass + 1, Lba(0));
            self.note(&order).await?;
        }
        // What lies there cannot be read any more, so it need not keep its places.
        if keeps_holes(&order.method, self.medium) || order.method == Method::CryptographicErase {
            self.give_back().await?;
        }
        Ok(())
    }

    async fn lose_key(&self) -> Result<(), IoError> {
        match &self.sanitize.sanitizer {
            Some(sanitizer) => sanitizer.replace_key().await,
            None => Err(IoError::new(IoErrorKind::Unsupported, EVERYTHING)),
        }
    }

    /// Writes every block once, from where the order stands; a unit that grows meanwhile is written to its new end.
    async fn pass(&self, order: &mut Sanitizing) -> Result<(), Halt> {
        let block_bytes = self.device().geometry().block_bytes;
        let keeps_holes = keeps_holes(&order.method, self.medium);
        let piece_blocks = PIECE_BYTES / u64::from(block_bytes);
        let pattern = order.method.block(order.pass, block_bytes as usize);
        assert!(piece_blocks > 0, "a block is shorter than a piece");
        let piece = repeated(&pattern, piece_blocks);
        let mut kept = order.at;
        loop {
            let geometry = self.device().geometry();
            let rest = Blocks(geometry.blocks.0.saturating_sub(order.at.0));
            if rest.0 == 0 {
                return Ok(());
            }
            if self.sanitize.is_stopping() {
                self.note(order).await?;
                return Err(Halt::Stopped);
            }
            let rest = Extent { start: order.at, len: rest };
            let run =
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
            self.sanitize.advance(order);
            let apart = (geometry.bytes() / KEEP_PARTS).max(KEEP_BYTES) / u64::from(block_bytes);
            if order.at.0 - kept.0 >= apart {
                self.note(order).await?;
                kept = order.at;
            }
        }
    }

    /// A restart goes on from here.
    async fn note(&self, order: &Sanitizing) -> Result<(), IoError> {
        let _: Stable = self.device().flush(Written::attest()).await?;
        self.sanitize.advance(order);
        // What cannot be kept is done once more; when nothing can, the device says so itself.
        let _ = (self.keep)(None).await;
        Ok(())
    }

    /// No block has a place any more.
    async fn give_back(&self) -> Result<(), IoError> {
        let geometry = self.device().geometry();
        let most = DISCARD_BYTES / u64::from(geometry.block_bytes);
        let mut at = Lba(0);
        while at.0 < geometry.blocks.0 {
            let extent = Extent { start: at, len: Blocks(most.min(geometry.blocks.0 - at.0)) };
            let _: Written = self.device().discard(extent).await?;
            at = extent.end();
        }
        self.device().flush(Written::attest()).await.map(drop)
    }
}
