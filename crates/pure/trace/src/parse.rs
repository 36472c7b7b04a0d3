//! Parsing and validation of a trace file.

use crate::{CHECKSUM_BYTES, COMMAND_BYTES, HEADER_BYTES, MAGIC, TraceError, VERSION, sort_key};
use model::{Traced, TracedCommand, VolumeName};

/// Parses the trace in the file `bytes`; its commands are ordered by start time.
///
/// *Errors*: the first flaw found. Nothing is trusted before the checksum was verified, and memory is bounded
/// by the size of the file.
pub fn parse(bytes: &[u8]) -> Result<Traced, TraceError> {
    let header = check_frame(bytes)?;
    let (front, commands) = split(bytes, header.front_bytes);
    let mut names = Names(front.get(HEADER_BYTES..).unwrap_or_default());
    let volume: VolumeName = names.next().and_then(|name| name.parse().ok()).ok_or(TraceError::Names)?;
    // Grown name by name: a count in a file must not reserve memory.
    let mut sessions = Vec::new();
    for _ in 0..header.sessions {
        sessions.push(names.next().ok_or(TraceError::Names)?.to_owned());
    }
    // The names must fill exactly the space between header and commands.
    if !names.0.is_empty() {
        return Err(TraceError::Names);
    }
    let Header { blocks, block_bytes, .. } = header;
    // The size in bytes must fit in 64 bits: readers multiply without a check.
    if blocks == 0 || block_bytes == 0 || blocks.checked_mul(block_bytes.into()).is_none() {
        return Err(TraceError::Volume { blocks, block_bytes });
    }
    // The checksum at the end is shorter than a record, so `chunks_exact` leaves it out.
    let commands: Vec<TracedCommand> = commands.chunks_exact(COMMAND_BYTES).filter_map(command).collect();
    check_commands(&commands, header.sessions)?;
    let [overwritten, unended, begun_unix_ns, span_ns] = header.summary;
    Ok(Traced { volume, block_bytes, blocks, begun_unix_ns, span_ns, overwritten, unended, sessions, commands })
}

struct Header {
    /// Length of the header with its names in bytes.
    front_bytes: usize,
    /// Numbers of overwritten and unfinished commands, start time and duration.
    summary: [u64; 4],
    blocks: u64,
    block_bytes: u32,
    sessions: u32,
}

/// Parses the header of a file whose length and checksum are right.
fn check_frame(bytes: &[u8]) -> Result<Header, TraceError> {
    let (has, mut fields) = (bytes.len() as u64, Fields(bytes));
    // The true length is unknown while the header is incomplete: at least one byte more.
    let short = TraceError::Short { has, needs: has.saturating_add(1) };
    match fields.bytes::<8>() {
        Some(MAGIC) => {}
        // A beginning of the magic is a truncated trace rather than a foreign file.
        None if !bytes.is_empty() && MAGIC.starts_with(bytes) => return Err(short),
        _ => return Err(TraceError::Foreign),
    }
    let header = (|| {
        let (version, front_bytes, commands) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let told = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let (blocks, block_bytes, sessions) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let front_bytes = usize::try_from(front_bytes).ok()?;
        Some((version, commands, Header { front_bytes, summary: told, blocks, block_bytes, sessions }))
    })();
    // The version is at the same offset in all formats, so it is checked even when the rest cannot be read.
    if let Some(version) = Fields(bytes.get(MAGIC.len()..).unwrap_or_default()).u32().filter(|&it| it != VERSION) {
        return Err(TraceError::Version(version));
    }
    let Some((_, commands, header)) = header else { return Err(short) };
    // The first has 32 bits in the file, so the sum fits.
    let ends = (header.front_bytes + CHECKSUM_BYTES) as u64;
    // The command count is not trusted yet, so its product is checked for overflow.
    let needs = commands.checked_mul(COMMAND_BYTES as u64).and_then(|bytes| bytes.checked_add(ends));
    let needs = needs.unwrap_or(u64::MAX);
    if has < needs {
        return Err(TraceError::Short { has, needs });
    }
    if has > needs {
        return Err(TraceError::Long { has, needs });
    }
    // Only after the length was checked: a truncated file is reported as such, not as damaged.
    let (summed, sum) = split(bytes, bytes.len().saturating_sub(CHECKSUM_BYTES));
    if sum != simd::crc32c::crc32c(summed).to_le_bytes() {
        return Err(TraceError::Checksum);
    }
    if header.front_bytes < HEADER_BYTES {
        return Err(TraceError::Names);
    }
    Ok(header)
}

fn split(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    bytes.split_at_checked(at).unwrap_or((bytes, &[]))
}

fn check_commands(commands: &[TracedCommand], sessions: u32) -> Result<(), TraceError> {
    if let Some(stray) = commands.iter().find(|command| command.session >= sessions) {
        return Err(TraceError::Session { command: stray.number, session: stray.session });
    }
    // Readers rely on the order, for instance to replay with the recorded timing.
    let falls = |pair: &&[TracedCommand]| matches!(pair, [before, behind] if sort_key(behind) < sort_key(before));
    match commands.windows(2).find(falls) {
        Some([_, behind]) => Err(TraceError::Order { command: behind.number }),
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

/// Sequence of little-endian numbers.
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

/// Sequence of strings, each preceded by its length.
struct Names<'a>(&'a [u8]);

impl<'a> Names<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (len, rest) = self.0.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
        self.0 = rest;
        std::str::from_utf8(name).ok()
    }
}
