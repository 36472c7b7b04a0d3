//! Disks of the array: add, remove, locate, list.

use crate::backing::BackingIdentity;
pub(crate) use crate::backing::admit_path;
use crate::core::Core;
use crate::devices::Devices;
use crate::health::Health;
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
    /// Opens the disk and adds it to the array.
    ///
    /// *Errors*: the name or the disk is known already, it cannot be opened, is too small, in use, or not empty
    /// without `force`. A file that was to be created is removed again.
    pub async fn add(&self, request: NewDisk) -> Result<DiskReport, Refusal> {
        if RemoteAddress::is_remote(&request.path) {
            return self.add_remote(request).await;
        }
        admit_local(&request)?;
        let turn = self.core.lock_changes().await;
        let state = self.core.state();
        let path = admit_path(&request.path)?;
        admit_not_own(&self.core, &path)?;
        let name = match request.name {
            Some(name) if state.disks.contains_key(&name) => return Err(disk_name_taken(&name)),
            Some(name) => name,
            None => free_name(&path, |name| state.disks.contains_key(name)),
        };
        // Created before the checks, which need something at the path; removed again below if one fails.
        if let Some(size) = request.create {
            create_file(&self.core, &path, size)?;
        }
        // An async block, so that every refusal in it reaches the removal of the created file.
        let added = async {
            self.admit_unknown(&path)?;
            self.devices.admit_unused(&path).await?;
            // From here on the disk is held exclusively.
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
                // Only after it is open does its label tell whether it is known under another path.
                Some(other) => Err(disk_known(&path, &other)),
                None => self.devices.admit_contents(&path, &report, request.force).await,
            };
            let committed = match admitted {
                Err(refusal) => Err(refusal),
                Ok(()) => self.core.commit(&turn, |state| {
                    state.disks.insert(name.clone(), record);
                }),
            };
            // Not recorded, so it must not stay open either.
            if committed.is_err() {
                self.core.engine.done(Order::CloseDisk { disk: name.clone() }).await?;
            }
            committed.map(|()| report)
        };
        let added = added.await;
        // Removes only a file that this request has created.
        if added.is_err()
            && request.create.is_some()
            && let Err(error) = remove_created(&self.core, &path)
        {
            tracing::warn!(path = %path.display(), %error, "made for a disk that was refused, and not removed");
        }
        added
    }

    /// Removes the disk from the array. Its content stays.
    ///
    /// *Errors*: there is none of this name, or an open pool uses it.
    pub async fn remove(&self, name: &DiskName) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        self.core.state().disk(name)?;
        let report = self.opened(name).await?;
        if let Some(report) = &report {
            admit_unused(name, report)?;
        }
        let before = self.core.state();
        // Durable first: after a crash in between the disk is not opened again.
        self.core.commit(&turn, |state| {
            state.disks.remove(name);
        })?;
        // A later disk may get the same name, and must not inherit its SMART data.
        self.health.forget(name);
        if report.is_some() {
            let closed = self.core.engine.done(Order::CloseDisk { disk: name.clone() }).await;
            return self.core.or_restore(&turn, closed, &before);
        }
        Ok(())
    }

    /// Switches the locate LED of the disk's slot, or blinks the disk's activity LED for a while.
    ///
    /// *Errors*: there is none of this name, it is missing, or it has no controllable LED.
    pub async fn locate(&self, name: &DiskName, request: Locate) -> Result<DiskReport, Refusal> {
        // Distinguishes an unknown disk from a missing one.
        self.core.state().disk(name)?;
        let report = self.opened(name).await?.ok_or_else(|| missing(name))?;
        let disk = name.clone();
        // Without the change lock, because an LED is no part of the state.
        match request {
            Locate::On => self.core.engine.done(Order::LocateDisk { disk, on: true }).await?,
            Locate::Off => self.core.engine.done(Order::LocateDisk { disk, on: false }).await?,
            Locate::Blink { seconds } => self.core.engine.done(Order::BlinkDisk { disk, seconds }).await?,
        }
        Ok(report)
    }

    /// Returns the disk as the data plane reports it; `None` when it is not open.
    pub(crate) async fn opened(&self, name: &DiskName) -> Result<Option<DiskReport>, Refusal> {
        let disks = self.core.engine.disks(Order::Disks).await?;
        Ok(disks.into_iter().find(|disk| disk.name.as_ref() == Some(name)))
    }

    fn known_as(&self, id: model::DiskId) -> Option<DiskName> {
        self.core.state().disks.iter().find(|(_, record)| record.id == Some(id)).map(|(name, _)| name.clone())
    }

    /// Admits a path that leads to neither a known disk nor a volume, under any name.
    fn admit_unknown(&self, path: &Path) -> Result<(), Refusal> {
        let state = self.core.state();
        let Some(medium) = BackingIdentity::at(path) else {
            return Err(Refusal::new(
                code::DISK_UNREADABLE,
                format!("{} does not exist", path.display()),
                "give the path of a block device or a regular file, or create a file with --create SIZE",
            ));
        };
        let same = |other: &str| BackingIdentity::at(other) == Some(medium);
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
                format!("{} is the back end of volume {volume}", path.display()),
                "choose another disk",
            )),
            None => Ok(()),
        }
    }

    /// Lists all known disks, including missing ones.
    pub async fn list(&self) -> Result<Vec<DiskReport>, Refusal> {
        let mut disks = self.core.engine.disks(Order::Disks).await?;
        let open: BTreeSet<DiskName> = disks.iter().filter_map(|disk| disk.name.clone()).collect();
        let state = self.core.state();
        // Disks that are not open are known from their records alone.
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
            // A member is not a former member, whatever an old record says.
            disk.former = record.and_then(|record| record.former.clone()).filter(|_| !disk.is_member());
            disk.state = match (disk.state, &disk.former, spare) {
                // Made a spare with `force`: it counts as free, and will be overwritten.
                (DiskState::Former, _, Some(_)) => DiskState::Free,
                (DiskState::Free, Some(_), None) => DiskState::Former,
                (state, _, _) => state,
            };
            // No record of it exists: the label tells at least the pool.
            if disk.state == DiskState::Former {
                disk.former = disk.former.take().or_else(|| former_by_label(&disk.label));
            }
        }
        disks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(disks)
    }

    /// Returns the known enclosure of each disk.
    pub(crate) async fn placed(&self) -> Result<BTreeMap<DiskName, String>, Refusal> {
        let disks = self.core.engine.disks(Order::Disks).await?;
        Ok(disks.into_iter().filter_map(|disk| disk.name.zip(disk.identity.enclosure)).collect())
    }

    /// Returns one disk. *Errors*: there is none of this name.
    pub async fn report(&self, name: &DiskName) -> Result<DiskReport, Refusal> {
        self.core.state().disk(name)?;
        let disks = self.list().await?;
        disks.into_iter().find(|disk| disk.name.as_ref() == Some(name)).ok_or_else(|| missing(name))
    }
}

