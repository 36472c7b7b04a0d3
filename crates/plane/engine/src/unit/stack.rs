//! Device stack of a unit of a pool: its cache and limits, and the layers inserted above them.
//!
//! A layer is a device over a device, for example one that replicates writes to another site. It is boxed and looked up
//! for each operation; a unit without layers pays one check for it. Layers see blocks of 4096 bytes whatever block size
//! hosts see, and they see writes before these are acknowledged.

use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Run, Space, Stable, View, Written};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, IoError>> + 'a>>;

/// Object-safe form of [`BlockDevice`], with the operations that units use. Every device implements it.
pub trait Layer {
    /// See [`BlockDevice::geometry`].
    fn geometry(&self) -> Geometry;
    /// See [`BlockDevice::read`].
    fn read(&self, extent: Extent) -> Pending<'_, Rope>;
    /// See [`BlockDevice::write`].
    fn write(&self, start: Lba, data: View) -> Pending<'_, Written>;
    /// See [`BlockDevice::write_atomic`].
    fn write_atomic(&self, start: Lba, data: View) -> Pending<'_, Written>;
    /// See [`BlockDevice::atomic_bytes_max`].
    fn atomic_bytes_max(&self) -> u32;
    /// See [`BlockDevice::try_read`].
    fn read_at_once(&self, extent: Extent) -> Option<Result<Rope, IoError>>;
    /// See [`BlockDevice::try_write`].
    fn write_at_once(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>>;
    /// See [`BlockDevice::flush`].
    fn flush(&self, after: Written) -> Pending<'_, Stable>;
    /// See [`BlockDevice::discard`].
    fn discard(&self, extent: Extent) -> Pending<'_, Written>;
    /// See [`BlockDevice::run`].
    fn run(&self, extent: Extent) -> Pending<'_, Run>;
    /// See [`BlockDevice::space`].
    fn space(&self) -> Option<Space>;
}

impl<D: BlockDevice> Layer for D {
    fn geometry(&self) -> Geometry {
        BlockDevice::geometry(self)
    }

    fn read(&self, extent: Extent) -> Pending<'_, Rope> {
        Box::pin(BlockDevice::read(self, extent))
    }

    fn write(&self, start: Lba, data: View) -> Pending<'_, Written> {
        Box::pin(BlockDevice::write(self, start, data))
    }

    fn write_atomic(&self, start: Lba, data: View) -> Pending<'_, Written> {
        Box::pin(BlockDevice::write_atomic(self, start, data))
    }

    fn atomic_bytes_max(&self) -> u32 {
        BlockDevice::atomic_bytes_max(self)
    }

    fn read_at_once(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        BlockDevice::try_read(self, extent)
    }

    fn write_at_once(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        BlockDevice::try_write(self, start, data)
    }

    fn flush(&self, after: Written) -> Pending<'_, Stable> {
        Box::pin(BlockDevice::flush(self, after))
    }

    fn discard(&self, extent: Extent) -> Pending<'_, Written> {
        Box::pin(BlockDevice::discard(self, extent))
    }

    fn run(&self, extent: Extent) -> Pending<'_, Run> {
        Box::pin(BlockDevice::run(self, extent))
    }

    fn space(&self) -> Option<Space> {
        BlockDevice::space(self)
    }
}

/// Device stack of a unit of a pool.
pub struct Stack<D> {
    device: Rc<D>,
    /// Topmost layer; `None` if no layer was inserted.
    top: RefCell<Option<Rc<dyn Layer>>>,
}

impl<D: BlockDevice + 'static> Stack<D> {
    /// Creates a stack without layers.
    pub fn new(device: D) -> Self {
        Self { device: Rc::new(device), top: RefCell::default() }
    }

    /// Device below all layers.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Inserts a layer above all others: `layer` builds it over the present top. Commands that start from now on pass
    /// through it; commands in flight do not.
    pub fn insert(&self, layer: impl FnOnce(Rc<dyn Layer>) -> Rc<dyn Layer>) {
        // Built over the present top, so the layer inserted last sees a write first.
        let below = self.top.take().unwrap_or_else(|| self.device.clone());
        let layer = layer(below);
        // Hosts know the geometry already; a layer must not change it below them.
        assert_eq!(
            layer.geometry().block_bytes,
            BlockDevice::geometry(&*self.device).block_bytes,
            "a layer keeps the block size"
        );
        let (above, below) = (layer.geometry().blocks, BlockDevice::geometry(&*self.device).blocks);
        assert_eq!(above, below, "a layer keeps the size");
        // No await since the top was taken, so no command has passed without the layers below.
        self.top.replace(Some(layer));
    }

    fn top(&self) -> Option<Rc<dyn Layer>> {
        // A clone keeps the layer alive until the operation ends, even if another one is inserted.
        self.top.borrow().clone()
    }
}

