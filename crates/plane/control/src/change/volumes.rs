//! Volumes: create, resize, list; with or without a pool.
//!
//! Volumes in pools are recorded by the pool itself; the state records volumes without one, and the policies.

use crate::access::Access;
use crate::backing::BackingIdentity;
use crate::change::disks::{admit_not_own, admit_path, create_file, remove_created};
use crate::change::pools;
use crate::core::{ChangeGuard, Core};
use crate::memory::Memory;
use crate::request::{NewBackend, NewVolume, Resize};
use crate::state::{PolicyRecord, State, VolumeRecord};
use crate::system::random;
use crate::unknown::unknown_volume;
pub(crate) use crate::unknown::unknown_volume as unknown;
use model::{
    Backend, LatencyReport, Name, Order, Provision, Refusal, Size, Subject, SubjectKind, VOLUME_SIZE_MIN, VolumeId,
    VolumeName, VolumeReport, VolumeSpec, VolumeState, code, event,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Default logical block size in bytes, which every host accepts.
const BLOCK_BYTES: u32 = 512;
/// Volume sizes are rounded up to a multiple of this: a size in decimal units seldom is one.
const WHOLE_BYTES: u64 = 4096;

/// Divisor of the memory limit that gives the limit of all RAM volumes together; the rest is for buffers, the
/// read cache and everything else.
const RAM_PART: u64 = 2;

/// Rounds a requested size up to whole blocks.
pub(crate) fn whole(size: Size) -> Size {
    size.up_to_whole(WHOLE_BYTES)
}

/// Admits the size of a new volume.
///
/// *Errors*: it is below the minimum.
pub(crate) fn admit_size(name: &VolumeName, size: Size) -> Result<(), Refusal> {
    if size >= VOLUME_SIZE_MIN {
        return Ok(());
    }
    let message = format!("volume {name} of {} is too small", size.iec());
    let hint = format!("give at least {}, such as 100GiB", VOLUME_SIZE_MIN.exact());
    Err(Refusal::new(code::VOLUME_SIZE, message, hint))
}

/// Volumes, with or without a pool.
pub struct Volumes {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) memory: Arc<Memory>,
}

impl Volumes {
    /// Creates an empty volume (or one with the content of its file), which is not presented yet. Its size is
    /// rounded up to whole blocks.
    ///
    /// *Errors*: the name is taken, there is no such pool, the size or the block size is out of range, the file
    /// is in use; or the refusal of the data plane.
    pub async fn create(&self, request: NewVolume) -> Result<VolumeReport, Refusal> {
        let mut made = self.create_all(vec![request]).await?;
        // One request was given, so one volume was created.
        Ok(made.remove(0))
    }

    /// Creates all of these volumes, or none, as [`Self::create`] does, with a single commit.
    pub(crate) async fn create_all(&self, requests: Vec<NewVolume>) -> Result<Vec<VolumeReport>, Refusal> {
        let turn = self.core.lock_changes().await;
        let mut next = State::clone(&self.core.state());
        // All names, those of pools included: the data plane is asked once, not for each volume.
        let mut taken: BTreeSet<VolumeName> = next.volumes.keys().cloned().collect();
        taken.extend(self.core.engine.volume_names(Order::VolumeNames).await?);
        let mut made = Vec::new();
        for request in requests {
            // Claimed names include those earlier in this batch.
            let one = if taken.insert(request.name.clone()) {
                self.make(&request, &mut next).await
            } else {
                let message = format!("volume {} already exists", request.name);
                Err(Refusal::new(code::NAME_TAKEN, message, "choose another name"))
            };
            match one {
                Ok(one) => made.push(one),
                Err(refusal) => return Err(self.roll_back_created(made, refusal).await),
            }
        }
        // Volumes in pools are committed by their pools; this commit records the others.
        // The lock is held since `next` was cloned, so no volume of another change is lost.
        match self.core.commit(&turn, |state| state.volumes = next.volumes) {
            Ok(()) => Ok(made.into_iter().map(|one| one.report).collect()),
            Err(refusal) => Err(self.roll_back_created(made, refusal).await),
        }
    }

