//! Reshape: moves the blocks of an array into the layout with one more member.

use crate::array::Array;
use crate::error::GrowError;
use crate::maintenance::join::settle_joined;
use crate::path::Path;
use crate::protected::Protected;
use crate::status::Progress;
use block::BlockDevice;
use std::cell::Cell;
use std::rc::Rc;

/// Clears the running flag when a call of [`Array::reshape`] ends.
struct Running<'a>(&'a Cell<bool>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<D: BlockDevice + 'static> Array<D> {
    /// Moves the array into the layout over all of its members, and adds the blocks gained. Returns at once where no
    /// reshape is in progress.
    ///
    /// Hosts are served during the reshape. `pace` is called after every few stripes; the reshape continues when it
    /// is ready. When this future is dropped, or after a crash, the next call continues where it stopped. Members
    /// that fail during a reshape are replaced after it. *Errors*: see [`GrowError`]. *Durability*: all of it, when
    /// it returns.
    pub async fn reshape(&self, mut pace: impl AsyncFnMut(Progress)) -> Result<(), GrowError> {
        let Path::Reshaping(reshaping) = self.path() else { return Ok(()) };
        let array = reshaping.new.clone();
        // Two movers would fight over the position.
        if array.commands.growing.get() || reshaping.runs.replace(true) {
            return Err(GrowError::Busy);
        }
        let _running = Running(&reshaping.runs);
        let position = |array: &Protected<D>| array.checksums.pages.position.get();
        // The first call after `add_member`: second copies have moved to the new member.
        if position(&array).is_some_and(|reshape| reshape.rows == 0) {
            settle_joined(&array).await?;
        }
        while reshaping.move_step().await? {
            pace(reshaping.progress()).await;
        }
        let (background, current) = (array.background.clone(), self.0.clone());
        let work = async move {
            array.log.begin_checkpoint().await;
            // The new layout is complete, so a crash from here on needs no trace of the old one.
            array.checksums.pages.position.set(None);
            let ended = array.log.run_checkpoint().await;
            array.log.state.end_checkpoint();
            if ended.is_ok() {
                // The path is switched only after the anchor is stable: hosts see the new size from then on.
                let moved = array.reshaped(array.layout, array.members.places().into());
                current.replace(Path::Protected(Rc::new(moved)));
            }
            ended
        };
        Ok(background.finish(work).await?)
    }
}
