//! Disks of flash: as many operations at once as there are channels, then one line to the host in each direction.

use super::Motion;

/// What goes to one channel; more is spread over several.
const PAGE_BYTES: u64 = 16 << 10;

/// How a disk of flash is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chips {
    /// Pages that are read or programmed at once.
    channels: usize,
    /// What a read takes, and keeps its channel for.
    read_ns: u64,
    /// What a write takes: it ends when it is in a buffer that survives power loss,
    write_ns: u64,
    /// and keeps its channel for so long, as long as programming takes with the share of collecting garbage.
    program_ns: u64,
    /// What the line carries to the host.
    read_bytes_per_second: u64,
    /// What it carries, and the flash takes, in the other direction.
    write_bytes_per_second: u64,
}

/// A SATA SSD for data centres: 6,600 reads of 4 KiB a second one by one, 75,000 at depth 32, 36,000 writes; 500 and 460 MB/s.
///
/// *Source*: the published rates of Intel's DC S3700; what it does one by one as AnandTech measured it in 2014 beside the P3700.
pub(super) const SATA: Chips = Chips {
    channels: 11,
    read_ns: 143_000,
    write_ns: 65_000,
    program_ns: 305_000,
    read_bytes_per_second: 500_000_000,
    write_bytes_per_second: 460_000_000,
};

/// An NVMe SSD for data centres: 8,900 reads of 4 KiB a second one by one, 450,000 at depth 128, 150,000 writes; 2,800 and 1,900 MB/s.
///
/// *Source*: the published rates of Intel's DC P3700 (1.6 TB); what it does one by one as AnandTech measured it in 2014.
pub(super) const NVME: Chips = Chips {
    channels: 50,
    read_ns: 110_000,
    write_ns: 20_000,
    program_ns: 333_000,
    read_bytes_per_second: 2_800_000_000,
    write_bytes_per_second: 1_900_000_000,
};

/// A disk with channels. When something ends is known when it begins: nothing overtakes.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    chips: Chips,
    /// When each channel is free.
    free_at: Vec<u64>,
    /// When the line is free, towards the host and from it.
    read_line: u64,
    write_line: u64,
}

impl Flash {
    pub(super) fn new(chips: Chips) -> Self {
        Self { chips, free_at: vec![0; chips.channels], read_line: 0, write_line: 0 }
    }

    /// When what begins at `now` ends.
    pub(super) fn submit(&mut self, now: u64, motion: Motion) -> u64 {
        let chips = self.chips;
        let pages = motion.bytes.div_ceil(PAGE_BYTES).max(1);
        if motion.write {
            let there = self.write_line.max(now) + passing(motion.bytes, chips.write_bytes_per_second);
            self.write_line = there;
            let begun = (0..pages).map(|_| self.occupy(there, chips.program_ns)).max();
            return begun.unwrap_or(there) + chips.write_ns;
        }
        let begun = (0..pages).map(|_| self.occupy(now, chips.read_ns)).max();
        let ready = begun.unwrap_or(now) + chips.read_ns;
        self.read_line = self.read_line.max(ready) + passing(motion.bytes, chips.read_bytes_per_second);
        self.read_line
    }

    /// The next free channel is taken for `long`; when that begins.
    fn occupy(&mut self, now: u64, long: u64) -> u64 {
        let next = self.free_at.iter_mut().min().expect("flash has channels");
        let begin = now.max(*next);
        *next = begin + long;
        begin
    }
}

fn passing(bytes: u64, bytes_per_second: u64) -> u64 {
    bytes * 1_000_000_000 / bytes_per_second
}
