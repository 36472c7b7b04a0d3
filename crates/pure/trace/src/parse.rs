//! Bytes become a trace, or it is said what is wrong with them.

use crate::{CHECKSUM_BYTES, COMMAND_BYTES, Flaw, HEADER_BYTES, MAGIC, VERSION, place};
use model::{Traced, TracedCommand, VolumeName};

/// The trace in the file `bytes`, with its commands in the order in which they began.
///
/// *Errors*: the first flaw that is found. Nothing is believed before the checksum is right, and no more memory is used than the
/// file has bytes for.
pub fn parse(bytes: &[u8]) -> Result<Traced, Flaw> {
    let header = check_frame(bytes)?;
    let (front, commands) = split(bytes, header.front_bytes);
    let mut names = Names(front.get(HEADER_BYTES..).unwrap_or_default());
    let volume: VolumeName = names.next().and_then(|name| name.parse().ok()).ok_or(Flaw::Names)?;
    let mut sessions = Vec::new();
    for _ in 0..header.sessions {
        sessions.push(names.next().ok_or(Flaw::Names)?.to_owned());
    }
    if !names.0.is_empty() {
        return Err(Flaw::Names);
    }
    let Header { blocks, block_bytes, .. } = header;
    if blocks == 0 || block_bytes == 0 || blocks.checked_mul(block_bytes.into()).is_none() {
        return Err(Flaw::Volume { blocks, block_bytes });
    }
    let commands: Vec<TracedCommand> = commands.chunks_exact(COMMAND_BYTES).filter_map(command).collect();
    check_commands(&commands, header.sessions)?;
    let [overwritten, unended, begun_unix_ns, span_ns] = header.told;
    Ok(Traced { volume, block_bytes, blocks, begun_unix_ns, span_ns, overwritten, unended, sessions, commands })
}

struct Header {
    /// Bytes of the header with its names.
    front_bytes: usize,
    /// Overwritten, unended, begun, span.
    told: [u64; 4],
    blocks: u64,
    block_bytes: u32,
    sessions: u32,
}

/// The header of a file that is as long as it says and has the right checksum.
fn check_frame(bytes: &[u8]) -> Result<Header, Flaw> {
    let (has, mut fields) = (bytes.len() as u64, Fields(bytes));
    let short = Flaw::Short { has, needs: has.saturating_add(1) };
    match fields.bytes::<8>() {
        Some(MAGIC) => {}
        None if !bytes.is_empty() && MAGIC.starts_with(bytes) => return Err(short),
        _ => return Err(Flaw::Foreign),
    }
    let header = (|| {
        let (version, front_bytes, commands) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let told = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let (blocks, block_bytes, sessions) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let front_bytes = usize::try_from(front_bytes).ok()?;
        Some((version, commands, Header { front_bytes, told, blocks, block_bytes, sessions }))
    })();
    // The version stands where it does in every format to come.
    if let Some(version) = Fields(bytes.get(MAGIC.len()..).unwrap_or_default()).u32().filter(|&it| it != VERSION) {
        return Err(Flaw::Version(version));
    }
    let Some((_, commands, header)) = header else { return Err(short) };
    let ends = (header.front_bytes + CHECKSUM_BYTES) as u64;
    let needs = commands.checked_mul(COMMAND_BYTES as u64).and_then(|bytes| bytes.checked_add(ends));
    let needs = needs.unwrap_or(u64::MAX);
    if has < needs {
        return Err(Flaw::Short { has, needs });
    }
    if has > needs {
        return Err(Flaw::Long { has, needs });
    }
    let (summed, sum) = split(bytes, bytes.len().saturating_sub(CHECKSUM_BYTES));
    if sum != simd::crc32c::crc32c(summed).to_le_bytes() {
        return Err(Flaw::Checksum);
    }
    if header.front_bytes < HEADER_BYTES {
        return Err(Flaw::Names);
    }
    Ok(header)
}

fn split(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    bytes.split_at_checked(at).unwrap_or((bytes, &[]))
}

fn check_commands(commands: &[TracedCommand], sessions: u32) -> Result<(), Flaw> {
    if let Some(stray) = commands.iter().find(|command| command.session >= sessions) {
        return Err(Flaw::Session { command: stray.number, session: stray.session });
    }
    let falls = |pair: &&[TracedCommand]| matches!(pair, [before, behind] if place(behind) < place(before));
    match commands.windows(2).find(falls) {
        Some([_, behind]) => Err(Flaw::Order { command: behind.number }),
        _ => Ok(()),
    }
}

fn command(bytes: &[u8]) -> Option<TracedCommand> {
    let mut fields = Fields(bytes);
    let (number, began_ns, took_ns, cdb) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.bytes()?);
    let (session, data_out_bytes, data_in_bytes) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let ([status], sense) = (fields.bytes()?, fields.bytes()?);
    Some(TracedCommand { number, began_ns, took_ns, cdb, session, data_out_bytes, data_in_bytes, status, sense })
}

/// Numbers, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
}

/// Texts with their lengths before them, one after the other.
struct Names<'a>(&'a [u8]);

impl<'a> Names<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (len, rest) = self.0.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
        self.0 = rest;
        std::str::from_utf8(name).ok()
    }
}
