//! Disks named by their paths that the array does not know yet.

use super::CommandContext;
use super::disks::absolute;
use crate::args::DiskGiven;
use crate::failure::Failure;
use control::request::NewDisk;
use model::{DiskName, DiskReport, Refusal, code};
use std::path::{Path, PathBuf};

/// Runs `what` with the disks. Unknown disks are added first, with `force` also if they are not empty, and removed
/// again if `what` fails.
///
/// *Errors*: a disk is named twice, cannot be added, or the error of `what`.
pub(super) fn with_disks<T>(
    desk: &CommandContext,
    given: &[DiskGiven],
    force: bool,
    what: impl FnOnce(Vec<DiskName>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let paths: Vec<PathBuf> = given.iter().filter_map(|disk| disk.path().map(Path::to_path_buf)).collect();
    let known: Vec<DiskReport> =
        if paths.is_empty() { Vec::new() } else { desk.client.get("/disks", "disks")?.decode()? };
    let called = named(&paths, &known)?;
    let mut added = Vec::new();
    let ready = called.iter().try_for_each(|(name, path)| {
        if known.iter().all(|disk| disk.name.as_ref() != Some(name)) {
            let request = NewDisk { path: path.clone(), name: Some(name.clone()), force, ..NewDisk::default() };
            desk.client.post("/disks", &request, "disk")?;
            added.push(name.clone());
        }
        Ok(())
    });
    // In the order of the command line, which the caller divides into groups.
    let mut names = called.iter().map(|(name, _)| name.clone());
    let disks = given.iter().filter_map(|disk| disk.name().cloned().or_else(|| names.next())).collect();
    // If adding one of them fails, those added before it are removed as well.
    let done = ready.and_then(|()| what(disks));
    if done.is_err() {
        // The original failure matters more than a disk that stays registered.
        added.iter().for_each(|name| drop(desk.client.delete(&format!("/disks/{name}"))));
    }
    done
}

/// Runs `what` like [`with_disks`], with one disk.
pub(super) fn with_disk<T>(
    desk: &CommandContext,
    given: &DiskGiven,
    force: bool,
    what: impl FnOnce(DiskName) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_disks(desk, std::slice::from_ref(given), force, |mut disks| what(disks.pop().expect("as many as were given")))
}

/// Returns a name and the absolute path for each disk: its registered name, else the end of its path, else the next
/// number.
///
/// *Errors*: a disk is named twice.
pub(super) fn named(paths: &[PathBuf], known: &[DiskReport]) -> Result<Vec<(DiskName, String)>, Failure> {
    let mut named: Vec<(DiskName, String)> = Vec::new();
    for path in paths {
        let full = absolute(path)?;
        if named.iter().any(|(_, other)| *other == full) {
            let message = format!("disk {full} is listed twice");
            return Err(Refusal::new(code::NAMED_TWICE, message, "list each disk once").into());
        }
        // A disk that is registered under this path is used as it is.
        let own = known.iter().find(|disk| disk.path == full).and_then(|disk| disk.name.clone());
        let is_taken = |name: &DiskName| {
            known.iter().any(|disk| disk.name.as_ref() == Some(name)) || named.iter().any(|(other, _)| other == name)
        };
        // The end of a path such as `/dev/disk/by-id/…` may be no valid name; then a number takes its place.
        let stem = Path::new(&full).file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        let free = || (0..).map(|n: u32| format!("d{n}").parse().expect("a letter and digits are a name"));
        let name = own.or(stem.filter(|name| !is_taken(name))).or_else(|| free().find(|name| !is_taken(name)));
        named.extend(name.map(|name| (name, full)));
    }
    Ok(named)
}
