//! A sleeve over a disk that counts what it does.

use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use model::DiskCounters;
use std::cell::Cell;

/// A device that counts.
#[derive(Debug)]
pub struct Counted<D> {
    device: D,
    counters: Cell<DiskCounters>,
}

impl<D> Counted<D> {
    /// The device, with nothing counted yet.
    pub fn new(device: D) -> Self {
        Self { device, counters: Cell::default() }
    }

    /// What was counted so far.
    pub fn counters(&self) -> DiskCounters {
        self.counters.get()
    }

    fn count_write(&self, result: Result<Written, IoError>, bytes: usize) -> Result<Written, IoError> {
        self.count(result, |counters, _| {
            counters.writes += 1;
            counters.written_bytes += bytes as u64;
        })
    }

    fn count<T>(&self, result: Result<T, IoError>, add: impl FnOnce(&mut DiskCounters, &T)) -> Result<T, IoError> {
        let mut counters = self.counters.get();
        match &result {
            Ok(done) => add(&mut counters, done),
            Err(_) => counters.errors += 1,
        }
        self.counters.set(counters);
        result
    }
}

impl<D: BlockDevice> BlockDevice for Counted<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.count(self.device.read(extent).await, |counters, data| {
            counters.reads += 1;
            counters.read_bytes += data.len() as u64;
        })
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let bytes = data.len();
        self.count_write(self.device.write(start, data).await, bytes)
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let bytes = data.len();
        self.count_write(self.device.write_fresh(start, data).await, bytes)
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.count(self.device.flush(after).await, |counters, _| counters.flushes += 1)
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.count(self.device.discard(extent).await, |_, _| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Blocks;
    use block::memory::Ram;
    use futures_util::FutureExt;

    #[test]
    fn counted_tells_what_was_done_and_what_failed() {
        let device = Counted::new(Ram::new(4096, Blocks(4)));
        let written = device.write(Lba(0), View::zeroed(8192)).now_or_never().expect("RAM is ready").expect("in range");
        let _stable = device.flush(written).now_or_never().expect("RAM is ready").expect("RAM keeps it");
        let _data = device.read(Extent::new(0, 1)).now_or_never().expect("RAM is ready").expect("in range");
        assert!(device.read(Extent::new(9, 1)).now_or_never().expect("RAM is ready").is_err());
        let counted =
            DiskCounters { reads: 1, writes: 1, flushes: 1, read_bytes: 4096, written_bytes: 8192, errors: 1 };
        assert_eq!(device.counters(), counted);
    }
}
