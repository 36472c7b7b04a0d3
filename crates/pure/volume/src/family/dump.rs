//! Text dump of a family's map for debugging.

use super::{Family, MapError};
use crate::tree::{Counter, GranuleAddress, Key, Tag};
use block::BlockDevice;
use std::fmt::Write;

/// Appends a line for the head, the log and each entry of the map to `text`.
pub(crate) async fn dump<D, G>(family: &Family<D, G>, text: &mut String) -> Result<(), MapError>
where
    D: BlockDevice + 'static,
    G: BlockDevice + 'static,
{
    let mut line = |args: std::fmt::Arguments<'_>| {
        writeln!(text, "  {args}").expect("a string takes every line");
    };
    line(format_args!("head {:?}", family.head.borrow()));
    {
        let log = family.log.borrow();
        let (from, to, life, pending) = (log.from, log.sequence, log.life, log.pending.len());
        line(format_args!("log blocks {from}..{to}, life {life}, change {}, {pending} pending", log.serial));
    }
    let mut from = Key(0);
    loop {
        let (entries, next) = family.entries(from, Key(u128::MAX)).await?;
        entries.into_iter().for_each(|(key, value)| line(format_args!("{}", describe(key, value))));
        match next {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

fn describe(key: Key, value: u64) -> String {
    let (branch, middle, low) = (key.branch(), key.middle(), key.low());
    let place = GranuleAddress(value);
    match key.tag() {
        Some(Tag::Version) if place.is_data() => {
            let (group, slab, index) = (place.group(), place.slab() & 0x00ff_ffff, place.index());
            format!("volume {branch} granule {middle} epoch {low}: group {group} slab {slab} granule {index}")
        }
        Some(Tag::Version) if place == GranuleAddress::LOST => {
            format!("volume {branch} granule {middle} epoch {low}: lost")
        }
        Some(Tag::Version) => format!("volume {branch} granule {middle} epoch {low}: hole"),
        Some(Tag::Taken) => {
            format!("group {} slab {} granules from {}: {value:#018x}", middle >> 24, middle & 0x00ff_ffff, low * 64)
        }
        Some(Tag::Progress) => {
            format!("volume {branch}: cleaning {} is at granule {}", value & 0x00ff_ffff, value >> 24)
        }
        Some(Tag::Counter) => format!("volume {branch} epoch {low}: {:?} {value}", Counter::of(middle)),
        None => format!("{key:?}: {value}"),
    }
}