    /// Resizes the volume, rounded up to whole blocks, and notifies its initiators.
    ///
    /// *Errors*: there is none of this name, it would shrink, or there is not enough space.
    pub async fn resize(&self, name: &VolumeName, request: Resize) -> Result<VolumeReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let volume = self.opened(name).await?.ok_or_else(|| unknown(name))?;
        let size = whole(request.size);
        if size < volume.size {
            return Err(Refusal::new(
                code::VOLUME_SHRINK,
                format!("volume {name} has {} and cannot shrink to {}", volume.size, request.size),
                "give a larger size, or create a smaller volume and copy the data",
            ));
        }
        if volume.backend == Backend::Ram {
            self.admit_ram(&self.core.state(), name, size)?;
        }
        let order = Order::ResizeVolume { volume: name.clone(), size };
        // The data plane first: the recorded size is the one that it has reached.
        let grown = self.core.engine.volume(order).await?;
        self.core.commit(&turn, |state| {
            // A volume in a pool has no record here.
            if let Some(record) = state.volumes.get_mut(name) {
                record.size = grown.size;
            }
        })?;
        Ok(grown)
    }

    /// Resizes these volumes and notifies their initiators. They are not looked up first, and the state is
    /// written once at the end: a volume without a pool that grows is memory or nothing, and ends with the
    /// daemon.
    ///
    /// *Errors*: the refusal for one volume, with those before it, which stay grown.
    pub(crate) async fn grow_all<'a>(
        &self,
        wanted: &'a [(VolumeName, Size)],
    ) -> Result<(), (&'a [(VolumeName, Size)], Refusal)> {
        let turn = self.core.lock_changes().await;
        let mut sizes = BTreeMap::new();
        let mut done = Ok(());
        // `next` carries the sizes granted so far, so that RAM volumes are judged together.
        let mut next = State::clone(&self.core.state());
        for (at, (name, size)) in wanted.iter().enumerate() {
            let is_ram = next.volumes.get(name).is_some_and(|record| record.backend == Backend::Ram);
            let admitted = if is_ram { self.admit_ram(&next, name, *size) } else { Ok(()) };
            let grown = match admitted {
                Ok(()) => self.core.engine.volume(Order::ResizeVolume { volume: name.clone(), size: *size }).await,
                Err(refusal) => Err(refusal),
            };
            match grown {
                Ok(grown) => {
                    next.volumes.entry(name.clone()).and_modify(|record| record.size = grown.size);
                    sizes.insert(name, grown.size);
                }
                Err(refusal) => {
                    // Volumes before this one have grown, and no volume shrinks.
                    done = Err((&wanted[..at], refusal));
                    break;
                }
            }
        }
        // Volumes in pools are recorded by their pools.
        sizes.retain(|name, _| self.core.state().volumes.contains_key(*name));
        if !sizes.is_empty() {
            let kept = self.core.commit(&turn, |state| {
                for (name, size) in sizes {
                    state.volumes.entry(name.clone()).and_modify(|record| record.size = size);
                }
            });
            kept.map_err(|refusal| (wanted, refusal))?;
        }
        done
    }

    /// Removes all reservations and registrations of the volume and notifies their holders (unit attention).
    ///
    /// *Errors*: there is no such volume, or it is offline.
    pub async fn clear_reservations(&self, name: &VolumeName) -> Result<VolumeReport, Refusal> {
        let _turn = self.core.lock_changes().await;
        self.opened(name).await?.ok_or_else(|| unknown(name))?;
        self.core.engine.volume(Order::ClearReservations { volume: name.clone() }).await
    }

    /// Applies the recorded policies to the volumes of an open pool; policies of deleted volumes are dropped.
    pub(crate) async fn apply_policies(&self, turn: &ChangeGuard<'_>, pool: &Name) -> Result<(), Refusal> {
        let volumes = self.core.engine.volumes(Order::Volumes).await?;
        let own: Vec<(VolumeName, PolicyRecord)> = self
            .core
            .state()
            .policies
            .iter()
            .filter(|(name, _)| name.pool() == Some(pool))
            .map(|(name, record)| (name.clone(), *record))
            .collect();
        for (name, PolicyRecord { volume_id, policy }) in own {
            // Compared by identity: a new volume of the same name does not inherit the policy.
            if !volumes.iter().any(|volume| volume.name == name && volume.id == volume_id) {
                self.core.commit(turn, |state| {
                    state.policies.remove(&name);
                })?;
                continue;
            }
            // The record stays, and applies when the pool is opened again.
            if volumes.iter().any(|volume| volume.name == name && volume.state != VolumeState::Online) {
                continue;
            }
            // Refused, as without a log for write-back: the volume stays online and writes through.
            if let Err(refusal) = self.core.engine.volume(Order::SetVolumePolicy { volume: name.clone(), policy }).await
            {
                let subject = Subject::new(SubjectKind::Volume, &name);
                let sentence = format!("volume {name} uses write-through: {}", refusal.message);
                self.core.raise(event::POLICY_DROPPED, subject, sentence);
            }
        }
        Ok(())
    }

    /// Records the shapes of presented volumes, for the time in which they are not open.
    pub(crate) async fn learn_shapes(&self, turn: &ChangeGuard<'_>) -> Result<(), Refusal> {
        // Spares an order to the data plane where nothing is presented.
        if self.core.state().presentations.is_empty() && self.core.state().shapes.is_empty() {
            return Ok(());
        }
        let shapes = self.core.engine.unit_shapes(Order::UnitShapes).await?;
        if !self.core.state().lacks_shapes(&shapes) {
            return Ok(());
        }
        self.core.commit(turn, |state| state.learn_shapes(&shapes))?;
        // The data plane answers for absent volumes from these shapes.
        self.access.apply().await
    }

    /// Calls [`Volumes::learn_shapes`] if a shape has changed and no other change is in progress.
    pub(crate) async fn note_shapes(&self) -> Result<(), Refusal> {
        // Without the lock first, because this runs in every round.
        if self.core.state().presentations.is_empty() && self.core.state().shapes.is_empty() {
            return Ok(());
        }
        let shapes = self.core.engine.unit_shapes(Order::UnitShapes).await?;
        match self.core.try_lock_changes().filter(|_| self.core.state().lacks_shapes(&shapes)) {
            Some(turn) => self.learn_shapes(&turn).await,
            None => Ok(()),
        }
    }

    /// Returns the presented volumes of pools that are not open.
    fn missing(&self, open: &BTreeSet<VolumeName>) -> Vec<VolumeReport> {
        let state = self.core.state();
        let closed = state.pools.keys().filter_map(|pool| Some((pool, self.access.closed_pools.of(pool)?)));
        let away = closed.flat_map(|(pool, waiting)| {
            let why = format!("pool {pool} is not open: {}", waiting.reason);
            state.away_with(pool, &why).collect::<Vec<_>>()
        });
        away.filter(|volume| !open.contains(&volume.name)).collect()
    }

    /// Returns the volume as the data plane reports it; `None` when it is not open.
    pub(crate) async fn opened(&self, name: &VolumeName) -> Result<Option<VolumeReport>, Refusal> {
        Ok(self.core.engine.volumes(Order::Volume { volume: name.clone() }).await?.pop())
    }

    /// Returns the size of the new volume, and the file that was created for it, if any.
    async fn size_of(&self, request: &NewVolume, backend: &Backend) -> Result<(Size, Option<String>), Refusal> {
        let name = &request.name;
        request.size.map_or(Ok(()), |size| admit_size(name, size))?;
        match (backend, request.size.map(whole)) {
            // An existing file or device determines the size.
            (Backend::File { path }, None) => {
                let held =
                    self.core.engine.disk(Order::InspectDisk { path: path.clone(), remote: None }).await?.size.bytes();
                // A partial block at the end of the file is not part of the volume.
                let size = Size::new(held - held % 4096);
                admit_size(name, size).map(|()| (size, None))
            }
            // `create_file` fails on a file that appears in between, so no content is overwritten.
            (Backend::File { path }, Some(size)) if !Path::new(path).exists() => {
                create_file(&self.core, Path::new(path), size)?;
                Ok((size, Some(path.clone())))
            }
            (_, Some(size)) => Ok((size, None)),
            (_, None) => {
                let message = format!("volume {name} has no size");
                Err(Refusal::new(code::VOLUME_SIZE, message, "give one, such as 100GiB"))
            }
        }
    }

    /// Admits a RAM volume of this size beside the other ones: together they may use half of the memory limit.
    /// Beyond it the kernel would kill the daemon once they fill, and with it every volume.
    fn admit_ram(&self, state: &State, name: &VolumeName, size: Size) -> Result<(), Refusal> {
        // No report before the first check of the memory monitor.
        let Some(memory) = self.memory.report() else { return Ok(()) };
        let others = state.volumes.iter().filter(|(other, record)| *other != name && record.backend == Backend::Ram);
        let others = others.map(|(_, record)| record.size.bytes()).fold(0, u64::saturating_add);
        let most = memory.limit.bytes() / RAM_PART;
        if others.saturating_add(size.bytes()) <= most {
            return Ok(());
        }
        let (limit, limited_by) = (memory.limit.iec(), &memory.limited_by);
        let (most, left) = (Size::new(most).iec(), Size::new(most.saturating_sub(others)).iec());
        let message = format!(
            "volume {name} of {} does not fit in memory: volumes may use {most} of the limit {limit} \
             ({limited_by}), and {left} is left",
            size.iec()
        );
        Err(Refusal::new(code::LIMIT_REACHED, message, "make it smaller, or create it in a pool or a file"))
    }

    /// Creates the volume in the data plane, and adds it to `state` if it has no pool that records it.
    async fn make(&self, request: &NewVolume, state: &mut State) -> Result<MadeVolume, Refusal> {
        let name = &request.name;
        let backend = admit_backend(state, request)?;
        if let Backend::File { path } = &backend {
            admit_not_own(&self.core, Path::new(path))?;
        }
        let block_bytes = request.block_bytes.unwrap_or(BLOCK_BYTES);
        if !matches!(block_bytes, 512 | 4096) {
            let message = format!("a block size of {block_bytes} bytes is not supported");
            return Err(Refusal::new(code::BLOCK_SIZE_INVALID, message, "choose 512 or 4096"));
        }
        let (size, file) = self.size_of(request, &backend).await?;
        if backend == Backend::Ram {
            self.admit_ram(state, name, size)?;
        }
        // An async block, so that every refusal in it removes the file that was created.
        let made = async {
            // The identity, not the name, ties presentations and policies to the volume.
            let record = VolumeRecord { id: VolumeId::from_random(random()?), size, block_bytes, backend };
            let spec: VolumeSpec = record.spec(name);
            let report = self.core.engine.volume(Order::CreateVolume(spec)).await?;
            // The data plane may round the size; the record has what it granted.
            Ok((VolumeRecord { size: report.size, ..record }, report))
        };
        match made.await {
            Ok((record, report)) => {
                if name.pool().is_none() {
                    state.volumes.insert(name.clone(), record);
                }
                Ok(MadeVolume { report, file })
            }
            Err(refusal) => {
                file.iter().for_each(|file| remove_file(&self.core, file));
                Err(refusal)
            }
        }
    }

    /// Deletes the volumes that were just created, and returns the refusal.
    async fn roll_back_created(&self, made: Vec<MadeVolume>, refusal: Refusal) -> Refusal {
        // In reverse order, and a file only after its volume has let go of it.
        for MadeVolume { report, file } in made.into_iter().rev() {
            let gone = self.core.engine.done(Order::DeleteVolume { volume: report.name.clone() }).await;
            match gone {
                Ok(()) => file.iter().for_each(|file| remove_file(&self.core, file)),
                Err(failed) => tracing::error!(volume = %report.name, %failed, "made, and not taken back"),
            }
        }
        refusal
    }

    /// Lists all known volumes, including those whose backend is missing.
    pub async fn list(&self) -> Result<Vec<VolumeReport>, Refusal> {
        let mut volumes = self.core.engine.volumes(Order::Volumes).await?;
        let open: BTreeSet<VolumeName> = volumes.iter().map(|volume| volume.name.clone()).collect();
        let state = self.core.state();
        let lost = state.volumes.iter().filter(|(name, _)| !open.contains(name));
        volumes.extend(lost.map(lost_volume));
        volumes.extend(self.missing(&open));
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(volumes)
    }

    /// Returns the volumes that are offline: those whose backend is missing, and those of open pools that
    /// cannot be opened. `open` are all names in the data plane, sorted.
    pub(crate) async fn away(&self, open: &[VolumeName]) -> Result<Vec<VolumeReport>, Refusal> {
        let state = self.core.state();
        let lost = state.volumes.iter().filter(|(name, _)| open.binary_search(name).is_err());
        let mut away: Vec<VolumeReport> = lost.map(lost_volume).collect();
        away.extend(self.core.engine.volumes(Order::HeldVolumes).await?);
        Ok(away)
    }

    /// Returns one volume. *Errors*: there is none of this name.
    pub async fn report(&self, name: &VolumeName) -> Result<VolumeReport, Refusal> {
        let open = self.opened(name).await?;
        let lost = || self.core.state().volumes.get_key_value(name).map(lost_volume);
        // Nothing to exclude, because the volume was found not to be open.
        let missing = || self.missing(&BTreeSet::new()).into_iter().find(|volume| volume.name == *name);
        open.or_else(lost).or_else(missing).ok_or_else(|| unknown_volume(name))
    }

    /// Returns the latency of the volume's commands since it was opened.
    ///
    /// *Errors*: there is none of this name, or it is not open.
    pub async fn latencies(&self, volume: &VolumeName) -> Result<Vec<LatencyReport>, Refusal> {
        self.core.engine.latencies(Order::Latencies { volume: volume.clone() }).await
    }
}