/// Admits a path outside of the array's own files: hosts would otherwise overwrite its state, audit log or key.
///
/// *Errors*: it leads into the state folder, or to the key or the socket, also by a symbolic link.
pub(super) fn admit_not_own(core: &Core, path: &Path) -> Result<(), Refusal> {
    let there = real(path);
    let settings = &core.settings;
    let own = [settings.state_dir.as_path(), settings.socket.as_path(), core.store.key_path()];
    // By path components: a folder beside the state folder whose name begins alike is not part of it.
    if !own.into_iter().any(|own| there.starts_with(real(own))) {
        return Ok(());
    }
    let message = format!("{} belongs to the state of the array", path.display());
    Err(Refusal::new(code::PATH_INVALID, message, "choose a path outside of its state folder"))
}

/// Resolves a path that may not exist yet: symbolic links of its existing part are followed.
fn real(path: &Path) -> PathBuf {
    // The nearest existing ancestor decides, so that a link in the middle cannot bypass the check.
    let there = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    there.map_or_else(
        || path.to_path_buf(),
        // `above` is an ancestor of `path`, so the prefix is always there.
        |(above, real)| real.join(path.strip_prefix(above).unwrap_or(Path::new(""))),
    )
}

/// Creates a sparse file of this size at a free `path`; it survives power loss.
///
/// *Errors*: it exists, or cannot be created.
pub(super) fn create_file(core: &Core, path: &Path, size: Size) -> Result<(), Refusal> {
    // The helper creates it with the privileges that a confined daemon gave up.
    match core.privileged() {
        Some(helper) => helper.create(path, size.bytes()).map_err(|error| uncreated(path, size, &error)),
        None => create_here(path, size),
    }
}

