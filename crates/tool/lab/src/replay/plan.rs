//! Selection of a trace's commands by session.

use super::Kind;
use anyhow::{Result, ensure};
use model::{Size, Traced, TracedCommand};
use scsi::Cdb;
use std::collections::BTreeMap;

/// Limit of sessions of a replay.
const SESSIONS_MAX: usize = 1024;
/// Limit of a READ or WRITE in bytes, beyond what any target accepts.
const TRANSFER_BYTES_MAX: u64 = 64 << 20;
const GOOD: u8 = 0;

/// Command to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Operation.
    pub kind: Kind,
    /// First byte on the unit.
    pub offset: u64,
    /// Bytes transferred; for WRITE SAME, bytes changed; zero for SYNCHRONIZE CACHE.
    pub bytes: u64,
    /// FUA of a READ or WRITE, UNMAP of a WRITE SAME.
    pub flag: bool,
    /// Start in nanoseconds since the first command's start.
    pub began_ns: u64,
    /// Recorded latency in nanoseconds.
    pub took_ns: u64,
}

/// Load of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Traced volume.
    pub volume: String,
    /// Block size of the volume in bytes.
    pub block_bytes: u32,
    /// Steps of each session that has some, in the order of their start.
    pub sessions: Vec<Vec<Step>>,
    /// Omitted operations, with their counts.
    pub skipped: BTreeMap<String, u64>,
}

/// Constraints of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Size of the unit in bytes.
    pub bytes: u64,
    /// Block size that commands must be multiples of; none if any byte can be addressed.
    pub block_bytes: Option<u32>,
    /// Wrap addresses beyond the end into the unit.
    pub wrap: bool,
}

impl Plan {
    /// Selects the commands of `traced` to be replayed; they are in the order of their start.
    ///
    /// *Errors*: there are none, or they came from too many sessions.
    pub fn of(traced: &Traced) -> Result<Self> {
        let mut sessions = vec![Vec::new(); traced.sessions.len()];
        let mut skipped = BTreeMap::new();
        for command in &traced.commands {
            match step(command, traced.block_bytes) {
                Ok(step) => sessions[command.session as usize].push(step),
                Err(why) => *skipped.entry(why).or_insert(0) += 1,
            }
        }
        // A session without steps needs no login.
        sessions.retain(|steps| !steps.is_empty());
        // Times relative to the first replayed command: what was omitted before it must not delay the replay.
        let first = sessions.iter().filter_map(|steps| steps.first()).map(|step: &Step| step.began_ns).min();
        let first = first.unwrap_or_default();
        sessions.iter_mut().flatten().for_each(|step| step.began_ns -= first);
        ensure!(!sessions.is_empty(), "the trace has no command that can be replayed");
        ensure!(
            sessions.len() <= SESSIONS_MAX,
            "the trace is of {} sessions, and {SESSIONS_MAX} are replayed at most",
            sessions.len()
        );
        Ok(Self { volume: traced.volume.to_string(), block_bytes: traced.block_bytes, sessions, skipped })
    }

    /// Returns all steps.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.sessions.iter().flatten()
    }

    /// Returns true if the unit is changed.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.steps().any(|step| step.kind.writes())
    }

    /// Adapts the steps to the unit.
    ///
    /// *Errors*: the unit is too small, or has another block size.
    pub fn fit(&mut self, fit: Fit) -> Result<()> {
        if let Some(block_bytes) = fit.block_bytes {
            ensure!(
                block_bytes == self.block_bytes,
                "the trace is of a volume with blocks of {} bytes, and this one has {block_bytes}; replay it against a volume made with --block-size {}",
                self.block_bytes,
                self.block_bytes
            );
        }
        let needs = self.steps().map(|step| step.offset + step.bytes).max().unwrap_or_default();
        if needs <= fit.bytes {
            return Ok(());
        }
        ensure!(
            fit.wrap,
            "the trace goes up to {}, and the unit has {}; name a larger one, or let it --wrap",
            Size::new(needs).exact(),
            Size::new(fit.bytes).exact()
        );
        // Whole blocks of the trace, even if the device ends within one.
        let bytes = fit.bytes - fit.bytes % u64::from(self.block_bytes);
        let longest = self.steps().map(|step| step.bytes).max().unwrap_or_default();
        ensure!(longest <= bytes, "a command of {longest} bytes does not fit the unit of {} bytes", fit.bytes);
        for step in self.sessions.iter_mut().flatten() {
            // Keeps the alignment of the address, and the command within the unit.
            step.offset = (step.offset % bytes).min(bytes - step.bytes);
        }
        Ok(())
    }
}

/// Converts `command` to a step.
///
/// *Errors*: the reason why it is omitted.
fn step(command: &TracedCommand, block_bytes: u32) -> Result<Step, String> {
    let cdb = &command.cdb;
    let name = || Cdb::new(cdb).operation_name().to_owned();
    if command.status != GOOD {
        return Err(format!("{} that did not end with GOOD", name()));
    }
    let number = |from: usize, to: usize| cdb[from..to].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    // A transfer length of zero means 256 blocks in a 6-byte CDB (SBC-4 READ (6)).
    let six_blocks = if cdb[4] == 0 { 256 } else { u64::from(cdb[4]) };
    // READ and WRITE with CDBs of 6, 10, 12 and 16 bytes; WRITE SAME and SYNCHRONIZE CACHE with 10 and 16 (SBC-4).
    let (kind, lba, blocks) = match cdb[0] {
        0x08 => (Kind::Read, number(1, 4) & 0x1f_ffff, six_blocks),
        0x0a => (Kind::Write, number(1, 4) & 0x1f_ffff, six_blocks),
        0x28 => (Kind::Read, number(2, 6), number(7, 9)),
        0x2a => (Kind::Write, number(2, 6), number(7, 9)),
        0xa8 => (Kind::Read, number(2, 6), number(6, 10)),
        0xaa => (Kind::Write, number(2, 6), number(6, 10)),
        0x88 => (Kind::Read, number(2, 10), number(10, 14)),
        0x8a => (Kind::Write, number(2, 10), number(10, 14)),
        0x41 => (Kind::WriteSame, number(2, 6), number(7, 9)),
        0x93 => (Kind::WriteSame, number(2, 10), number(10, 14)),
        0x35 | 0x91 => (Kind::Sync, 0, 0),
        _ => return Err(name()),
    };
    if blocks == 0 && kind != Kind::Sync {
        return Err(format!("{} of no blocks", name()));
    }
    let flag = match kind {
        // Byte 1 of a 6-byte CDB is a part of the address.
        Kind::Read | Kind::Write => cdb[0] >= 0x20 && cdb[1] & 0x08 != 0,
        Kind::WriteSame => cdb[1] & 0x08 != 0,
        Kind::Sync => false,
    };
    // The CDB is from the trace as it was received: an address that the target rejected can be any number.
    let (offset, bytes) = (lba.checked_mul(block_bytes.into()), blocks.checked_mul(block_bytes.into()));
    let whole = |(offset, bytes): (u64, u64)| offset.checked_add(bytes).map(|_| (offset, bytes));
    let Some((offset, bytes)) = offset.zip(bytes).and_then(whole) else {
        return Err(format!("{} behind the end of any unit", name()));
    };
    if matches!(kind, Kind::Read | Kind::Write) && bytes > TRANSFER_BYTES_MAX {
        return Err(format!("{} of more than {}", name(), Size::new(TRANSFER_BYTES_MAX).iec()));
    }
    Ok(Step { kind, offset, bytes, flag, began_ns: command.began_ns, took_ns: command.took_ns })
}
