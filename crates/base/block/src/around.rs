//! Reading what several copies are kept of: a block that the medium does not give back costs no more than itself.

use crate::{BlockDevice, Buf, Extent, IoError, IoErrorKind, View};

/// What `extent` holds, with zeros for each piece of `step` blocks that the medium does not give back, and the error where there is one.
///
/// *Shape*: `extent` has whole pieces. *Errors*: any but `Medium`.
pub async fn read_around<D: BlockDevice>(
    device: &D,
    extent: Extent,
    step: u64,
) -> Result<(View, Option<IoError>), IoError> {
    let error = match device.read(extent).await {
        Ok(data) => return Ok((data.into_view(), None)),
        Err(error) if error.kind == IoErrorKind::Medium => error,
        Err(error) => return Err(error),
    };
    let bytes = |blocks: u64| {
        let bytes = blocks * u64::from(device.geometry().block_bytes);
        usize::try_from(bytes).expect("what is read at once fits in memory")
    };
    let mut data = Buf::zeroed(bytes(extent.len.0));
    for (piece, into) in (0..).zip(data.chunks_exact_mut(bytes(step))) {
        match device.read(Extent::new(extent.start.0 + piece * step, step)).await {
            Ok(found) => into.copy_from_slice(&found.into_view()),
            Err(error) if error.kind == IoErrorKind::Medium => {}
            Err(error) => return Err(error),
        }
    }
    Ok((data.freeze(), Some(error)))
}