impl<D: BlockDevice + 'static> BlockDevice for Stack<D> {
    fn geometry(&self) -> Geometry {
        match self.top() {
            Some(top) => top.geometry(),
            None => BlockDevice::geometry(&*self.device),
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        match self.top() {
            Some(top) => top.read(extent).await,
            None => BlockDevice::read(&*self.device, extent).await,
        }
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        match self.top() {
            Some(top) => top.write(start, data).await,
            None => BlockDevice::write(&*self.device, start, data).await,
        }
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        match self.top() {
            Some(top) => top.write_atomic(start, data).await,
            None => BlockDevice::write_atomic(&*self.device, start, data).await,
        }
    }

    fn atomic_bytes_max(&self) -> u32 {
        match self.top() {
            Some(top) => top.atomic_bytes_max(),
            None => BlockDevice::atomic_bytes_max(&*self.device),
        }
    }

    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        match self.top() {
            Some(top) => top.read_at_once(extent),
            None => BlockDevice::try_read(&*self.device, extent),
        }
    }

    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        match self.top() {
            Some(top) => top.write_at_once(start, data),
            None => BlockDevice::try_write(&*self.device, start, data),
        }
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        match self.top() {
            Some(top) => top.flush(after).await,
            None => BlockDevice::flush(&*self.device, after).await,
        }
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        match self.top() {
            Some(top) => top.discard(extent).await,
            None => BlockDevice::discard(&*self.device, extent).await,
        }
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        match self.top() {
            Some(top) => top.run(extent).await,
            None => BlockDevice::run(&*self.device, extent).await,
        }
    }

    fn space(&self) -> Option<Space> {
        match self.top() {
            Some(top) => top.space(),
            None => BlockDevice::space(&*self.device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::memory::Ram;
    use block::{Blocks, Buf};
    use futures_util::FutureExt;
    use std::cell::Cell;

    /// Layer that counts the blocks written through it.
    struct Tap {
        below: Rc<dyn Layer>,
        written: Rc<Cell<u64>>,
    }

    impl BlockDevice for Tap {
        fn geometry(&self) -> Geometry {
            self.below.geometry()
        }

        async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
            self.below.read(extent).await
        }

        async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
            let extent = BlockDevice::geometry(self).extent_of(start, data.len())?;
            let written = self.below.write(start, data).await?;
            self.written.set(self.written.get() + extent.len.0);
            Ok(written)
        }

        async fn flush(&self, after: Written) -> Result<Stable, IoError> {
            self.below.flush(after).await
        }

        async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
            self.below.discard(extent).await
        }
    }

    fn write(stack: &Stack<Ram>, block: u64, byte: u8) {
        let data = Buf::copy_of(&[byte; 4096]).freeze();
        let written = BlockDevice::write(stack, Lba(block), data).now_or_never().expect("memory answers at once");
        drop(written.expect("the block is there"));
    }

    #[test]
    fn layers_see_what_is_written_after_they_were_inserted_the_last_one_first() {
        let stack = Stack::new(Ram::new(4096, Blocks(16)));
        write(&stack, 0, 1);
        let counts: Vec<Rc<Cell<u64>>> = (0..2).map(|_| Rc::default()).collect();
        for (number, written) in counts.iter().enumerate() {
            stack.insert(|below| Rc::new(Tap { below, written: written.clone() }));
            write(&stack, 1 + number as u64, 2);
        }
        assert_eq!(counts.iter().map(|count| count.get()).collect::<Vec<_>>(), [2, 1]);
        assert!(BlockDevice::try_write(&stack, Lba(3), &[0; 4096]).is_none(), "no write passes a layer by");
        let read = BlockDevice::read(stack.device(), Extent::new(0, 3)).now_or_never().expect("memory answers at once");
        let bytes = read.expect("the blocks are there").into_view();
        assert_eq!([bytes[0], bytes[4096], bytes[8192]], [1, 2, 2], "all of it is in the device below");
    }
}
