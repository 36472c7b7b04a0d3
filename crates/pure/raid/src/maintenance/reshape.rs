//! Moving the blocks of an array to where the layout with one member more has them.

use crate::array::Array;
use crate::error::GrowError;
use crate::maintenance::join::settle_joined;
use crate::path::Path;
use crate::protected::Protected;
use crate::status::Progress;
use block::BlockDevice;
use std::cell::Cell;
use std::rc::Rc;

/// Lets the next call go on, however this one ends.
struct Running<'a>(&'a Cell<bool>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<D: BlockDevice + 'static> Array<D> {
    /// The array is laid out over all of its members, and has the blocks that it gains by that. At once where no
    /// reshape is under way.
    ///
    /// Hosts are served meanwhile. `pace` is called after every few stripes; the reshape goes on when it is ready. When
    /// it is dropped, or after a crash, the reshape goes on where it was with the next call. Members that fail
    /// meanwhile are replaced after it. *Errors*: see [`GrowError`]. *Durability*: all of it, when it returns.
    pub async fn reshape(&self, mut pace: impl AsyncFnMut(Progress)) -> Result<(), GrowError> {
        let Path::Reshaping(reshaping) = self.path() else { return Ok(()) };
        let array = reshaping.new.clone();
        if array.commands.growing.get() || reshaping.runs.replace(true) {
            return Err(GrowError::Busy);
        }
        let _running = Running(&reshaping.runs);
        let position = |array: &Protected<D>| array.checksums.pages.position.get();
        if position(&array).is_some_and(|reshape| reshape.rows == 0) {
            settle_joined(&array).await?;
        }
        while reshaping.move_step().await? {
            pace(reshaping.progress()).await;
        }
        let (background, current) = (array.background.clone(), self.0.clone());
        let work = async move {
            array.log.begin_checkpoint().await;
            // All is where the new layout has it, so nobody misses the old one.
            array.checksums.pages.position.set(None);
            let ended = array.log.run_checkpoint().await;
            array.log.state.end_checkpoint();
            if ended.is_ok() {
                let moved = array.reshaped(array.layout, array.members.places().into());
                current.replace(Path::Protected(Rc::new(moved)));
            }
            ended
        };
        Ok(background.finish(work).await?)
    }
}
