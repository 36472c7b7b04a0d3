//! The file of a flight recorder: which commands a volume had, and when. `docs/operate/tracing.md` has its bytes.
//!
//! All numbers are little-endian. A header of 72 bytes and the names, 56 bytes for each command, and a CRC-32C of all of that.

mod emit;
mod parse;
#[cfg(test)]
mod tests;

pub use emit::emit;
pub use parse::parse;

/// What a file begins with.
pub const MAGIC: [u8; 8] = *b"BYTRACE\0";
/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Bytes of the header before its names.
pub const HEADER_BYTES: usize = 72;
/// Bytes of a command.
pub const COMMAND_BYTES: usize = 56;
/// Bytes of the checksum at the end.
pub const CHECKSUM_BYTES: usize = 4;

/// What the commands of a file stand in the order of: when each began, nanoseconds since the trace did, and its number.
fn place(command: &model::TracedCommand) -> (u64, u64) {
    (command.began_ns, command.number)
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// It does not begin as one.
    #[error("it is no trace: it does not begin with \"BYTRACE\"")]
    Foreign,
    /// It was written by another version of the product.
    #[error(
        "it is a trace of format {0}, and only format {VERSION} is known here; read it with the version that wrote it"
    )]
    Version(u32),
    /// Less of it is there than its header says.
    #[error("it is cut off: it has {has} bytes, and its header says that there are {needs}")]
    Short {
        /// Bytes that there are.
        has: u64,
        /// Bytes that there should be; one more than there are where even the header is cut off.
        needs: u64,
    },
    /// More of it is there than its header says.
    #[error("it has {has} bytes, and its header says that there are {needs}: something was added to it")]
    Long {
        /// Bytes that there are.
        has: u64,
        /// Bytes that there should be.
        needs: u64,
    },
    /// Its checksum is that of other bytes.
    #[error("it is damaged: its checksum is not that of its bytes")]
    Checksum,
    /// Its names do not fill the place that they have.
    #[error("its names are not as its header says")]
    Names,
    /// It has a volume without blocks.
    #[error("it is of a volume of {blocks} blocks of {block_bytes} bytes, which cannot be")]
    Volume {
        /// Blocks of the volume.
        blocks: u64,
        /// Bytes of each.
        block_bytes: u32,
    },
    /// A command is of a session that has no name.
    #[error("its command {command} is of session {session}, of which there is no name")]
    Session {
        /// The number of the command.
        command: u64,
        /// The session.
        session: u32,
    },
    /// The commands are not in the order in which they began.
    #[error("its command {command} stands behind one that began after it")]
    Order {
        /// The number of the command.
        command: u64,
    },
}
