//! Resync after an unclean stop: makes parity and mirrors consistent with the data. Also the check without repair.

use crate::array::Array;
use crate::path::Path;
use crate::status::{Progress, Verified};
use block::{BlockDevice, IoError};
use std::ops::Range;

impl<D: BlockDevice + 'static> Array<D> {
    /// Makes parity and mirrors of `stripes` agree with the data, which they may not after an unclean stop.
    ///
    /// Data is taken as correct; of mirrors the first one in service. Stripes that cannot be judged because data is
    /// lost are left as they are and counted. The host is served meanwhile, see [`Array::mark_suspect`]. `pace` is
    /// called after every few stripes.
    pub async fn resync(&self, stripes: Range<u64>, pace: impl AsyncFnMut(Progress)) -> Result<Verified, IoError> {
        match self.path() {
            Path::Plain(array) => array.resync(stripes, pace).await,
            // Replaying the log leaves nothing to resync.
            _ => Ok(Verified { stripes: stripes.end - stripes.start, ..Verified::default() }),
        }
    }

    /// Counts the stripes whose parity or mirrors disagree with the data. Repairs nothing.
    pub async fn scrub_check(&self, stripes: Range<u64>, pace: impl AsyncFnMut(Progress)) -> Result<Verified, IoError> {
        match self.path() {
            Path::Plain(array) => array.scrub_check(stripes, pace).await,
            _ => self.scrub_counts(stripes, pace).await,
        }
    }
}
