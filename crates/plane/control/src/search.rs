//! Search for disks that are no longer at their recorded paths.

use crate::Engine;
use crate::state::DiskRecord;
use model::{DiskId, Label, LabelOwner, MachineId, Name, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Limit on the files inspected; a folder of a million files is a mistake.
const CANDIDATES_MAX: usize = 4096;

/// Minimum size of a file that may hold a disk, in bytes.
const FILE_BYTES_MIN: u64 = 1 << 20;

/// Paths of the disks that were found.
#[derive(Default)]
pub(crate) struct DiskPaths {
    by_label: BTreeMap<DiskId, String>,
    by_serial: BTreeMap<(String, Option<u32>), String>,
}

impl DiskPaths {
    /// Returns the path of the disk: by its label, or by serial number where it has none.
    pub(crate) fn path_of(&self, record: &DiskRecord) -> Option<&String> {
        match record.id {
            // Where there is a label it decides alone, because a serial number does not tell the content.
            Some(id) => self.by_label.get(&id),
            None => self.by_serial.get(&record.identity.key()?),
        }
    }
}

/// Inspects the block devices and files of `folders`.
pub(crate) async fn disks(engine: &Engine, folders: &BTreeSet<PathBuf>) -> DiskPaths {
    disks_but(engine, folders, &BTreeSet::new()).await
}

/// Inspects the block devices and files of `folders` except the paths in `but`.
pub(crate) async fn disks_but(engine: &Engine, folders: &BTreeSet<PathBuf>, but: &BTreeSet<&str>) -> DiskPaths {
    let candidates: Vec<String> = folders.iter().flat_map(|folder| candidates(folder)).take(CANDIDATES_MAX).collect();
    let mut found = DiskPaths::default();
    for path in candidates.into_iter().filter(|path| !but.contains(path.as_str())) {
        // A path that cannot be inspected is not a disk of ours.
        let Ok(report) = engine.disk(Order::InspectDisk { path: path.clone(), remote: None }).await else { continue };
        // The first path in order of names wins where several lead to one disk.
        if let Some(key) = report.identity.key() {
            found.by_serial.entry(key).or_insert_with(|| path.clone());
        }
        if let Some(id) = report.label.disk() {
            found.by_label.entry(id).or_insert(path);
        }
    }
    found
}

/// Finds a disk in `folders` whose pool was last owned by a node of `machine`: its path, the pool and the node.
pub(crate) async fn owned_by(
    engine: &Engine,
    folders: &BTreeSet<PathBuf>,
    machine: MachineId,
) -> Option<(String, Name, String)> {
    let candidates: Vec<String> = folders.iter().flat_map(|folder| candidates(folder)).take(CANDIDATES_MAX).collect();
    for path in candidates {
        let Ok(report) = engine.disk(Order::InspectDisk { path: path.clone(), remote: None }).await else { continue };
        if let Label::PoolMember { pool_name, owner: Some(LabelOwner { node_name, machine: Some(of), .. }), .. } =
            report.label
            && of == machine
        {
            return Some((path, pool_name, node_name));
        }
    }
    None
}

/// Returns the paths in `folder` that may be disks, sorted.
fn candidates(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<String> = entries.filter_map(Result::ok).filter(may_be_disk).filter_map(path_text).collect();
    paths.sort();
    paths
}

fn may_be_disk(entry: &DirEntry) -> bool {
    // `metadata` follows links: /dev/disk/by-id holds nothing else.
    fs::metadata(entry.path())
        .is_ok_and(|meta| meta.file_type().is_block_device() || (meta.is_file() && meta.len() >= FILE_BYTES_MIN))
}

fn path_text(entry: DirEntry) -> Option<String> {
    // A path that is not UTF-8 cannot be recorded in the state.
    entry.path().into_os_string().into_string().ok()
}
