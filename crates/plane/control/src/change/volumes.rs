//! Volumes: made, grown, deleted.

use crate::access::Access;
use crate::change::disks::{admit_not_own, admit_path, create_file, remove_created};
use crate::change::pools;
use crate::core::{Core, Turn};
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

/// Bytes of a logical block, unless told otherwise: every host takes it.
const BLOCK_BYTES: u32 = 512;
/// Volumes have a whole number of these: a size in decimal units seldom is one, and is rounded up.
const WHOLE_BYTES: u64 = 4096;

/// Volumes in memory have one part in so many of the memory limit together; as much is left to buffers, the read cache and everything else.
const RAM_PART: u64 = 2;

/// The size that a volume has when this one is asked for.
pub(crate) fn whole(size: Size) -> Size {
    size.up_to_whole(WHOLE_BYTES)
}

/// Admits a new volume of this size.
///
/// *Errors*: it is smaller than volumes are.
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
    /// The volume is there, empty (or as the file is), and nobody sees it yet. Its size is rounded up to whole blocks.
    ///
    /// *Errors*: the name is taken, there is no such pool, the size or the block size is not possible,
    /// the file is in use; and what the data plane refuses.
    pub async fn create(&self, request: NewVolume) -> Result<VolumeReport, Refusal> {
        let mut made = self.create_all(vec![request]).await?;
        Ok(made.remove(0))
    }

    /// All of these volumes are there, or none; as [`Self::create`]. They are remembered together.
    pub(crate) async fn create_all(&self, requests: Vec<NewVolume>) -> Result<Vec<VolumeReport>, Refusal> {
        let turn = self.core.turn().await;
        let mut next = State::clone(&self.core.state());
        let mut taken: BTreeSet<VolumeName> = next.volumes.keys().cloned().collect();
        taken.extend(self.core.engine.volume_names(Order::VolumeNames).await?);
        let mut made = Vec::new();
        for request in requests {
            let one = if taken.insert(request.name.clone()) {
                self.make(&request, &mut next).await
            } else {
                let message = format!("there is a volume {} already", request.name);
                Err(Refusal::new(code::NAME_TAKEN, message, "choose another name"))
            };
            match one {
                Ok(one) => made.push(one),
                Err(refusal) => return Err(self.unmake(made, refusal).await),
            }
        }
        match self.core.commit(&turn, |state| state.volumes = next.volumes) {
            Ok(()) => Ok(made.into_iter().map(|one| one.report).collect()),
            Err(refusal) => Err(self.unmake(made, refusal).await),
        }
    }

    /// The volume has the new size, rounded up to whole blocks, and its initiators are told.
    ///
    /// *Errors*: there is none of this name, it would shrink, or there is no room.
    pub async fn resize(&self, name: &VolumeName, request: Resize) -> Result<VolumeReport, Refusal> {
        let turn = self.core.turn().await;
        let volume = self.opened(name).await?.ok_or_else(|| unknown(name))?;
        let size = whole(request.size);
        if size < volume.size {
            return Err(Refusal::new(
                code::VOLUME_SHRINK,
                format!("volume {name} has {} and does not shrink to {}", volume.size, request.size),
                "give a larger size, or make a smaller volume and copy",
            ));
        }
        if volume.backend == Backend::Ram {
            self.admit_ram(&self.core.state(), name, size)?;
        }
        let order = Order::ResizeVolume { volume: name.clone(), size };
        let grown = self.core.engine.volume(order).await?;
        self.core.commit(&turn, |state| {
            if let Some(record) = state.volumes.get_mut(name) {
                record.size = grown.size;
            }
        })?;
        Ok(grown)
    }

    /// These volumes have these sizes, which are larger than they were, and their initiators are told. None is looked at for that, and
    /// the state is written once: what is not in a pool is memory or nothing, and is gone with the daemon.
    ///
    /// *Errors*: one cannot grow so, and which have grown before it; they stay so.
    pub(crate) async fn grow_all<'a>(
        &self,
        wanted: &'a [(VolumeName, Size)],
    ) -> Result<(), (&'a [(VolumeName, Size)], Refusal)> {
        let turn = self.core.turn().await;
        let mut sizes = BTreeMap::new();
        let mut done = Ok(());
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
                    done = Err((&wanted[..at], refusal));
                    break;
                }
            }
        }
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

    /// No host has reserved the volume or is registered any more, and those that were are told.
    ///
    /// *Errors*: there is no such volume, or it does not serve.
    pub async fn clear_reservations(&self, name: &VolumeName) -> Result<VolumeReport, Refusal> {
        let _turn = self.core.turn().await;
        self.opened(name).await?.ok_or_else(|| unknown(name))?;
        self.core.engine.volume(Order::ClearReservations { volume: name.clone() }).await
    }

    /// The volumes of open pools have the policies that were set for them; of those that are gone nothing is known.
    pub(crate) async fn apply_policies(&self, turn: &Turn<'_>, pool: &Name) -> Result<(), Refusal> {
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
            if !volumes.iter().any(|volume| volume.name == name && volume.id == volume_id) {
                self.core.commit(turn, |state| {
                    state.policies.remove(&name);
                })?;
                continue;
            }
            if volumes.iter().any(|volume| volume.name == name && volume.state != VolumeState::Online) {
                continue;
            }
            if let Err(refusal) = self.core.engine.volume(Order::SetVolumePolicy { volume: name.clone(), policy }).await
            {
                let subject = Subject::new(SubjectKind::Volume, &name);
                let sentence = format!("volume {name} is written through: {}", refusal.message);
                self.core.raise(event::POLICY_DROPPED, subject, sentence);
            }
        }
        Ok(())
    }

    /// The state knows what hosts are told of presented volumes, for the time in which these are not open.
    pub(crate) async fn learn_shapes(&self, turn: &Turn<'_>) -> Result<(), Refusal> {
        if self.core.state().presentations.is_empty() && self.core.state().shapes.is_empty() {
            return Ok(());
        }
        let shapes = self.core.engine.unit_shapes(Order::UnitShapes).await?;
        if !self.core.state().lacks_shapes(&shapes) {
            return Ok(());
        }
        self.core.commit(turn, |state| state.learn_shapes(&shapes))?;
        self.access.apply().await
    }

    /// As [`Volumes::learn_shapes`], where that changes something and no other change is under way.
    pub(crate) async fn note_shapes(&self) -> Result<(), Refusal> {
        if self.core.state().presentations.is_empty() && self.core.state().shapes.is_empty() {
            return Ok(());
        }
        let shapes = self.core.engine.unit_shapes(Order::UnitShapes).await?;
        match self.core.turn_now().filter(|_| self.core.state().lacks_shapes(&shapes)) {
            Some(turn) => self.learn_shapes(&turn).await,
            None => Ok(()),
        }
    }

    /// The presented volumes of pools that are not open.
    fn missing(&self, open: &BTreeSet<VolumeName>) -> Vec<VolumeReport> {
        let state = self.core.state();
        let closed = state.pools.keys().filter_map(|pool| Some((pool, self.access.absences.of(pool)?)));
        let away = closed.flat_map(|(pool, waiting)| {
            let why = format!("pool {pool} is not open: {}", waiting.why);
            state.away_with(pool, &why).collect::<Vec<_>>()
        });
        away.filter(|volume| !open.contains(&volume.name)).collect()
    }

    /// The volume as the data plane sees it; none when it is not open.
    pub(crate) async fn opened(&self, name: &VolumeName) -> Result<Option<VolumeReport>, Refusal> {
        Ok(self.core.engine.volumes(Order::Volume { volume: name.clone() }).await?.pop())
    }

    /// The size that the volume gets, and the file that was created for it, if one was.
    async fn size_of(&self, request: &NewVolume, backend: &Backend) -> Result<(Size, Option<String>), Refusal> {
        let name = &request.name;
        request.size.map_or(Ok(()), |size| admit_size(name, size))?;
        match (backend, request.size.map(whole)) {
            (Backend::File { path }, None) => {
                let held =
                    self.core.engine.disk(Order::InspectDisk { path: path.clone(), remote: None }).await?.size.bytes();
                // What lies behind the last whole block is not part of the volume.
                let size = Size::new(held - held % 4096);
                admit_size(name, size).map(|()| (size, None))
            }
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

    /// Admits a volume in memory of this size beside the others of the state: they have half of the memory limit together, or the kernel would
    /// end the daemon once they are full, and with it every volume.
    fn admit_ram(&self, state: &State, name: &VolumeName, size: Size) -> Result<(), Refusal> {
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
            "volume {name} of {} does not fit into memory: of the limit of {limit} ({limited_by}) volumes may have {most}, and {left} is left",
            size.iec()
        );
        Err(Refusal::new(code::LIMIT_REACHED, message, "make it smaller, or keep it in a pool or a file"))
    }

    /// Makes the volume in the data plane; `state` has it when it has no pool that remembers it.
    async fn make(&self, request: &NewVolume, state: &mut State) -> Result<MadeVolume, Refusal> {
        let name = &request.name;
        let backend = admit_backend(state, request)?;
        if let Backend::File { path } = &backend {
            admit_not_own(&self.core, Path::new(path))?;
        }
        let block_bytes = request.block_bytes.unwrap_or(BLOCK_BYTES);
        if !matches!(block_bytes, 512 | 4096) {
            let message = format!("blocks of {block_bytes} bytes are not possible");
            return Err(Refusal::new(code::BLOCK_SIZE_INVALID, message, "choose 512 or 4096"));
        }
        let (size, file) = self.size_of(request, &backend).await?;
        if backend == Backend::Ram {
            self.admit_ram(state, name, size)?;
        }
        let made = async {
            let record = VolumeRecord { id: VolumeId::from_random(random()?), size, block_bytes, backend };
            let spec: VolumeSpec = record.spec(name);
            let report = self.core.engine.volume(Order::CreateVolume(spec)).await?;
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

    /// These volumes are gone again; the refusal.
    async fn unmake(&self, made: Vec<MadeVolume>, refusal: Refusal) -> Refusal {
        for MadeVolume { report, file } in made.into_iter().rev() {
            let gone = self.core.engine.done(Order::DeleteVolume { volume: report.name.clone() }).await;
            match gone {
                Ok(()) => file.iter().for_each(|file| remove_file(&self.core, file)),
                Err(failed) => tracing::error!(volume = %report.name, %failed, "made, and not taken back"),
            }
        }
        refusal
    }

    /// All volumes that are known, also those whose file was not found.
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

    /// The volumes that do not serve: those whose file was not found, and those of open pools that are held back. `open` are the names
    /// of all that the data plane knows, sorted.
    pub(crate) async fn away(&self, open: &[VolumeName]) -> Result<Vec<VolumeReport>, Refusal> {
        let state = self.core.state();
        let lost = state.volumes.iter().filter(|(name, _)| open.binary_search(name).is_err());
        let mut away: Vec<VolumeReport> = lost.map(lost_volume).collect();
        away.extend(self.core.engine.volumes(Order::HeldVolumes).await?);
        Ok(away)
    }

    /// One volume. *Errors*: there is none of this name.
    pub async fn report(&self, name: &VolumeName) -> Result<VolumeReport, Refusal> {
        let open = self.opened(name).await?;
        let lost = || self.core.state().volumes.get_key_value(name).map(lost_volume);
        let missing = || self.missing(&BTreeSet::new()).into_iter().find(|volume| volume.name == *name);
        open.or_else(lost).or_else(missing).ok_or_else(|| unknown_volume(name))
    }

    /// How long commands of the volume took since it was opened.
    ///
    /// *Errors*: there is none of this name, or it is not open.
    pub async fn latencies(&self, volume: &VolumeName) -> Result<Vec<LatencyReport>, Refusal> {
        self.core.engine.latencies(Order::Latencies { volume: volume.clone() }).await
    }
}

/// A volume that was just made, and the file that was created for it.
struct MadeVolume {
    report: VolumeReport,
    file: Option<String>,
}

fn remove_file(core: &Core, path: &str) {
    if let Err(error) = remove_created(core, Path::new(path)) {
        tracing::warn!(path, %error, "made for a volume that was refused, and not removed");
    }
}

/// What holds the volume's data, by its name and by what was asked for.
fn admit_backend(state: &State, request: &NewVolume) -> Result<Backend, Refusal> {
    let name = &request.name;
    match (name.pool(), &request.backend) {
        (Some(pool), None) if state.pools.contains_key(pool) => pooled(request),
        (Some(pool), None) => Err(pools::unknown(pool)),
        (Some(pool), Some(_)) => Err(Refusal::new(
            code::OPTIONS_CONFLICT,
            format!("volume {name} lies in pool {pool} and can have no backend of its own"),
            "leave out the backend, or give it a name without a pool",
        )),
        (None, Some(_))
            if request.provision.is_some()
                || request.granule.is_some()
                || request.zero_detection
                || request.encrypted =>
        {
            let message = format!("volume {name} has no pool to take its space from");
            Err(Refusal::new(
                code::VOLUME_WITHOUT_POOL,
                message,
                "name it POOL/VOLUME, or leave out --thin and the like",
            ))
        }
        (None, None) => Err(Refusal::new(
            code::VOLUME_WITHOUT_POOL,
            format!("volume {name} has neither a pool nor a backend"),
            "name it POOL/VOLUME, or give --file PATH, --ram or --null",
        )),
        (None, Some(NewBackend::Ram {})) => Ok(Backend::Ram),
        (None, Some(NewBackend::Null {})) => Ok(Backend::Null),
        (None, Some(NewBackend::File { path })) => admit_file(state, path),
    }
}

/// Admits a path that no disk of ours and no other volume is at.
fn admit_file(state: &State, text: &str) -> Result<Backend, Refusal> {
    let path = admit_path(text)?;
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let same = |other: &str| real(Path::new(other)) == real(&path);
    let taken = |what: String| Refusal::new(code::DISK_IN_USE, format!("{text} is {what}"), "choose another path");
    if let Some((disk, _)) = state.disks.iter().find(|(_, record)| same(&record.path)) {
        return Err(taken(format!("disk {disk}")));
    }
    let file = |backend: &Backend| matches!(backend, Backend::File { path } if same(path));
    if let Some((volume, _)) = state.volumes.iter().find(|(_, record)| file(&record.backend)) {
        return Err(taken(format!("the file of volume {volume}")));
    }
    Ok(Backend::File { path: text.to_owned() })
}

/// How a volume in a pool takes its space, as far as its parts fit together.
fn pooled(request: &NewVolume) -> Result<Backend, Refusal> {
    let NewVolume { stripe_unit, granule, zero_detection, encrypted, .. } = *request;
    let provision = match (request.provision, stripe_unit) {
        (None, Some(_)) => Provision::Segments,
        (provision, _) => provision.unwrap_or_default(),
    };
    let wrong = |message: &str, hint: &str| Err(Refusal::new(code::OPTIONS_CONFLICT, message, hint));
    match (provision, stripe_unit.is_some(), granule.is_some() || zero_detection || encrypted) {
        (Provision::Thin | Provision::Thick, true, _) => {
            wrong("a stripe unit is for volumes in segments, which have no map", "leave it out, or leave out --thin")
        }
        (Provision::Segments, _, true) => wrong(
            "a volume in segments has no granules, and cannot be encrypted",
            "leave out the stripe unit, or the granule, zero detection and encryption",
        ),
        _ => Ok(Backend::Pool { stripe_unit, provision, granule, zero_detection, encrypted }),
    }
}

/// A volume that the state knows, and whose file was not found.
fn lost_volume((name, record): (&VolumeName, &VolumeRecord)) -> VolumeReport {
    let VolumeRecord { id, size, block_bytes, backend } = record;
    let state = (VolumeState::Missing, None);
    VolumeReport::away(name.clone(), *id, *size, *block_bytes, backend.clone(), state)
}
