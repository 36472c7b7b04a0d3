//! Monitor of the file systems below disks and volumes that are files. These files are sparse, so a write can
//! find no space: it then stops a pool, or is refused.
//!
//! Metadata of pools is allocated when the pool is created; blocks that hosts never wrote are not. A file
//! system that runs out of space is therefore reported before the space is needed.

use crate::core::Core;
use crate::notices::Notices;
use model::{Backend, Problem, Severity, Size, Subject, SubjectKind, event};
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Interval between two checks.
const ROUND: Duration = Duration::from_secs(5);
/// Free space below which a file system counts as short, in bytes.
const ROOM_MIN: u64 = 16 << 20;
/// Free space below which the next writes fail, in bytes.
const ROOM_GONE: u64 = 1 << 20;

/// A disk or volume that is a file.
struct BackingFile {
    subject: Subject,
    path: PathBuf,
}

/// A file system, and the files on it.
struct FileSystemUse {
    folder: PathBuf,
    free: u64,
    /// Bytes of the files that are not allocated yet.
    unallocated: u64,
    files: Vec<Subject>,
}

/// Free space of the file systems below disks and volumes that are files.
pub struct FileSpaceMonitor {
    pub(crate) core: Arc<Core>,
    pub(crate) notices: Arc<Notices>,
}

impl FileSpaceMonitor {
    /// Reports file systems that run out of space, until the task is dropped.
    pub async fn watch(self: Arc<Self>) {
        loop {
            self.check().await;
            sleep(ROUND).await;
        }
    }

    /// Runs one check.
    pub(crate) async fn check(&self) {
        let files = self.backing_files();
        // On a blocking thread: a network file system may hang.
        let Ok(found) = tokio::task::spawn_blocking(move || file_systems(files)).await else { return };
        let short: Vec<&FileSystemUse> = found.iter().filter(|below| below.is_short()).collect();
        // The first file stands for the file system, so that each is reported once.
        for below in &short {
            // Each entry was created for a file, so there is a first one.
            self.notices.add(event::FILE_SYSTEM_FULL, below.files[0].clone(), below.problem());
        }
        // The notices remember what was reported, so the monitor keeps no list of its own.
        let noticed = self.notices.all().into_keys().filter(|(code, _)| *code == event::FILE_SYSTEM_FULL);
        for (code, subject) in noticed.filter(|(_, subject)| short.iter().all(|below| below.files[0] != *subject)) {
            let sentence =
                format!("the file system of {} {} has free space again", subject.kind.as_str(), subject.name);
            self.notices.settle(code, subject, event::FILE_SYSTEM_ROOM, &sentence);
        }
    }

    /// Returns the pool disks and volumes that may be files.
    fn backing_files(&self) -> Vec<BackingFile> {
        let state = self.core.state();
        // A disk that is in no pool is not written.
        let disks = state.disks.iter().filter(|(_, disk)| disk.id.is_some() && disk.remote.is_none());
        let disks =
            disks.map(|(name, disk)| BackingFile { subject: Subject::disk(name), path: disk.path.clone().into() });
        let volumes = state.volumes.iter().filter_map(|(name, volume)| match &volume.backend {
            Backend::File { path } => {
                Some(BackingFile { subject: Subject::new(SubjectKind::Volume, name), path: path.into() })
            }
            _ => None,
        });
        disks.chain(volumes).collect()
    }
}

/// Groups the files by writable file system.
fn file_systems(files: Vec<BackingFile>) -> Vec<FileSystemUse> {
    let mut found: BTreeMap<u64, FileSystemUse> = BTreeMap::new();
    for BackingFile { subject, path } in files {
        // No regular file, or a file system that is read-only or does not report its size.
        let Some((device, lacks, free)) = space_of(&path) else { continue };
        let folder = path.parent().unwrap_or(&path).to_owned();
        let below =
            found.entry(device).or_insert_with(|| FileSystemUse { folder, free, unallocated: 0, files: Vec::new() });
        below.unallocated += lacks;
        below.files.push(subject);
    }
    found.into_values().collect()
}

/// Returns the device number of the file's file system, the unallocated bytes of the file, and the free bytes.
fn space_of(path: &Path) -> Option<(u64, u64, u64)> {
    let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let system = statvfs(path).ok().filter(|system| {
        // Some FUSE file systems report a size of 0.
        system.f_blocks > 0 && !system.f_flag.contains(StatVfsMountFlags::RDONLY)
    })?;
    // `st_blocks` counts units of 512 bytes, whatever the block size of the file system.
    // Preallocation can give a file more blocks than its length needs.
    let lacks = file.len().saturating_sub(file.blocks() * 512);
    Some((file.dev(), lacks, system.f_bavail.saturating_mul(system.f_frsize)))
}

impl FileSystemUse {
    fn is_short(&self) -> bool {
        // A file system with room for everything that its files may still need is never short.
        self.free < ROOM_MIN.min(self.unallocated)
    }

    fn problem(&self) -> Problem {
        let files: Vec<String> =
            self.files.iter().map(|subject| format!("{} {}", subject.kind.as_str(), subject.name)).collect();
        let (free, lacks) = (Size::new(self.free).iec(), Size::new(self.unallocated).iec());
        let (severity, state) = match self.free {
            ..ROOM_GONE => (Severity::Critical, "full"),
            _ => (Severity::Warning, "nearly full"),
        };
        Problem {
            severity,
            subject: format!("file system of {}", files.join(", ")),
            state: state.to_owned(),
            meaning: format!(
                "{free} free, but unallocated blocks may need {lacks}: writes without space fail and stop a pool"
            ),
            action: format!("free space on the file system of {}", self.folder.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(free: u64, lacks: u64) -> FileSystemUse {
        FileSystemUse {
            folder: "/disks".into(),
            free,
            unallocated: lacks,
            files: vec![Subject::new(SubjectKind::Disk, &"d0")],
        }
    }

    #[test]
    fn file_system_is_short_when_what_is_free_is_less_than_its_files_lack() {
        let short = |free, lacks| below(free, lacks).is_short();
        assert!(short(0, 1) && short(ROOM_MIN - 1, u64::MAX) && !short(ROOM_MIN, u64::MAX));
        assert!(!short(0, 0), "files that have all of their space need none");
        assert_eq!(below(ROOM_GONE - 1, 1 << 30).problem().severity, Severity::Critical);
        let problem = below(8 << 20, 1 << 30).problem();
        assert_eq!((problem.severity, problem.state.as_str()), (Severity::Warning, "nearly full"));
        assert!(problem.meaning.starts_with("8 MiB free") && problem.meaning.contains("1 GiB"), "{problem:?}");
    }
}
