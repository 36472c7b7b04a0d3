//! Disks: known, forgotten, failed, replaced.

use crate::core::Core;
use crate::devices::Devices;
use crate::health::Health;
use crate::medium::Medium;
pub(crate) use crate::medium::admit_path;
use crate::request::{Locate, NewDisk};
use crate::state::DiskRecord;
use crate::store::sync_dir;
pub(crate) use crate::unknown::missing;
use model::{
    DiskCounters, DiskName, DiskReport, DiskState, FormerMember, Label, Order, Refusal, RemoteAddress, Size,
    SpareReport, code,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The disks of the array.
pub struct Disks {
    pub(crate) core: Arc<Core>,
    pub(crate) health: Arc<Health>,
    pub(crate) devices: Arc<Devices>,
}

impl Disks {
    /// The disk is open and known.
    ///
    /// *Errors*: the name or the disk is known already, it cannot be opened, is too small, in use, or not empty and that was
    /// not forced. A file that was to be created is then not there.
    pub async fn add(&self, request: NewDisk) -> Result<DiskReport, Refusal> {
        if RemoteAddress::is_remote(&request.path) {
            return self.add_remote(request).await;
        }
        admit_local(&request)?;
        let turn = self.core.turn().await;
        let state = self.core.state();
        let path = admit_path(&request.path)?;
        admit_not_own(&self.core, &path)?;
        let name = match request.name {
            Some(name) if state.disks.contains_key(&name) => return Err(disk_name_taken(&name)),
            Some(name) => name,
            None => free_name(&path, |name| state.disks.contains_key(name)),
        };
        if let Some(size) = request.create {
            create_file(&self.core, &path, size)?;
        }
        let added = async {
            self.admit_unknown(&path)?;
            self.devices.admit_unused(&path).await?;
            let report = self
                .core
                .engine
                .disk(Order::OpenDisk { disk: name.clone(), path: request.path.clone(), remote: None })
                .await?;
            let identity = report.identity.clone();
            let record = DiskRecord {
                path: request.path.clone(),
                id: report.label.disk(),
                spare: None,
                identity,
                former: None,
                remote: None,
            };
            let known = record.id.and_then(|id| self.known_as(id));
            let admitted = match known {
                Some(other) => Err(disk_known(&path, &other)),
                None => self.devices.admit_contents(&path, &report, request.force).await,
            };
            let committed = match admitted {
                Err(refusal) => Err(refusal),
                Ok(()) => self.core.commit(&turn, |state| {
                    state.disks.insert(name.clone(), record);
                }),
            };
            if committed.is_err() {
                self.core.engine.done(Order::CloseDisk { disk: name.clone() }).await?;
            }
            committed.map(|()| report)
        };
        let added = added.await;
        if added.is_err()
            && request.create.is_some()
            && let Err(error) = remove_created(&self.core, &path)
        {
            tracing::warn!(path = %path.display(), %error, "made for a disk that was refused, and not removed");
        }
        added
    }

    /// The disk is no longer known. What is on it stays.
    ///
    /// *Errors*: there is none of this name, or an open pool uses it.
    pub async fn remove(&self, name: &DiskName) -> Result<(), Refusal> {
        let turn = self.core.turn().await;
        self.core.state().disk(name)?;
        let report = self.opened(name).await?;
        if let Some(report) = &report {
            admit_unused(name, report)?;
        }
        let before = self.core.state();
        self.core.commit(&turn, |state| {
            state.disks.remove(name);
        })?;
        // Another disk may get its name.
        self.health.forget(name);
        if report.is_some() {
            let closed = self.core.engine.done(Order::CloseDisk { disk: name.clone() }).await;
            return self.core.or_restore(&turn, closed, &before);
        }
        Ok(())
    }

    /// The light of the disk's slot is on or off, or the disk's own light blinks for a while.
    ///
    /// *Errors*: there is none of this name, it is missing, or no light is known.
    pub async fn locate(&self, name: &DiskName, request: Locate) -> Result<DiskReport, Refusal> {
        self.core.state().disk(name)?;
        let report = self.opened(name).await?.ok_or_else(|| missing(name))?;
        let disk = name.clone();
        match request {
            Locate::On => self.core.engine.done(Order::LocateDisk { disk, on: true }).await?,
            Locate::Off => self.core.engine.done(Order::LocateDisk { disk, on: false }).await?,
            Locate::Blink { seconds } => self.core.engine.done(Order::BlinkDisk { disk, seconds }).await?,
        }
        Ok(report)
    }

    /// The disk as the data plane sees it; none when it is not open.
    pub(crate) async fn opened(&self, name: &DiskName) -> Result<Option<DiskReport>, Refusal> {
        let disks = self.core.engine.disks(Order::Disks).await?;
        Ok(disks.into_iter().find(|disk| disk.name.as_ref() == Some(name)))
    }

    fn known_as(&self, id: model::DiskId) -> Option<DiskName> {
        self.core.state().disks.iter().find(|(_, record)| record.id == Some(id)).map(|(name, _)| name.clone())
    }

    /// Admits a path that no known disk and no volume is at, under whatever name.
    fn admit_unknown(&self, path: &Path) -> Result<(), Refusal> {
        let state = self.core.state();
        let Some(medium) = Medium::at(path) else {
            return Err(Refusal::new(
                code::DISK_UNREADABLE,
                format!("there is nothing at {}", path.display()),
                "give the path of a block device or a regular file, or make one with --create SIZE",
            ));
        };
        let same = |other: &str| Medium::at(other) == Some(medium);
        if let Some((name, _)) = state.disks.iter().find(|(_, record)| same(&record.path)) {
            return Err(disk_known(path, name));
        }
        let backs = |record: &crate::state::VolumeRecord| match &record.backend {
            model::Backend::File { path } => same(path),
            _ => false,
        };
        match state.volumes.iter().find(|(_, record)| backs(record)) {
            Some((volume, _)) => Err(Refusal::new(
                code::DISK_IN_USE,
                format!("{} holds the volume {volume}", path.display()),
                "name another disk",
            )),
            None => Ok(()),
        }
    }

    /// All disks that are known, also those that were not found.
    pub async fn list(&self) -> Result<Vec<DiskReport>, Refusal> {
        let mut disks = self.core.engine.disks(Order::Disks).await?;
        let open: BTreeSet<DiskName> = disks.iter().filter_map(|disk| disk.name.clone()).collect();
        let state = self.core.state();
        let lost = state.disks.iter().filter(|(name, _)| !open.contains(name));
        disks.extend(lost.map(|(name, record)| DiskReport {
            name: Some(name.clone()),
            path: record.path.clone(),
            size: Size::ZERO,
            logical_block_bytes: 0,
            physical_block_bytes: 0,
            label: Label::None,
            state: DiskState::Missing,
            counters: DiskCounters::default(),
            spare: None,
            former: None,
            identity: record.identity.clone(),
            health: None,
            remote: record.remote_report(),
        }));
        for disk in &mut disks {
            let record = disk.name.as_ref().and_then(|name| state.disks.get(name));
            let spare = record.and_then(|record| record.spare.as_ref());
            disk.health = disk.name.as_ref().and_then(|name| self.health.of(name));
            disk.spare = spare.map(|spare| SpareReport { pool: spare.pool.clone() });
            disk.former = record.and_then(|record| record.former.clone()).filter(|_| !disk.is_member());
            disk.state = match (disk.state, &disk.former, spare) {
                // It was named a spare by force, and is overwritten when it is needed.
                (DiskState::Former, _, Some(_)) => DiskState::Free,
                (DiskState::Free, Some(_), None) => DiskState::Former,
                (state, _, _) => state,
            };
            if disk.state == DiskState::Former {
                disk.former = disk.former.take().or_else(|| former_by_label(&disk.label));
            }
        }
        disks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(disks)
    }

    /// The enclosure that each disk sits in, where it is known.
    pub(crate) async fn placed(&self) -> Result<BTreeMap<DiskName, String>, Refusal> {
        let disks = self.core.engine.disks(Order::Disks).await?;
        Ok(disks.into_iter().filter_map(|disk| disk.name.zip(disk.identity.enclosure)).collect())
    }

    /// One disk. *Errors*: there is none of this name.
    pub async fn report(&self, name: &DiskName) -> Result<DiskReport, Refusal> {
        self.core.state().disk(name)?;
        let disks = self.list().await?;
        disks.into_iter().find(|disk| disk.name.as_ref() == Some(name)).ok_or_else(|| missing(name))
    }
}

/// Admits a path that is none of the array's own files: hosts would write into its state, its audit or its key.
///
/// *Errors*: it leads into the folder of the state, or to the key or the socket, also by a symbolic link.
pub(super) fn admit_not_own(core: &Core, path: &Path) -> Result<(), Refusal> {
    let there = real(path);
    let settings = &core.settings;
    let own = [settings.state_dir.as_path(), settings.socket.as_path(), core.store.key_path()];
    if !own.into_iter().any(|own| there.starts_with(real(own))) {
        return Ok(());
    }
    let message = format!("{} belongs to the array itself", path.display());
    Err(Refusal::new(code::PATH_INVALID, message, "choose a path outside of its state folder"))
}

/// Where the path leads, also where nothing is yet: symbolic links of what is there are followed.
fn real(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    there.map_or_else(
        || path.to_path_buf(),
        |(above, real)| real.join(path.strip_prefix(above).unwrap_or(Path::new(""))),
    )
}

/// A sparse file of this size is at `path`, which was free, and survives power loss.
///
/// *Errors*: it exists, or cannot be made.
pub(super) fn create_file(core: &Core, path: &Path, size: Size) -> Result<(), Refusal> {
    match core.privileged() {
        Some(helper) => helper.create(path, size.bytes()).map_err(|error| uncreated(path, size, &error)),
        None => create_here(path, size),
    }
}

/// A file that [`create_file`] has made is gone.
pub(super) fn remove_created(core: &Core, path: &Path) -> std::io::Result<()> {
    match core.privileged() {
        Some(helper) => helper.remove(path),
        None => fs::remove_file(path),
    }
}

fn create_here(path: &Path, size: Size) -> Result<(), Refusal> {
    let refused = |error: std::io::Error| uncreated(path, size, &error);
    let file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(refused)?;
    let sized = file.set_len(size.bytes()).and_then(|()| file.sync_all());
    let named = sized.and_then(|()| path.parent().map_or(Ok(()), sync_dir));
    named.map_err(|error| {
        // The file is of no use to anybody; that it may stay behind is in the sentence's error.
        let _ = fs::remove_file(path);
        refused(error)
    })
}

fn uncreated(path: &Path, size: Size, error: &std::io::Error) -> Refusal {
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        let hint = "leave out --create to use it as it is, or choose another path";
        return Refusal::new(code::NAME_TAKEN, format!("{} exists", path.display()), hint);
    }
    Refusal::new(
        code::DISK_UNMAKEABLE,
        format!("{} of {} cannot be made: {error}", path.display(), size),
        "choose a folder that exists, may be written and has room",
    )
}