/// A volume that was just created, and the file that was created for it.
struct MadeVolume {
    report: VolumeReport,
    file: Option<String>,
}

fn remove_file(core: &Core, path: &str) {
    if let Err(error) = remove_created(core, Path::new(path)) {
        tracing::warn!(path, %error, "made for a volume that was refused, and not removed");
    }
}

/// Determines the back end of a new volume from its name and options.
fn admit_backend(state: &State, request: &NewVolume) -> Result<Backend, Refusal> {
    let name = &request.name;
    match (name.pool(), &request.backend) {
        (Some(pool), None) if state.pools.contains_key(pool) => pooled(request),
        (Some(pool), None) => Err(pools::unknown(pool)),
        (Some(pool), Some(_)) => Err(Refusal::new(
            code::OPTIONS_CONFLICT,
            format!("volume {name} is in pool {pool} and cannot have its own back end"),
            "omit the back end, or use a name without a pool",
        )),
        (None, Some(_))
            if request.provision.is_some()
                || request.granule.is_some()
                || request.zero_detection
                || request.encrypted =>
        {
            let message = format!("volume {name} has no pool");
            Err(Refusal::new(
                code::VOLUME_WITHOUT_POOL,
                message,
                "write POOL/VOLUME, or omit --thin and other pool options",
            ))
        }
        (None, None) => Err(Refusal::new(
            code::VOLUME_WITHOUT_POOL,
            format!("volume {name} has neither a pool nor a back end"),
            "write POOL/VOLUME, or give --file PATH, --ram or --null",
        )),
        (None, Some(NewBackend::Ram {})) => Ok(Backend::Ram),
        (None, Some(NewBackend::Null {})) => Ok(Backend::Null),
        (None, Some(NewBackend::File { path })) => admit_file(state, path),
    }
}

