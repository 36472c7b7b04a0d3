//! Commands of a seed: each depends only on the seed and its number, so that any of them can be sent alone.

mod media;
mod parameters;
mod reservations;

use lab::random::{Random, mix};

/// Length of a logical block on both sides, in bytes.
pub(super) const BLOCK_BYTES: u32 = 512;
/// Number of blocks of the unit on both sides.
pub(super) const BLOCKS: u64 = 32_768;
/// LUNs that exist on neither side.
const ABSENT: [u16; 3] = [7, 255, 300];

/// Command of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Name of the command in the standard.
    pub name: &'static str,
    /// Index of the initiator that sends it, 0 or 1.
    pub nexus: usize,
    /// LUN that does not exist; `None` sends the command to the unit under test.
    pub absent_lun: Option<u16>,
    pub cdb: Vec<u8>,
    /// Data of the command; its length is the expected data transfer length.
    pub data_out: Option<Vec<u8>>,
    /// Expected data transfer length of a command that reads.
    pub data_in_bytes: u32,
    /// Length of the transfer according to the CDB, in bytes.
    pub moves: u32,
    /// Blocks that the command names: first block and number, for each extent.
    pub extents: Vec<(u64, u64)>,
    pub changes: Changes,
}

/// State that differs when one side executed the command and the other refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    Nothing,
    /// The named blocks.
    Blocks,
    /// Reservations, mode parameters, or the power condition of the unit.
    State,
}

impl Request {
    /// Creates a command without transfer and without changes.
    fn new(name: &'static str, cdb: &[u8]) -> Self {
        Self {
            name,
            nexus: 0,
            absent_lun: None,
            cdb: cdb.to_vec(),
            data_out: None,
            data_in_bytes: 0,
            moves: 0,
            extents: Vec::new(),
            changes: Changes::Nothing,
        }
    }

    /// Makes the command read `bytes`.
    fn reading(mut self, bytes: u32) -> Self {
        (self.moves, self.data_in_bytes) = (bytes, bytes);
        self
    }

    /// Makes the command write `data`.
    fn writing(mut self, data: Vec<u8>) -> Self {
        self.moves = u32::try_from(data.len()).expect("no command moves so much");
        self.data_out = (!data.is_empty()).then_some(data);
        self
    }

    fn naming(mut self, lba: u64, blocks: u64) -> Self {
        self.extents.push((lba, blocks));
        self
    }

    fn changing(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    /// Returns the named blocks, extended by the blocks that the surplus of the expected length would cover.
    pub(crate) fn surroundings(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let surplus = self.expects().saturating_sub(self.moves).div_ceil(BLOCK_BYTES);
        self.extents.iter().map(move |&(lba, blocks)| (lba, blocks + u64::from(surplus)))
    }

    /// Returns the expected data transfer length.
    pub(crate) fn expects(&self) -> u32 {
        self.data_out.as_ref().map_or(self.data_in_bytes, |data| u32::try_from(data.len()).unwrap_or(u32::MAX))
    }
}

/// Returns the command with this number in the stream of the seed.
pub(super) fn request(seed: u64, number: u64) -> Request {
    // Independent of the other commands, so that this one can be sent alone.
    let mut random = Random::new(mix(seed) ^ number);
    let mut request = match random.below(16) {
        0..=7 => media::request(&mut random),
        8..=12 => parameters::request(&mut random),
        13..=14 => reservations::request(&mut random),
        _ => unknown(&mut random),
    };
    // Mostly one initiator: a reservation of the other one refuses nearly everything until the next reset.
    request.nexus = usize::from(random.one_in(8));
    if random.one_in(24) {
        request.absent_lun = Some(ABSENT[random.below(ABSENT.len() as u64) as usize]);
    }
    if random.one_in(32) {
        // NACA, two obsolete bits and two vendor-specific bits.
        let control = request.cdb.len() - 1;
        // The CONTROL byte is the last one of a CDB of fixed length.
        request.cdb[control] = [0x04, 0x01, 0x02, 0x40, 0x80][random.below(5) as usize];
    }
    if random.one_in(10) {
        expect_otherwise(&mut random, &mut request);
    }
    request
}

/// Changes the expected length to more or less than the CDB says.
fn expect_otherwise(random: &mut Random, request: &mut Request) {
    let moves = request.moves;
    let bytes = match random.below(5) {
        0 => 0,
        1 => moves.saturating_sub(BLOCK_BYTES),
        2 => moves / 2,
        3 => moves + BLOCK_BYTES,
        _ => moves + 1 + random.below(16) as u32,
    };
    match &mut request.data_out {
        Some(data) => {
            // Not zero, so that a side that stores the surplus differs from one that does not.
            data.resize(bytes as usize, 0xEE);
            if data.is_empty() {
                request.data_out = None;
            }
        }
        // Neither side is asked for less than the header.
        None if request.name.starts_with("MODE SENSE") => request.data_in_bytes = bytes.max(8),
        None => request.data_in_bytes = bytes,
    }
}

/// Returns an unknown operation code with arbitrary fields. Codes that take long on one side are omitted.
fn unknown(random: &mut Random) -> Request {
    const CODES: [u8; 15] = [0x01, 0x07, 0x0B, 0x18, 0x1C, 0x3B, 0x3C, 0x3E, 0x4C, 0x50, 0x7E, 0x86, 0x9D, 0xC1, 0xFF];
    let code = CODES[random.below(CODES.len() as u64) as usize];
    // Operation codes of group 0 have CDBs of six bytes (SPC-4).
    let mut cdb = vec![0; if code < 0x20 { 6 } else { 16 }];
    cdb[0] = code;
    for byte in &mut cdb[1..] {
        *byte = if random.one_in(2) { 0 } else { random.next() as u8 };
    }
    let bytes = [0, 0, 64, 512][random.below(4) as usize];
    Request::new("an unknown operation", &cdb).reading(bytes)
}

/// Returns a byte with some of these bits set, mostly none.
fn flags(random: &mut Random, among: &[u8]) -> u8 {
    if random.one_in(2) {
        return 0;
    }
    among.iter().fold(0, |flags, bit| if random.one_in(3) { flags | bit } else { flags })
}

/// Returns an allocation length for data of about `usual` bytes at most.
fn allocation(random: &mut Random, usual: u32) -> u32 {
    match random.below(8) {
        0 => 0,
        1 => random.below(16) as u32,
        2 => random.below(u64::from(usual) + 1) as u32,
        _ => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn command_is_made_of_its_seed_and_number_alone() {
        for number in 0..500 {
            assert_eq!(format!("{:?}", request(3, number)), format!("{:?}", request(3, number)));
        }
        assert_ne!(request(3, 1).cdb, request(4, 1).cdb);
    }

    #[test]
    fn stream_has_every_kind_of_command_and_its_edges() {
        let requests: Vec<Request> = (0..20_000).map(|number| request(1, number)).collect();
        let names: BTreeSet<&str> = requests.iter().map(|request| request.name).collect();
        assert!(names.len() >= 60, "{names:?}");
        let any = |holds: fn(&Request) -> bool| assert!(requests.iter().any(holds));
        any(|request| request.expects() < request.moves);
        any(|request| request.expects() > request.moves);
        any(|request| request.extents.iter().any(|&(lba, blocks)| lba.saturating_add(blocks) > BLOCKS));
        any(|request| request.extents == [(BLOCKS, 0)]);
        any(|request| request.absent_lun.is_some() && request.data_out.is_some());
    }
}
