//! Admission of disks: large enough, unused, and empty.
//!
//! The findings of the data plane come first (labels, and the signatures that `volume::signature` knows), then
//! the device information of the kernel, then the signatures that `wipefs` or `blkid` detect, where one is
//! installed. Nothing is written to the disk.

use crate::backing::BackingIdentity;
use crate::core::Core;
use crate::devices::{Devices, SIZE_MIN, SystemDevice};
use crate::privileged::Program;
use model::{DiskReport, Label, Refusal, RemoteAddress, UNKNOWN_DATA, code};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

/// Time limit of an inspection program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Output limit of an inspection program in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Directories of programs that are often not in the search path of users other than root.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

impl Devices {
    /// Admits a device that is not in use by mounts, swap, LVM, md or the like.
    ///
    /// *Errors*: `DISK_IN_USE`, which `--force` does not override.
    pub(crate) async fn admit_unused(&self, path: &Path) -> Result<(), Refusal> {
        // A regular file, or a device that the kernel does not list.
        let Some(device) = self.at(path).await else { return Ok(()) };
        if let Some(how) = device.uses.first() {
            let message = format!("{} is in use: {how}", path.display());
            let hint = "unmount it or stop its user first; --force does not override this";
            return Err(Refusal::new(code::DISK_IN_USE, message, hint));
        }
        if device.is_read_only {
            let message = format!("{} is read-only in the kernel", path.display());
            return Err(Refusal::new(code::DISK_IN_USE, message, "make it writable, or choose another disk"));
        }
        Ok(())
    }

    /// Admits a disk that is large enough and empty, or was a member of a pool; with `force` also one that
    /// holds data.
    ///
    /// *Errors*: `DISK_TOO_SMALL`, which `force` does not override; `DISK_FOREIGN`, with everything that was
    /// found.
    pub(crate) async fn admit_contents(&self, path: &Path, disk: &DiskReport, force: bool) -> Result<(), Refusal> {
        if disk.size < SIZE_MIN {
            let message = format!("{} is too small: {}", path.display(), disk.size.iec_rounded(false));
            let hint = format!("use a disk or file of at least {}", SIZE_MIN.iec());
            return Err(Refusal::new(code::DISK_TOO_SMALL, message, hint));
        }
        // A member of a pool is added to import that pool, so its label is no obstacle.
        if force || matches!(disk.label, Label::PoolMember { .. }) {
            return Ok(());
        }
        // Everything that is found is listed, so that `--force` is an informed decision.
        let mut found = BTreeSet::new();
        match &disk.label {
            Label::Foreign { description: what } => drop(found.insert(what.clone())),
            Label::Damaged => drop(found.insert("a damaged label of a pool".to_owned())),
            Label::None | Label::PoolMember { .. } => {}
        }
        if let Some(device) = self.at(path).await {
            found.extend(device.signature);
            let count = device.parts.len();
            found.extend((count > 0).then(|| format!("{count} partitions")));
        }
        // A file without allocated blocks was never written, and no local program can open a remote disk.
        let is_out_of_reach = path.to_str().is_some_and(RemoteAddress::is_remote);
        let recognised = if is_out_of_reach || BackingIdentity::is_hole(path) {
            Vec::new()
        } else {
            recognised(&self.core, path).await
        };
        if !recognised.is_empty() {
            // A named signature is more useful than "unknown data".
            found.remove(UNKNOWN_DATA);
        }
        found.extend(recognised);
        if found.is_empty() {
            return Ok(());
        }
        let found: Vec<String> = found.into_iter().collect();
        let message = format!("{} is not blank: it contains {}", path.display(), found.join(", "));
        let hint = "use a blank disk, erase it (wipefs -a), or repeat with --force: its content is overwritten when a \
             pool is created";
        Err(Refusal::new(code::DISK_FOREIGN, message, hint))
    }

    async fn at(&self, path: &Path) -> Option<SystemDevice> {
        let (machine, medium) = (self.machine.clone(), BackingIdentity::of_device(path)?);
        let found = tokio::task::spawn_blocking(move || machine.devices().unwrap_or_default()).await.ok()?;
        found.into_iter().find(|device| BackingIdentity::of_device(&device.device) == Some(medium))
    }
}

/// Returns the signatures that `wipefs`, or else `blkid`, detects; none where neither is installed or the disk
/// cannot be read.
async fn recognised(core: &Core, path: &Path) -> Vec<String> {
    match printed(core, Program::Wipefs, path).await {
        Some(json) => of_wipefs(&json),
        None => printed(core, Program::Blkid, path).await.map_or(Vec::new(), |text| of_blkid(&text)),
    }
}

/// Returns the output of the program, run by the helper or by this process.
async fn printed(core: &Core, program: Program, path: &Path) -> Option<Vec<u8>> {
    if let Some(helper) = core.privileged() {
        return Some(crate::privileged::run(helper, program, path).await.ok()?.output);
    }
    let path = path.as_os_str();
    match program {
        Program::Blkid => output_of("blkid", &["--probe".as_ref(), "--output".as_ref(), "export".as_ref(), path]).await,
        _ => output_of("wipefs", &["--no-act".as_ref(), "--json".as_ref(), path]).await,
    }
}

async fn output_of(program: &str, arguments: &[&OsStr]) -> Option<Vec<u8>> {
    let program: PathBuf = PLACES.iter().map(|place| Path::new(place).join(program)).find(|place| place.exists())?;
    let mut command = Command::new(program);
    // When the time limit drops the future, the program is killed with it.
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let asked = async {
        let mut child = command.spawn().ok()?;
        let mut output = Vec::new();
        child.stdout.take()?.take(ANSWER_BYTES_MAX).read_to_end(&mut output).await.ok()?;
        Some(output)
    };
    timeout(PROGRAM_TIMEOUT, asked).await.ok()?
}

#[derive(Deserialize)]
struct Wipefs {
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    offset: String,
    r#type: String,
}

/// Parses the output of `wipefs`. *Source*: wipefs(8), `--json`.
fn of_wipefs(json: &[u8]) -> Vec<String> {
    let told = serde_json::from_slice::<Wipefs>(json).map_or(Vec::new(), |told| told.signatures);
    told.iter().map(|one| format!("{} (at {})", printable(&one.r#type), printable(&one.offset))).collect()
}

/// Parses the output of `blkid`. *Source*: blkid(8), `--output export`.
fn of_blkid(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let kinds = text.lines().filter_map(|line| line.strip_prefix("TYPE=").or_else(|| line.strip_prefix("PTTYPE=")));
    kinds.map(printable).collect()
}

fn printable(text: &str) -> String {
    // The text comes from the disk, and control characters could rewrite the terminal of an operator.
    text.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read_from_what_the_programs_print() {
        let json = br#"{"signatures": [{"device":"sdb","offset":"0x438","type":"ext4","uuid":"1","label":null},
            {"device":"sdb","offset":"0x1fe","type":"dos","uuid":null,"label":null}]}"#;
        assert_eq!(of_wipefs(json), ["ext4 (at 0x438)", "dos (at 0x1fe)"]);
        assert_eq!(of_wipefs(br#"{"signatures": []}"#), Vec::<String>::new());
        assert_eq!(of_wipefs(b"[[["), Vec::<String>::new());
        assert_eq!(of_blkid(b"DEVNAME=/dev/sdb\nTYPE=LVM2_member\nUSAGE=raid\n"), ["LVM2_member"]);
        assert_eq!(of_blkid(b"PTTYPE=gpt\n"), ["gpt"]);
    }
}
