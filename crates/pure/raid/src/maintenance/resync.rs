//! Comparing parity and mirrors with the data, and putting them right after an unclean stop.

use crate::array::Array;
use crate::path::Path;
use crate::status::{Progress, Verified};
use block::{BlockDevice, IoError};
use std::ops::Range;

impl<D: BlockDevice + 'static> Array<D> {
    /// Parity and mirrors of `stripes` agree with the data, as after an unclean stop they may not.
    ///
    /// Data is taken for true; of mirrors the first that is in service. What cannot be judged because
    /// data is lost is left as it is and counted. The host is served meanwhile, see
    /// [`Array::mark_suspect`]. `pace` is called after every few stripes.
    pub async fn resync(&self, stripes: Range<u64>, pace: impl AsyncFnMut(Progress)) -> Result<Verified, IoError> {
        match self.path() {
            Path::Plain(array) => array.resync(stripes, pace).await,
            // Nothing is left to be resynced once the log was replayed.
            _ => Ok(Verified { stripes: stripes.end - stripes.start, ..Verified::default() }),
        }
    }

    /// How many of `stripes` have parity or mirrors that disagree with the data. Repairs nothing.
    pub async fn scrub_check(&self, stripes: Range<u64>, pace: impl AsyncFnMut(Progress)) -> Result<Verified, IoError> {
        match self.path() {
            Path::Plain(array) => array.scrub_check(stripes, pace).await,
            _ => self.scrub_counts(stripes, pace).await,
        }
    }
}
