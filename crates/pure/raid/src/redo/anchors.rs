//! Reading of anchors from a device's two slots.

use crate::error::Rejected;
use crate::on_disk::anchor::{Anchor, WRITTEN_BLOCKS};
use crate::on_disk::area::Area;
use block::{BlockDevice, Blocks, Extent, IoError, Rope};
use std::cmp::Reverse;

/// Returns the newest valid anchor on `device`.
pub(crate) async fn newest_on<D: BlockDevice>(device: &D) -> Result<Anchor, Rejected> {
    newest_of(async |extent| device.read(extent).await).await
}

/// Returns the newest valid anchor among those that `read` gives of a member.
pub(crate) async fn newest_of(read: impl AsyncFn(Extent) -> Result<Rope, IoError>) -> Result<Anchor, Rejected> {
    anchors_of(read).await.map(|mut anchors| anchors.swap_remove(0))
}

/// Returns the one or two valid anchors of a member, the newest first; `Blank` where there is none, `Unreadable`
/// where both slots fail to read.
pub(crate) async fn anchors_of(read: impl AsyncFn(Extent) -> Result<Rope, IoError>) -> Result<Vec<Anchor>, Rejected> {
    let slot = async |slot| {
        let extent = Extent { start: Area::anchor(slot), len: Blocks(WRITTEN_BLOCKS) };
        read(extent).await.map(|rope| Anchor::parse(&rope.into_view()))
    };
    // One readable slot suffices: the other may have been torn by the write that a power cut interrupted.
    match (slot(0).await, slot(1).await) {
        (Err(error), Err(_)) => Err(Rejected::Unreadable(error)),
        (a, b) => {
            let mut found: Vec<Anchor> = [a.ok().flatten(), b.ok().flatten()].into_iter().flatten().collect();
            found.sort_by_key(|anchor| Reverse(anchor.age()));
            if found.is_empty() { Err(Rejected::Blank) } else { Ok(found) }
        }
    }
}
