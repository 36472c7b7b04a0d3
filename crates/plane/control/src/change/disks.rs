//! Disks: known, forgotten, failed, replaced.

use crate::Control;
use crate::core::Core;
use crate::medium::Medium;
pub(crate) use crate::medium::admit_path;
use crate::request::{Locate, NewDisk, Replace};
use crate::state::DiskRecord;
use crate::store::sync_dir;
pub(crate) use crate::unknown::missing;
use model::{DiskName, DiskReport, DiskState, Order, PoolReport, Refusal, RemoteAddress, Size, code};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

impl Control {
    /// The disk is open and known.
    ///
    /// *Errors*: the name or the disk is known already, it cannot be opened, is too small, in use, or not empty and that was
    /// not forced. A file that was to be created is then not there.
    pub async fn add_disk(&self, request: NewDisk) -> Result<DiskReport, Refusal> {
        if RemoteAddress::is_remote(&request.path) {
            return super::remote::add(self, request).await;
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
            self.admit_unused_device(&path).await?;
            let report = self
                .core
                .engine
                .disk(Order::OpenDisk { disk: name.clone(), path: request.path.clone(), remote: None })
                .await?;
            let identity = report.identity.clone();
            let record =
                DiskRecord { path: request.path.clone(), id: report.label.disk(), spare: None, identity, remote: None };
            let known = record.id.and_then(|id| self.known_as(id));
            let admitted = match known {
                Some(other) => Err(disk_known(&path, &other)),
                None => self.admit_contents(&path, &report, request.force).await,
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
    pub async fn remove_disk(&self, name: &DiskName) -> Result<(), Refusal> {
        let turn = self.core.turn().await;
        self.core.state().disk(name)?;
        let report = self.open_disk(name).await?;
        if let Some(report) = &report {
            admit_unused(name, report)?;
        }
        let before = self.core.state();
        self.core.commit(&turn, |state| {
            state.disks.remove(name);
        })?;
        if report.is_some() {
            let closed = self.core.engine.done(Order::CloseDisk { disk: name.clone() }).await;
            return self.core.or_restore(&turn, closed, &before);
        }
        Ok(())
    }

    /// The light of the disk's slot is on or off, or the disk's own light blinks for a while.
    ///
    /// *Errors*: there is none of this name, it is missing, or no light is known.
    pub async fn locate_disk(&self, name: &DiskName, request: Locate) -> Result<DiskReport, Refusal> {
        self.core.state().disk(name)?;
        let report = self.open_disk(name).await?.ok_or_else(|| missing(name))?;
        let disk = name.clone();
        match request {
            Locate::On => self.core.engine.done(Order::LocateDisk { disk, on: true }).await?,
            Locate::Off => self.core.engine.done(Order::LocateDisk { disk, on: false }).await?,
            Locate::Blink { seconds } => self.core.engine.done(Order::BlinkDisk { disk, seconds }).await?,
        }
        Ok(report)
    }

    /// The disk is out of its pool, as if it had died.
    ///
    /// *Errors*: it is not known or in no pool, has failed already, or the pool cannot do without it.
    pub async fn fail_disk(&self, name: &DiskName) -> Result<PoolReport, Refusal> {
        let _turn = self.core.turn().await;
        self.core.state().disk(name)?;
        match self.open_disk(name).await?.map(|report| report.state) {
            None => return Err(missing(name)),
            Some(DiskState::Failed) => {
                return Err(Refusal::new(
                    code::DISK_FAILED_ALREADY,
                    format!("disk {name} has failed already"),
                    format!("replace it with blockyard disk replace {name} NEW"),
                ));
            }
            Some(_) => {}
        }
        self.core.engine.pool(Order::FailDisk { disk: name.clone() }).await
    }

    /// Another disk has the place of `name`, and the rebuild has begun. A disk that has failed may be
    /// tried again in its own place.
    ///
    /// *Errors*: one of them is not known, the first is healthy and that was not both forced and confirmed,
    /// the second is missing, in use, too small or holds something that is not ours.
    pub async fn replace_disk(&self, name: &DiskName, request: Replace) -> Result<PoolReport, Refusal> {
        let turn = self.core.turn().await;
        self.core.state().disk(name)?;
        self.core.state().disk(&request.replacement)?;
        if self.open_disk(&request.replacement).await?.is_none() {
            // It may have been attached since it was missed.
            self.open_disks(&turn).await?;
        }
        let Some(replacement) = self.open_disk(&request.replacement).await? else {
            return Err(missing(&request.replacement));
        };
        if request.replacement == *name {
            admit_own_place(name, &replacement)?;
        } else {
            admit_unused(&request.replacement, &replacement)?;
        }
        if let Some(disk) = self.open_disk(name).await? {
            admit_replaced(name, &disk, &request)?;
        }
        let in_its_place = request.replacement == *name;
        let state = self.core.state();
        let order = Order::ReplaceDisk {
            failed: name.clone(),
            member: state.disk(name)?.id,
            replacement: request.replacement,
            force: request.force,
        };
        let pool = self.core.engine.pool(order).await?;
        self.core.commit(&turn, |state| state.learn(&pool))?;
        if in_its_place {
            // It may be the log that is back, and volumes with it.
            self.apply_volume_policies(&turn, &pool.name).await?;
        }
        Ok(pool)
    }

    /// The disk as the data plane sees it; none when it is not open.
    pub(crate) async fn open_disk(&self, name: &DiskName) -> Result<Option<DiskReport>, Refusal> {
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

/// Admits a disk that has failed, or is whole, when it is to be replaced all the same and that was said twice.
fn admit_replaced(name: &DiskName, disk: &DiskReport, request: &Replace) -> Result<(), Refusal> {
    match (disk.state, request.force, request.confirmed) {
        (DiskState::InUse, false, _) => Err(Refusal::new(
            code::DISK_HEALTHY,
            format!("disk {name} is healthy"),
            "name the disk that failed, or repeat with --force to replace a healthy one",
        )),
        (DiskState::InUse, true, false) => Err(Refusal::new(
            code::UNCONFIRMED,
            format!("disk {name} is healthy, and {} would be without it until the rebuild has ended", pool_of(disk)),
            "repeat with --yes if that is wanted",
        )),
        _ => Ok(()),
    }
}

/// Admits a disk to its own place: one that has failed, and one that was missing and is back.
fn admit_own_place(name: &DiskName, disk: &DiskReport) -> Result<(), Refusal> {
    match disk.state {
        DiskState::InUse => Err(Refusal::new(
            code::DISK_HEALTHY,
            format!("disk {name} is healthy and in its place"),
            format!("name a free disk, or take it out first with blockyard disk fail {name}"),
        )),
        DiskState::Rebuilding => Err(Refusal::new(
            code::DISK_IN_USE,
            format!("disk {name} is being filled in its place already"),
            "wait until the rebuild has ended, see blockyard pool show",
        )),
        DiskState::Free | DiskState::Failed | DiskState::Missing => Ok(()),
    }
}

/// Admits a disk that no open pool uses.
pub fn admit_unused(name: &DiskName, report: &DiskReport) -> Result<(), Refusal> {
    match report.state {
        DiskState::InUse | DiskState::Rebuilding => Err(Refusal::new(
            code::DISK_IN_USE,
            format!("disk {name} is in use by {}", pool_of(report)),
            "name a free disk, see blockyard disk list",
        )),
        DiskState::Free | DiskState::Failed | DiskState::Missing => Ok(()),
    }
}

/// The pool that the disk's label names, in words.
fn pool_of(disk: &DiskReport) -> String {
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
