//! Finding disks that are no longer where they were.

use crate::Engine;
use crate::state::DiskRecord;
use model::{DiskId, Label, LabelOwner, MachineId, Name, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// How many files of the searched folders are looked at; a folder of a million files is a mistake.
const CANDIDATES_MAX: usize = 4096;

/// Files smaller than this hold no disk.
const FILE_BYTES_MIN: u64 = 1 << 20;

/// Where disks are.
#[derive(Default)]
pub(crate) struct Found {
    by_label: BTreeMap<DiskId, String>,
    by_serial: BTreeMap<(String, Option<u32>), String>,
}

impl Found {
    /// Where this disk is, by its label; one without a label by its serial number.
    pub(crate) fn path_of(&self, record: &DiskRecord) -> Option<&String> {
        match record.id {
            Some(id) => self.by_label.get(&id),
            None => self.by_serial.get(&record.identity.key()?),
        }
    }
}

/// The disks among the block devices and files of `folders`.
pub(crate) async fn disks(engine: &Engine, folders: &BTreeSet<PathBuf>) -> Found {
    disks_but(engine, folders, &BTreeSet::new()).await
}

/// The same, but for these paths, which are not looked at.
pub(crate) async fn disks_but(engine: &Engine, folders: &BTreeSet<PathBuf>, but: &BTreeSet<&str>) -> Found {
    let candidates: Vec<String> = folders.iter().flat_map(|folder| candidates(folder)).take(CANDIDATES_MAX).collect();
    let mut found = Found::default();
    for path in candidates.into_iter().filter(|path| !but.contains(path.as_str())) {
        // A path that cannot be looked at is not the disk that is sought.
        let Ok(report) = engine.disk(Order::InspectDisk { path: path.clone(), remote: None }).await else { continue };
        if let Some(key) = report.identity.key() {
            found.by_serial.entry(key).or_insert_with(|| path.clone());
        }
        if let Some(id) = report.label.disk() {
            found.by_label.entry(id).or_insert(path);
        }
    }
    found
}

/// A disk among those of `folders` whose pool a node of `machine` had last: its path, the pool and the node.
pub(crate) async fn owned_by(
    engine: &Engine,
    folders: &BTreeSet<PathBuf>,
    machine: MachineId,
) -> Option<(String, Name, String)> {
    let candidates: Vec<String> = folders.iter().flat_map(|folder| candidates(folder)).take(CANDIDATES_MAX).collect();
    for path in candidates {
        let Ok(report) = engine.disk(Order::InspectDisk { path: path.clone(), remote: None }).await else { continue };
        if let Label::Ours { pool_name, owner: Some(LabelOwner { node_name, machine: Some(of), .. }), .. } =
            report.label
            && of == machine
        {
            return Some((path, pool_name, node_name));
        }
    }
    None
}

/// The paths in `folder` that may be disks, in the order of their names.
fn candidates(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<String> = entries.filter_map(Result::ok).filter(may_be_disk).filter_map(path_text).collect();
    paths.sort();
    paths
}

fn may_be_disk(entry: &DirEntry) -> bool {
    // Follows links: /dev/disk/by-id holds nothing else.
    fs::metadata(entry.path())
        .is_ok_and(|meta| meta.file_type().is_block_device() || (meta.is_file() && meta.len() >= FILE_BYTES_MIN))
}

fn path_text(entry: DirEntry) -> Option<String> {
    entry.path().into_os_string().into_string().ok()
}
