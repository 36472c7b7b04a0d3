//! Reads of redundant metadata around bad blocks: an unreadable block costs no more than itself.

use crate::{BlockDevice, Buf, Extent, IoError, IoErrorKind, View};

/// Reads `extent`. Each piece of `step` blocks that cannot be read because of a medium error is returned as zeros,
/// together with the error of the first attempt.
///
/// *Shape*: `extent` is a whole number of pieces. *Errors*: any kind but `Medium`.
pub async fn read_around<D: BlockDevice>(
    device: &D,
    extent: Extent,
    step: u64,
) -> Result<(View, Option<IoError>), IoError> {
    // Fast path: one read of the whole extent. Only after a medium error is it read piece by piece.
    let error = match device.read(extent).await {
        Ok(data) => return Ok((data.into_view(), None)),
        Err(error) if error.kind == IoErrorKind::Medium => error,
        Err(error) => return Err(error),
    };
    let bytes = |blocks: u64| {
        let bytes = blocks * u64::from(device.geometry().block_bytes);
        usize::try_from(bytes).expect("what is read at once fits in memory")
    };
    // Pieces that cannot be read stay zero.
    let mut data = Buf::zeroed(bytes(extent.len.0));
    // The shape is a whole number of pieces, so `chunks_exact_mut` leaves no remainder unread.
    for (piece, into) in (0..).zip(data.chunks_exact_mut(bytes(step))) {
        match device.read(Extent::new(extent.start.0 + piece * step, step)).await {
            Ok(found) => into.copy_from_slice(&found.into_view()),
            Err(error) if error.kind == IoErrorKind::Medium => {}
            Err(error) => return Err(error),
        }
    }
    Ok((data.freeze(), Some(error)))
}