/// The last part of the path if it is a free name, else the first free of `d0`, `d1`…
fn free_name(path: &Path, taken: impl Fn(&DiskName) -> bool) -> DiskName {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
    stem.filter(|name| !taken(name)).unwrap_or_else(|| numbered_name(taken))
}

/// The first free of `d0`, `d1`…
pub(super) fn numbered_name(taken: impl Fn(&DiskName) -> bool) -> DiskName {
    let numbered = |n: u32| format!("d{n}").parse::<DiskName>().expect("a letter and digits are a name");
    (0..).map(numbered).find(|name| !taken(name)).expect("there are fewer disks than numbers")
}

/// Admits a disk of this machine without what only remote ones have.
fn admit_local(request: &NewDisk) -> Result<(), Refusal> {
    if request.chap.is_none() && request.mutual_chap.is_none() && !request.digests {
        return Ok(());
    }
    let hint = "leave out CHAP and digests, or give an address that begins with iscsi://";
    Err(Refusal::new(code::OPTIONS_CONFLICT, format!("{} is not a remote disk", request.path), hint))
}

/// Admits a disk that no open pool uses.
pub(crate) fn admit_unused(name: &DiskName, report: &DiskReport) -> Result<(), Refusal> {
    match report.state {
        DiskState::InUse | DiskState::Rebuilding => Err(Refusal::new(
            code::DISK_IN_USE,
            format!("disk {name} is in use by {}", pool_of(report)),
            "name a free disk, see blockyard disk list",
        )),
        DiskState::Free | DiskState::Failed | DiskState::Missing | DiskState::Former => Ok(()),
    }
}

