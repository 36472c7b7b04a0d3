//! Full copies: what a volume or a snapshot shows, on another device, of this pool or another.

use super::ThinVolume;
use crate::layout::BLOCK_BYTES;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Stable, Written};

/// Blocks that are copied at once.
const PIECE: u64 = 256;
/// Runs that are looked up at once.
const RUNS: usize = 256;

/// How far a copy is, in bytes that take space on the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes that were copied.
    pub bytes: u64,
    /// Bytes of the source that were looked at, holes included.
    pub looked_at_bytes: u64,
    /// Bytes of the source.
    pub total_bytes: u64,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> ThinVolume<D, G> {
    /// `target`, on which nothing was written yet and which reads as zeros, shows what this device shows; holes stay
    /// holes. `progress` hears how far it is; the copy goes on when it is ready, and stops when it answers false.
    ///
    /// A copy of a volume that is written meanwhile is of no instant: copy a snapshot. *Durability*: when it returns.
    /// *Errors*: those of the two devices, in blocks of 4096 bytes; `OutOfRange` when the target is smaller;
    /// `Unsupported` when its blocks are not of 4096 bytes. The target has a part of it then.
    pub async fn copy_to<T: BlockDevice>(
        &self,
        target: &T,
        mut progress: impl AsyncFnMut(Copied) -> bool,
    ) -> Result<Copied, IoError> {
        let all = self.geometry().all();
        if target.geometry().block_bytes != BLOCK_BYTES {
            return Err(IoError::new(IoErrorKind::Unsupported, all));
        }
        target.geometry().admit(all)?;
        let bytes = |blocks: u64| blocks * u64::from(BLOCK_BYTES);
        let mut copied = Copied { total_bytes: bytes(all.len.0), ..Copied::default() };
        let mut at = 0;
        while at < all.len.0 {
            let runs = self.mapped(Extent::new(at, all.len.0 - at), RUNS).await?;
            for run in runs {
                let end = run.extent.end().0;
                while at < end {
                    let here = Extent::new(at, if run.mapped { PIECE.min(end - at) } else { end - at });
                    if run.mapped {
                        let data = self.read(here).await?.into_view();
                        let _: Written = target.write(here.start, data).await?;
                        copied.bytes += bytes(here.len.0);
                    }
                    at = here.end().0;
                    copied.looked_at_bytes = bytes(at);
                    if !progress(copied).await {
                        return Ok(copied);
                    }
                }
            }
        }
        let _: Stable = target.flush(Written::attest()).await?;
        Ok(copied)
    }
}