/// Admits a path that is neither a disk nor the file of another volume.
fn admit_file(state: &State, text: &str) -> Result<Backend, Refusal> {
    let path = admit_path(text)?;
    // The path is compared as well: a file that does not exist yet has no identity, but its path may be the one of a
    // volume whose file is missing.
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    // By identity, because hard links and loop devices of one file have different paths.
    let medium = BackingIdentity::at(&path);
    let same =
        |other: &str| real(Path::new(other)) == real(&path) || medium.is_some() && BackingIdentity::at(other) == medium;
    let taken = |what: String| Refusal::new(code::DISK_IN_USE, format!("{text} is {what}"), "choose another path");
    if let Some((disk, _)) = state.disks.iter().find(|(_, record)| same(&record.path)) {
        return Err(taken(format!("disk {disk}")));
    }
    let file = |backend: &Backend| matches!(backend, Backend::File { path } if same(path));
    if let Some((volume, _)) = state.volumes.iter().find(|(_, record)| file(&record.backend)) {
        return Err(taken(format!("the file of volume {volume}")));
    }
    // As given: a name in /dev/disk/by-id stays true when device names move.
    Ok(Backend::File { path: text.to_owned() })
}

/// Determines the provisioning of a volume in a pool, and checks that its options are compatible.
fn pooled(request: &NewVolume) -> Result<Backend, Refusal> {
    let NewVolume { stripe_unit, granule, zero_detection, encrypted, .. } = *request;
    // A stripe unit only makes sense with segments, so it selects them.
    let provision = match (request.provision, stripe_unit) {
        (None, Some(_)) => Provision::Segments,
        (provision, _) => provision.unwrap_or_default(),
    };
    let wrong = |message: &str, hint: &str| Err(Refusal::new(code::OPTIONS_CONFLICT, message, hint));
    match (provision, stripe_unit.is_some(), granule.is_some() || zero_detection || encrypted) {
        (Provision::Thin | Provision::Thick, true, _) => {
            wrong("a volume with a stripe unit has no map and cannot be thin", "omit --stripe-unit or --thin")
        }
        (Provision::Segments, _, true) => wrong(
            "a volume with a stripe unit has no granules and cannot be encrypted",
            "omit the stripe unit, or the granule, zero detection and encryption",
        ),
        _ => Ok(Backend::Pool { stripe_unit, provision, granule, zero_detection, encrypted }),
    }
}

/// Report of a recorded volume whose file is missing.
fn lost_volume((name, record): (&VolumeName, &VolumeRecord)) -> VolumeReport {
    let VolumeRecord { id, size, block_bytes, backend } = record;
    let state = (VolumeState::Missing, None);
    VolumeReport::offline(name.clone(), *id, *size, *block_bytes, backend.clone(), state)
}