/// Admits a disk for something new: a former member of a pool only where that is forced.
pub(crate) fn admit_former(name: &DiskName, former: Option<&FormerMember>, force: bool) -> Result<(), Refusal> {
    let Some(former) = former.filter(|_| !force) else { return Ok(()) };
    let hint =
        if former.failed { "use another disk, or repeat with --force" } else { "repeat with --force to use it again" };
    Err(Refusal::new(code::DISK_FOREIGN, format!("disk {name} is a {}", former.sentence()), hint))
}

/// What is known of a former member by its label alone.
fn former_by_label(label: &Label) -> Option<FormerMember> {
    let (_, pool) = label.pool()?;
    Some(FormerMember { pool: pool.clone(), failed: false, replaced_by: None, since: None })
}

/// The pool that the disk's label names, in words.
pub(super) fn pool_of(disk: &DiskReport) -> String {
    disk.label.pool().map_or("a pool".to_owned(), |(_, pool)| format!("pool {pool}"))
}

pub(super) fn disk_name_taken(name: &DiskName) -> Refusal {
    Refusal::new(code::NAME_TAKEN, format!("there is a disk {name} already"), "choose another --name")
}

pub(super) fn disk_known(path: &Path, name: &DiskName) -> Refusal {
    Refusal::new(
        code::DISK_KNOWN,
        format!("{} is known as disk {name}", path.display()),
        "use that name, or remove it first with blockyard disk remove",
    )
}
