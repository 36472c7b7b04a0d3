//! Finding a disk in its rack: the light of its slot, or a rhythm of reads that makes its own light blink.

use crate::inspect;
use block::{BlockDevice, Extent};
use model::{DiskName, Refusal, RemoteAddress, code};
use shard::World;
use std::io;
use std::time::Duration;

/// The longest blinking.
pub(crate) const BLINK_SECONDS_MAX: u64 = 600;

/// Reads for so long, then nothing for so long.
const BEAT: Duration = Duration::from_millis(500);

/// Blocks of one read.
const READ_BLOCKS: u64 = 16;

/// The light beside the disk is on, or off.
///
/// *Errors*: `DISK_NO_LIGHT` when none is known; what the system says.
pub(crate) fn light<W: World>(world: &W, disk: &DiskName, path: &str, on: bool) -> Result<(), Refusal> {
    let is_remote = RemoteAddress::is_remote(path);
    let lit = if is_remote { Err(io::ErrorKind::Unsupported.into()) } else { world.locate_disk(path, on) };
    lit.map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::Unsupported => Refusal::new(
            code::DISK_NO_LIGHT,
            format!("no light beside disk {disk} is known"),
            format!("let its own light blink with blockyard disk locate {disk} --blink"),
        ),
        _ => inspect::unreadable(path, &error),
    })
}

/// The disk was read in a rhythm for so long: that changes nothing, and its light blinks.
pub(crate) async fn blink<W: World>(world: &W, disk: &impl BlockDevice, seconds: u64) {
    let until = world.now() + Duration::from_secs(seconds.min(BLINK_SECONDS_MAX));
    let places = (disk.geometry().blocks.0 / READ_BLOCKS).max(1);
    let mut place = 0;
    while world.now() < until {
        let beat = world.now() + BEAT;
        while world.now() < beat {
            // Far jumps, so that neither the disk's cache nor its heads make it too easy.
            place = (place + places / 3 + 1) % places;
            if disk.read(Extent::new(place * READ_BLOCKS, READ_BLOCKS)).await.is_err() {
                // A place that cannot be read blinks as well, but must not be asked without end.
                world.sleep(BEAT / 10).await;
            }
        }
        world.sleep(BEAT).await;
    }
}
