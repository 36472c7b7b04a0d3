//! Locating a disk in its enclosure: the LED of its slot, or a pattern of reads that makes its activity LED blink.

use crate::inspect;
use block::{BlockDevice, Extent};
use model::{DiskName, Refusal, RemoteAddress, code};
use shard::World;
use std::io;
use std::time::Duration;

/// Longest duration of blinking, in seconds.
pub(crate) const BLINK_SECONDS_MAX: u64 = 600;

/// Length of a phase of reads, and of the pause after it.
const BEAT: Duration = Duration::from_millis(500);

/// Blocks of one read.
const READ_BLOCKS: u64 = 16;

/// Switches the locate LED of the disk on or off.
///
/// *Errors*: `DISK_NO_LIGHT` if no LED is known; otherwise the error of the system.
pub(crate) fn light<W: World>(world: &W, disk: &DiskName, path: &str, on: bool) -> Result<(), Refusal> {
    let is_remote = RemoteAddress::is_remote(path);
    // This machine has no control over the LEDs of a remote disk.
    let lit = if is_remote { Err(io::ErrorKind::Unsupported.into()) } else { world.locate_disk(path, on) };
    lit.map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::Unsupported => Refusal::new(
            code::DISK_NO_LIGHT,
            format!("disk {disk} has no known locate light"),
            format!("use its activity light: blockyard disk locate {disk} --blink"),
        ),
        _ => inspect::unreadable(path, &error),
    })
}

/// Reads the disk in a pattern for `seconds`, at most [`BLINK_SECONDS_MAX`], so that its activity LED blinks. Changes
/// nothing.
pub(crate) async fn blink<W: World>(world: &W, disk: &impl BlockDevice, seconds: u64) {
    let until = world.now() + Duration::from_secs(seconds.min(BLINK_SECONDS_MAX));
    // At least one, because the place is computed modulo this.
    let places = (disk.geometry().blocks.0 / READ_BLOCKS).max(1);
    let mut place = 0;
    while world.now() < until {
        let beat = world.now() + BEAT;
        while world.now() < beat {
            // Long seeks, so that the disk's cache does not answer and the activity LED stays lit.
            place = (place + places / 3 + 1) % places;
            if disk.read(Extent::new(place * READ_BLOCKS, READ_BLOCKS)).await.is_err() {
                // A failed read lights the LED as well; the pause keeps a failing disk from being read in a tight loop.
                world.sleep(BEAT / 10).await;
            }
        }
        world.sleep(BEAT).await;
    }
}
