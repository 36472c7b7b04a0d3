//! The simplest group that survives losses: every member holds everything.

use crate::window::Window;
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use std::cell::{Cell, RefCell};

/// A group in which every member that is there holds the same.
pub(crate) struct Mirror<D> {
    geometry: Cell<Geometry>,
    members: RefCell<Vec<Option<std::rc::Rc<Window<D>>>>>,
}

impl<D: BlockDevice> Mirror<D> {
    pub(crate) fn new(members: Vec<Option<Window<D>>>, optimal_bytes: u32) -> Self {
        let members: Vec<_> = members.into_iter().map(|member| member.map(std::rc::Rc::new)).collect();
        let geometry = members.iter().flatten().next().expect("a mirror needs a member").geometry();
        Self { geometry: Cell::new(Geometry { optimal_bytes, ..geometry }), members: RefCell::new(members) }
    }

    /// The member at `position` is not used any more.
    pub(crate) fn drop_member(&self, position: usize) {
        self.members.borrow_mut()[position] = None;
    }

    /// It shows so many blocks of its members.
    pub(crate) fn show(&self, blocks: Blocks) {
        self.geometry.set(Geometry { blocks, ..self.geometry.get() });
    }

    fn present(&self) -> Vec<std::rc::Rc<Window<D>>> {
        self.members.borrow().iter().flatten().cloned().collect()
    }

    fn none_left() -> IoError {
        IoError::new(IoErrorKind::Gone, Extent::default())
    }
}

impl<D: BlockDevice> BlockDevice for Mirror<D> {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let member = self.present().into_iter().next().ok_or_else(Self::none_left)?;
        member.read(extent).await
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let mut done = Err(Self::none_left());
        for member in self.present() {
            done = Ok(member.write(start, data.clone()).await?);
        }
        done
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let mut done = Err(Self::none_left());
        for member in self.present() {
            done = Ok(member.write_fresh(start, data.clone()).await?);
        }
        done
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        let mut done = Err(Self::none_left());
        for member in self.present() {
            done = Ok(member.flush(Written::attest()).await?);
        }
        done
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let mut done = Err(Self::none_left());
        for member in self.present() {
            done = Ok(member.discard(extent).await?);
        }
        done
    }
}
