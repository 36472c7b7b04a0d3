//! Restore of the state from copies on the disks of pools (`blockyard state recover`), after the state folder was lost.
//! The daemon must be stopped.

use crate::args::{Global, RecoverOptions};
use crate::failure::Failure;
use crate::output::Output;
use control::recover::{self, Copy};
use engine::{STATE_COPIES_AT, STATE_COPIES_BYTES, state_copies};
use model::{Refusal, code};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Copy of the state, with the disks that hold it.
struct Listed {
    copy: Copy,
    disks: Vec<PathBuf>,
}

/// Lists the copies, or installs the chosen one as the state.
///
/// *Errors*: a daemon has the folder open, a disk cannot be read, or there is no such copy; nothing is changed then.
pub(crate) fn run(options: &RecoverOptions, global: &Global) -> Result<(), Failure> {
    let mut listed: Vec<Listed> = Vec::new();
    for disk in &options.disks {
        for found in state_copies(&read(disk)?) {
            // A torn or foreign copy is skipped: each disk has several.
            let Some(copy) = Copy::parse(&found.bytes) else { continue };
            // Healthy disks hold the same copies, so equal ones are listed once with all their disks.
            match listed.iter_mut().find(|known| known.copy == copy) {
                Some(known) => known.disks.push(disk.clone()),
                None => listed.push(Listed { copy, disks: vec![disk.clone()] }),
            }
        }
    }
    // The time comes first, because versions of different nodes cannot be compared.
    listed.sort_by_key(|listed| std::cmp::Reverse((listed.copy.time, listed.copy.version)));
    let out = Output::new(global);
    match options.take {
        Some(version) => {
            let copy = chosen(&listed, version)?;
            let number = recover::restore(&options.state_dir, copy)?;
            out.said(&format!(
                "version {version} of {} was restored as version {number}; restore node.key with the ID {}, then \
                 start the daemon",
                copy.time, copy.key
            ))
        }
        None => out.said(&text(&listed, recover::latest(&options.state_dir)?.as_ref())),
    }
}

/// Returns the only copy of this version.
///
/// *Errors*: there is none, or there are several different ones.
fn chosen(listed: &[Listed], version: u64) -> Result<&Copy, Refusal> {
    let mut of_version = listed.iter().filter(|listed| listed.copy.version == version);
    match (of_version.next(), of_version.next()) {
        (Some(only), None) => Ok(&only.copy),
        (None, _) => {
            let message = format!("no disk has a copy of version {version}");
            Err(Refusal::new(code::CONFIG_UNKNOWN, message, "omit --take to list the copies"))
        }
        // Disks of two nodes: choosing one could install the state of the wrong node.
        (Some(_), Some(_)) => {
            let message = format!("the disks have different copies of version {version}");
            Err(Refusal::new(code::AMBIGUOUS, message, "name only the disks of the node to restore"))
        }
    }
}

fn text(listed: &[Listed], present: Option<&Copy>) -> String {
    let Some(first) = listed.first() else { return "no disk has a copy of the state".to_owned() };
    // Without a state in the folder the newest copy is the reference.
    let compared = present.unwrap_or(&first.copy);
    let line = |Listed { copy, disks }: &Listed| {
        let disks: Vec<String> = disks.iter().map(|disk| disk.display().to_string()).collect();
        let differences = copy.differences(compared);
        let differences = if differences.is_empty() { "no differences".to_owned() } else { differences.join("; ") };
        format!(
            "version {} of {} by node {} on {}: {differences}",
            copy.version,
            copy.time,
            copy.node,
            disks.join(", ")
        )
    };
    listed.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Reads the area of the copies, as far as the disk reaches.
fn read(disk: &Path) -> Result<Vec<u8>, Refusal> {
    let mut area = Vec::new();
    let read = File::open(disk).and_then(|mut file| {
        file.seek(SeekFrom::Start(STATE_COPIES_AT))?;
        file.take(STATE_COPIES_BYTES as u64).read_to_end(&mut area)
    });
    read.map(|_| area).map_err(|error| {
        let message = format!("{} cannot be read: {error}", disk.display());
        Refusal::new(code::DISK_UNREADABLE, message, "name disks that belong to pools, and use sudo")
    })
}
