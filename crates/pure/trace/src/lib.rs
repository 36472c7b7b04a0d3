//! Trace file of a volume's flight recorder: the commands that it received and when. Layout:
//! `docs/operate/tracing.md`.
//!
//! All numbers are little-endian: a header of 72 bytes with the names behind it, 56 bytes for each command, and
//! a CRC-32C of all of that. The daemon writes such files and the lab replays them; nothing here reads a file
//! itself.

mod emit;
mod parse;
#[cfg(test)]
mod tests;

pub use emit::emit;
pub use parse::parse;

/// Magic at the start of a file.
pub const MAGIC: [u8; 8] = *b"BYTRACE\0";
/// Version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Length of the header without its names, in bytes.
pub const HEADER_BYTES: usize = 72;
/// Length of a command record in bytes.
pub const COMMAND_BYTES: usize = 56;
/// Length of the checksum at the end in bytes.
pub const CHECKSUM_BYTES: usize = 4;

/// Sort key of a command: start time in nanoseconds since the start of the trace, then number.
fn sort_key(command: &model::TracedCommand) -> (u64, u64) {
    (command.began_ns, command.number)
}

/// Reason why a file is not a valid trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Foreign: it does not begin with the magic.
    #[error("it is no trace: it does not begin with \"BYTRACE\"")]
    Foreign,
    /// Unknown version of the format.
    #[error(
        "it is a trace of format {0}, and only format {VERSION} is known here; read it with the version that wrote it"
    )]
    Version(u32),
    /// Truncated: shorter than its header says.
    #[error("it is cut off: it has {has} bytes, and its header says that there are {needs}")]
    Short {
        /// Actual length in bytes.
        has: u64,
        /// Expected length in bytes; one more than the actual length where the header itself is truncated.
        needs: u64,
    },
    /// Longer than its header says.
    #[error("it has {has} bytes, and its header says that there are {needs}: something was added to it")]
    Long {
        /// Actual length in bytes.
        has: u64,
        /// Expected length in bytes.
        needs: u64,
    },
    /// Wrong checksum.
    #[error("it is damaged: its checksum is not that of its bytes")]
    Checksum,
    /// Names that do not fill their area.
    #[error("its names are not as its header says")]
    Names,
    /// Volume without blocks, or with an impossible size.
    #[error("it is of a volume of {blocks} blocks of {block_bytes} bytes, which cannot be")]
    Volume {
        /// Number of blocks of the volume.
        blocks: u64,
        /// Block size in bytes.
        block_bytes: u32,
    },
    /// Command of an unnamed session.
    #[error("its command {command} is of session {session}, of which there is no name")]
    Session {
        /// Number of the command.
        command: u64,
        /// Number of the session.
        session: u32,
    },
    /// Commands out of order.
    #[error("its command {command} stands behind one that began after it")]
    Order {
        /// Number of the command.
        command: u64,
    },
}
