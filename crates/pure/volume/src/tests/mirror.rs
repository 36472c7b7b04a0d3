//! Simple groups for tests: mirrors and stripes.

use crate::layout::BLOCK_BYTES;
use crate::window::Window;
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Group in which all present members have the same content, or a striped group, which needs all members.
pub(crate) struct Mirror<D> {
    geometry: Cell<Geometry>,
    members: RefCell<Vec<Option<Rc<Window<D>>>>>,
    /// Chunk size in blocks where the group is striped.
    chunk: Option<u64>,
}

impl<D: BlockDevice> Mirror<D> {
    pub(crate) fn new(members: Vec<Option<Window<D>>>, optimal_bytes: u32) -> Self {
        let members: Vec<_> = members.into_iter().map(|member| member.map(Rc::new)).collect();
        let geometry = members.iter().flatten().next().expect("a mirror needs a member").geometry();
        let geometry = Cell::new(Geometry { optimal_bytes, ..geometry });
        Self { geometry, members: RefCell::new(members), chunk: None }
    }

    /// Creates a RAID-0 group with chunks of `chunk_bytes`.
    pub(crate) fn striped(members: Vec<Option<Window<D>>>, chunk_bytes: u32) -> Self {
        let (count, chunk) = (members.len() as u64, u64::from(chunk_bytes / BLOCK_BYTES));
        let stripe = Self { chunk: Some(chunk), ..Self::new(members, chunk_bytes * count as u32) };
        let of_each = stripe.geometry.get().blocks.0 / chunk * chunk;
        stripe.show(Blocks(of_each * count));
        stripe
    }

    /// Stops using the member at `position`.
    pub(crate) fn drop_member(&self, position: usize) {
        self.members.borrow_mut()[position] = None;
    }

    /// Sets the number of blocks of each member that the group uses.
    pub(crate) fn show(&self, blocks: Blocks) {
        self.geometry.set(Geometry { blocks, ..self.geometry.get() });
    }

    fn present(&self) -> Vec<Rc<Window<D>>> {
        self.members.borrow().iter().flatten().cloned().collect()
    }

    fn none_left() -> IoError {
        IoError::new(IoErrorKind::Gone, Extent::default())
    }

    /// Members that hold each part of an extent, and the location there.
    fn parts(&self, extent: Extent) -> Vec<(Vec<Rc<Window<D>>>, Extent)> {
        let members = self.present();
        let Some(chunk) = self.chunk else { return vec![(members, extent)] };
        let (mut parts, mut at) = (Vec::new(), extent.start.0);
        while at < extent.end().0 {
            let (number, row) = (at / chunk, at % chunk);
            let blocks = (chunk - row).min(extent.end().0 - at);
            let count = members.len() as u64;
            let member = members[(number % count) as usize].clone();
            parts.push((vec![member], Extent::new(number / count * chunk + row, blocks)));
            at += blocks;
        }
        parts
    }

    async fn write_parts(&self, start: Lba, data: View, fresh: bool) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        let (mut done, mut at) = (Err(Self::none_left()), 0);
        for (members, part) in self.parts(extent) {
            let bytes = part.len.0 as usize * BLOCK_BYTES as usize;
            for member in members {
                let data = data.slice(at..at + bytes);
                done = Ok(if fresh {
                    member.write_unlogged(part.start, data).await?
                } else {
                    member.write(part.start, data).await?
                });
            }
            at += bytes;
        }
        done
    }
}

impl<D: BlockDevice> BlockDevice for Mirror<D> {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let mut rope = Rope::new();
        for (members, part) in self.parts(extent) {
            let member = members.into_iter().next().ok_or_else(Self::none_left)?;
            rope.append(member.read(part).await?);
        }
        Ok(rope)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.write_parts(start, data, false).await
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.write_parts(start, data, true).await
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
        for (members, part) in self.parts(extent) {
            for member in members {
                done = Ok(member.discard(part).await?);
            }
        }
        done
    }
}
