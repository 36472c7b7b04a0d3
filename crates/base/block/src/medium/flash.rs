//! Latency model of flash disks: parallel channels, then one link to the host in each direction.

use super::Transfer;

/// Bytes that one channel transfers; larger operations are spread over several channels.
const PAGE_BYTES: u64 = 16 << 10;

/// Parameters of a flash disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chips {
    /// Number of pages that are read or programmed in parallel.
    channels: usize,
    /// Duration of a page read, which also occupies the channel.
    read_ns: u64,
    /// Latency of a write: it is acknowledged when it is in a buffer that survives power loss.
    write_ns: u64,
    /// Time for which a write occupies its channel: programming, with a share of garbage collection.
    program_ns: u64,
    /// Bandwidth of the link for reads.
    read_bytes_per_second: u64,
    /// Bandwidth of the link, and of the flash, for writes.
    write_bytes_per_second: u64,
}

/// SATA SSD for data centers: 6,600 reads of 4 KiB a second at depth 1, 75,000 at depth 32, 36,000 writes; 500 and 460
/// MB/s.
///
/// *Source*: the published rates of Intel's DC S3700; the rate at depth 1 as AnandTech measured it in 2014 beside the
/// P3700.
pub(super) const SATA: Chips = Chips {
    channels: 11,
    read_ns: 143_000,
    write_ns: 65_000,
    program_ns: 305_000,
    read_bytes_per_second: 500_000_000,
    write_bytes_per_second: 460_000_000,
};

/// NVMe SSD for data centers: 8,900 reads of 4 KiB a second at depth 1, 450,000 at depth 128, 150,000 writes; 2,800 and
/// 1,900 MB/s.
///
/// *Source*: the published rates of Intel's DC P3700 (1.6 TB); the rate at depth 1 as AnandTech measured it in 2014.
pub(super) const NVME: Chips = Chips {
    channels: 50,
    read_ns: 110_000,
    write_ns: 20_000,
    program_ns: 333_000,
    read_bytes_per_second: 2_800_000_000,
    write_bytes_per_second: 1_900_000_000,
};

/// Disk with parallel channels. Nothing is reordered, so the completion time is known at submission.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    chips: Chips,
    /// Time at which each channel becomes free.
    free_at: Vec<u64>,
    /// Time at which the link becomes free, to the host and from it.
    read_line: u64,
    write_line: u64,
}

impl Flash {
    pub(super) fn new(chips: Chips) -> Self {
        Self { chips, free_at: vec![0; chips.channels], read_line: 0, write_line: 0 }
    }

    /// Returns the completion time of an operation that is submitted at `now`.
    pub(super) fn submit(&mut self, now: u64, motion: Transfer) -> u64 {
        let chips = self.chips;
        // Large transfers are spread over the channels page by page.
        // At least one: a command without data occupies a channel as well.
        let pages = motion.bytes.div_ceil(PAGE_BYTES).max(1);
        if motion.write {
            // A write crosses the link first and is acknowledged from the buffer, but waits for channels that are still
            // programming.
            let there = self.write_line.max(now) + passing(motion.bytes, chips.write_bytes_per_second);
            self.write_line = there;
            let begun = (0..pages).map(|_| self.occupy(there, chips.program_ns)).max();
            return begun.unwrap_or(there) + chips.write_ns;
        }
        // A read occupies the channels first and crosses the link afterward.
        let begun = (0..pages).map(|_| self.occupy(now, chips.read_ns)).max();
        let ready = begun.unwrap_or(now) + chips.read_ns;
        // The link is serial: a transfer starts when the preceding one has passed.
        self.read_line = self.read_line.max(ready) + passing(motion.bytes, chips.read_bytes_per_second);
        self.read_line
    }

    /// Occupies the channel that becomes free first for `long` nanoseconds; returns the start time.
    fn occupy(&mut self, now: u64, long: u64) -> u64 {
        let next = self.free_at.iter_mut().min().expect("flash has channels");
        let begin = now.max(*next);
        *next = begin + long;
        begin
    }
}

fn passing(bytes: u64, bytes_per_second: u64) -> u64 {
    // Fits in 64 bits for transfers of up to 18 GB, far more than a buffer holds.
    bytes * 1_000_000_000 / bytes_per_second
}
