//! Anchors as they are found on devices.

use crate::error::LeftOut;
use crate::on_disk::anchor::{Anchor, WRITTEN_BLOCKS};
use crate::on_disk::area::Area;
use block::{BlockDevice, Blocks, Extent, IoError, Rope};
use std::cmp::Reverse;

pub(crate) async fn newest_on<D: BlockDevice>(device: &D) -> Result<Anchor, LeftOut> {
    newest_of(async |extent| device.read(extent).await).await
}

/// The newest anchor in what `read` gives of a member.
pub(crate) async fn newest_of(read: impl AsyncFn(Extent) -> Result<Rope, IoError>) -> Result<Anchor, LeftOut> {
    anchors_of(read).await.map(|mut anchors| anchors.swap_remove(0))
}

/// The anchors in what `read` gives of a member, one or both, the newest first.
pub(crate) async fn anchors_of(read: impl AsyncFn(Extent) -> Result<Rope, IoError>) -> Result<Vec<Anchor>, LeftOut> {
    let slot = async |slot| {
        let extent = Extent { start: Area::anchor(slot), len: Blocks(WRITTEN_BLOCKS) };
        read(extent).await.map(|rope| Anchor::parse(&rope.into_view()))
    };
    match (slot(0).await, slot(1).await) {
        (Err(error), Err(_)) => Err(LeftOut::Unreadable(error)),
        (a, b) => {
            let mut found: Vec<Anchor> = [a.ok().flatten(), b.ok().flatten()].into_iter().flatten().collect();
            found.sort_by_key(|anchor| Reverse(anchor.age()));
            if found.is_empty() { Err(LeftOut::Blank) } else { Ok(found) }
        }
    }
}