/// Removes a file that [`create_file`] has created.
pub(super) fn remove_created(core: &Core, path: &Path) -> std::io::Result<()> {
    match core.privileged() {
        Some(helper) => helper.remove(path),
        None => fs::remove_file(path),
    }
}

fn create_here(path: &Path, size: Size) -> Result<(), Refusal> {
    let refused = |error: std::io::Error| uncreated(path, size, &error);
    // `create_new` fails on an existing file, so no data is lost.
    let file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(refused)?;
    let sized = file.set_len(size.bytes()).and_then(|()| file.sync_all());
    // The entry in the folder is flushed, too, or power loss could take the file although its content is durable.
    let named = sized.and_then(|()| path.parent().map_or(Ok(()), sync_dir));
    named.map_err(|error| {
        // The file is useless without its size; a failure to remove it does not matter beside the error
        // reported.
        let _ = fs::remove_file(path);
        refused(error)
    })
}

fn uncreated(path: &Path, size: Size, error: &std::io::Error) -> Refusal {
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        let hint = "omit --create to use it, or choose another path";
        return Refusal::new(code::NAME_TAKEN, format!("{} already exists", path.display()), hint);
    }
    Refusal::new(
        code::DISK_UNMAKEABLE,
        format!("{} of {} cannot be created: {error}", path.display(), size),
        "choose an existing, writable folder with free space",
    )
}

/// Derives a disk name from the last part of the path if that is free, or else returns the first free of `d0`,
/// `d1`…
fn free_name(path: &Path, taken: impl Fn(&DiskName) -> bool) -> DiskName {
    // A stem that is no valid name counts as none.
    let stem = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
    stem.filter(|name| !taken(name)).unwrap_or_else(|| numbered_name(taken))
}

/// Returns the first free of `d0`, `d1`…
pub(super) fn numbered_name(taken: impl Fn(&DiskName) -> bool) -> DiskName {
    let numbered = |n: u32| format!("d{n}").parse::<DiskName>().expect("a letter and digits are a name");
    (0..).map(numbered).find(|name| !taken(name)).expect("there are fewer disks than numbers")
}

/// Admits a local disk without options of remote disks.
fn admit_local(request: &NewDisk) -> Result<(), Refusal> {
    if request.chap.is_none() && request.mutual_chap.is_none() && !request.digests {
        return Ok(());
    }
    let hint = "omit CHAP and digests, or give an address that begins with iscsi://";
    Err(Refusal::new(code::OPTIONS_CONFLICT, format!("{} is not a remote disk", request.path), hint))
}

/// Admits a disk that no open pool uses.
pub(crate) fn admit_unused(name: &DiskName, report: &DiskReport) -> Result<(), Refusal> {
    match report.state {
        DiskState::InUse | DiskState::Rebuilding => Err(Refusal::new(
            code::DISK_IN_USE,
            format!("disk {name} is in use by {}", pool_of(report)),
            "choose a free disk, see blockyard disk list",
        )),
        DiskState::Free | DiskState::Failed | DiskState::Missing | DiskState::Former => Ok(()),
    }
}

/// Admits a disk for a new purpose: a former member of a pool only with `force`.
pub(crate) fn admit_former(name: &DiskName, former: Option<&FormerMember>, force: bool) -> Result<(), Refusal> {
    let Some(former) = former.filter(|_| !force) else { return Ok(()) };
    let hint =
        if former.failed { "use another disk, or repeat with --force" } else { "repeat with --force to use it again" };
    Err(Refusal::new(code::DISK_FOREIGN, format!("disk {name} is a {}", former.sentence()), hint))
}

/// Describes a former member by its label, where no record of it exists.
fn former_by_label(label: &Label) -> Option<FormerMember> {
    let (_, pool) = label.pool()?;
    Some(FormerMember { pool: pool.clone(), failed: false, replaced_by: None, since: None })
}

/// Returns the pool that the disk's label names, as a phrase.
pub(super) fn pool_of(disk: &DiskReport) -> String {
    disk.label.pool().map_or("a pool".to_owned(), |(_, pool)| format!("pool {pool}"))
}

pub(super) fn disk_name_taken(name: &DiskName) -> Refusal {
    Refusal::new(code::NAME_TAKEN, format!("disk {name} already exists"), "choose another --name")
}

pub(super) fn disk_known(path: &Path, name: &DiskName) -> Refusal {
    Refusal::new(
        code::DISK_KNOWN,
        format!("{} is already disk {name}", path.display()),
        "use that name, or remove it first with blockyard disk remove",
    )
}
