//! Reconciliation of disks, pools, volumes and portals with a document: created where missing, and refused
//! where they exist in a form that cannot be changed.

use super::Document;
use super::document::{DiskEntry, PoolEntry, VolumeEntry};
use super::plan::{Step, StepKind, changes};
use crate::change::volumes::{admit_size, whole};
use crate::config::Configuration;
use crate::request::{NewBackend, NewGroup};
use crate::state::State;
use model::{
    Backend, DiskName, GroupReport, MemberSize, Name, POOL_VOLUMES_MAX, PoolReport, PortalAddress, Provision, Refusal,
    Size, VOLUMES_MAX, VolumeName, VolumeReport, code,
};
use std::collections::{BTreeMap, BTreeSet};

/// Objects to create, set and grow outside the access rules.
#[derive(Debug, Default)]
pub(super) struct ResourceChanges {
    pub disks: Vec<DiskName>,
    pub spares: Vec<DiskName>,
    pub pools: Vec<Name>,
    pub volumes: Vec<VolumeName>,
    pub portals: Vec<PortalAddress>,
    pub grown: Vec<(VolumeName, Size)>,
    pub volume_settings: Vec<(VolumeName, BTreeMap<String, String>)>,
    pub pool_settings: Vec<(Name, BTreeMap<String, String>)>,
}

/// Existing objects by name.
pub(super) struct ExistingObjects<'a> {
    state: &'a State,
    pools: BTreeMap<&'a Name, &'a PoolReport>,
    volumes: BTreeMap<&'a VolumeName, &'a VolumeReport>,
}

impl<'a> ExistingObjects<'a> {
    pub(super) fn of(state: &'a State, pools: &'a [PoolReport], volumes: &'a [VolumeReport]) -> Self {
        let pools = pools.iter().map(|pool| (&pool.name, pool)).collect();
        Self { state, pools, volumes: volumes.iter().map(|volume| (&volume.name, volume)).collect() }
    }
}

/// Plan under construction.
#[derive(Default)]
struct Draft {
    makes: ResourceChanges,
    steps: Vec<Step>,
    /// New volumes by pool; those without a pool under `None`.
    made: BTreeMap<Option<Name>, usize>,
    /// Space that volumes need reserved, by existing pool.
    wanted: BTreeMap<Name, Vec<(VolumeName, u64)>>,
}

impl Configuration {
    pub(super) fn plan_resources(
        &self,
        document: &Document,
        known: &ExistingObjects<'_>,
    ) -> Result<(ResourceChanges, Vec<Step>), Refusal> {
        let mut draft = Draft::default();
        // Dependencies first, so that the steps read in the order in which they are carried out.
        document.disk.iter().try_for_each(|(name, entry)| draft.disk(name, entry, known))?;
        document.pool.iter().try_for_each(|(name, entry)| draft.pool(name, entry, known))?;
        document.volume.iter().try_for_each(|(name, entry)| draft.volume(name, entry, known))?;
        // Limits and space are judged for the document as a whole, before anything is created.
        draft.admit_count(known)?;
        draft.admit_room(known)?;
        // Portals that failed to open are listed, too, and must not be added a second time.
        let open: BTreeSet<_> = self.access.portals().iter().map(|portal| portal.address).collect();
        for &PortalAddress(address) in document.portal.keys().filter(|at| !open.contains(&at.0)) {
            draft.step(StepKind::Create, format!("portal {address}"), String::new());
            draft.makes.portals.push(PortalAddress(address));
        }
        Ok((draft.makes, draft.steps))
    }
}

impl Draft {
    fn step(&mut self, kind: StepKind, subject: String, change: String) {
        self.steps.push(Step::unnoticed(kind, subject, change));
    }

    fn disk(&mut self, name: &DiskName, entry: &DiskEntry, known: &ExistingObjects<'_>) -> Result<(), Refusal> {
        let record = known.state.disks.get(name);
        match record {
            None => {
                for (table, chap) in [("chap", &entry.chap), ("mutual_chap", &entry.mutual_chap)] {
                    // A new remote disk needs its secrets in the document.
                    super::access::admit_secret(&format!("disk.{name}.{table}"), chap.as_ref(), None)?;
                }
                self.step(StepKind::Create, format!("disk {name}"), entry.path.clone());
                self.makes.disks.push(name.clone());
            }
            Some(record) if !is_same_place(&record.path, &entry.path) => {
                let message = format!("disk {name} is at {}, and the document says {}", record.path, entry.path);
                return Err(otherwise(message, "write its path, or rename the other disk"));
            }
            Some(_) => {}
        }
        let Some(wanted) = &entry.spare else { return Ok(()) };
        let is = record.and_then(|record| record.spare.as_ref());
        // A spare that was used is a member now; a repeated document does not make it a spare again.
        let has_taken = || known.state.pools.values().any(|pool| pool.taken.iter().any(|taken| taken.spare == *name));
        match is {
            Some(spare) if spare.pool == wanted.pool => {}
            None if !has_taken() => {
                let of = wanted.pool.as_ref().map_or_else(|| "any pool".to_owned(), |pool| format!("pool {pool}"));
                self.step(StepKind::Change, format!("disk {name}"), format!("a spare for {of}"));
                self.makes.spares.push(name.clone());
            }
            None => {}
            Some(spare) => {
                let of = spare.pool.as_ref().map_or_else(|| "any pool".to_owned(), |pool| format!("pool {pool}"));
                let message = format!("disk {name} is a spare for {of}, and the document says otherwise");
                return Err(otherwise(message, format!("remove it first with blockyard disk spare remove {name}")));
            }
        }
        Ok(())
    }

    fn pool(&mut self, name: &Name, entry: &PoolEntry, known: &ExistingObjects<'_>) -> Result<(), Refusal> {
        admit_read_only(name, entry, known)?;
        match known.pools.get(name) {
            None => {
                let of = entry.groups.iter().map(said_of_group).collect::<Vec<_>>().join(", ");
                self.step(StepKind::Create, format!("pool {name}"), of);
                self.makes.pools.push(name.clone());
            }
            Some(pool) => admit_pool(pool, entry, known.state)?,
        }
        let policy = known.state.pools.get(name).map(|record| record.policy.clone()).unwrap_or_default();
        let mut wanted = policy.clone();
        // Applied to a copy, so that an invalid setting is refused in the plan.
        entry.settings.iter().try_for_each(|(key, value)| wanted.set(key, value))?;
        if let Some(change) = changes(&policy.settings(), &wanted.settings()) {
            self.step(StepKind::Change, format!("pool {name}"), change);
            self.makes.pool_settings.push((name.clone(), entry.settings.clone()));
        }
        Ok(())
    }

    fn volume(&mut self, name: &VolumeName, entry: &VolumeEntry, known: &ExistingObjects<'_>) -> Result<(), Refusal> {
        let volume = known.volumes.get(name).copied();
        let size = entry.size.map(whole);
        let is_thin = entry.provision == Some(Provision::Thin);
        let kept = match volume {
            None => {
                entry.size.map_or(Ok(()), |size| admit_size(name, size))?;
                let told = size.map(|size| size.to_string()).unwrap_or_default();
                self.step(StepKind::Create, format!("volume {name}"), told);
                self.makes.volumes.push(name.clone());
                *self.made.entry(name.pool().cloned()).or_default() += 1;
                // A thin volume reserves nothing.
                size.filter(|_| !is_thin).map(Size::bytes)
            }
            Some(volume) => {
                admit_volume(volume, entry)?;
                let larger = size.filter(|&size| size > volume.size);
                if let Some(size) = larger {
                    self.step(StepKind::Change, format!("volume {name}"), format!("{} → {size}", volume.size));
                    self.makes.grown.push((name.clone(), size));
                }
                // Only the growth needs space: the present size is reserved already.
                // The filter above leaves larger sizes only, so the difference cannot wrap.
                larger.filter(|_| !is_thin).map(|size| size.bytes() - volume.size.bytes())
            }
        };
        if let (Some(pool), Some(bytes)) = (name.pool(), kept) {
            self.wanted.entry(pool.clone()).or_default().push((name.clone(), bytes));
        }
        let policy = volume.and_then(|volume| volume.policy).unwrap_or_default();
        let mut wanted = policy;
        entry.settings.iter().try_for_each(|(key, value)| wanted.set(key, value))?;
        if let Some(change) = changes(&policy.settings(), &wanted.settings()) {
            self.step(StepKind::Change, format!("volume {name}"), change);
            self.makes.volume_settings.push((name.clone(), entry.settings.clone()));
        }
        Ok(())
    }

    /// Admits the new volumes against the limits of each pool and of the array.
    fn admit_count(&self, known: &ExistingObjects<'_>) -> Result<(), Refusal> {
        let refuse = |whose: String, most: usize, are: usize, made: usize| {
            let message = format!("{whose} supports {most} volumes; it has {are}, and the document adds {made}");
            Err(Refusal::new(code::LIMIT_REACHED, message, "list fewer, or delete unused volumes"))
        };
        for (pool, &made) in self.made.iter().filter_map(|(pool, made)| Some((pool.as_ref()?, made))) {
            let are = known.volumes.keys().filter(|name| name.pool() == Some(pool)).count();
            if are + made > POOL_VOLUMES_MAX {
                return refuse(format!("pool {pool}"), POOL_VOLUMES_MAX, are, made);
            }
        }
        let (are, made) = (known.volumes.len(), self.made.values().sum());
        if are + made > VOLUMES_MAX { refuse("the array".to_owned(), VOLUMES_MAX, are, made) } else { Ok(()) }
    }

    /// Admits the reserved space of the volumes together, in existing pools. The size of a new pool is not
    /// known yet.
    fn admit_room(&self, known: &ExistingObjects<'_>) -> Result<(), Refusal> {
        for (name, wanted) in &self.wanted {
            let Some(pool) = known.pools.get(name) else { continue };
            let free = pool.size.bytes().saturating_sub(pool.used.bytes());
            let needed = wanted.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
            if needed > free {
                let of: Vec<String> = wanted.iter().map(|(volume, _)| volume.to_string()).collect();
                let message = format!(
                    "pool {name} has {} free, but {} are needed for {}",
                    Size::new(free),
                    Size::new(needed),
                    of.join(", ")
                );
                return Err(Refusal::new(
                    code::POOL_FULL,
                    message,
                    "make them smaller or thin, or add disks to the pool",
                ));
            }
        }
        Ok(())
    }
}

fn otherwise(message: String, hint: impl Into<String>) -> Refusal {
    Refusal::new(code::DOCUMENT_CONFLICT, message, hint.into())
}

/// Returns true when both paths lead to one file, device or remote disk.
fn is_same_place(one: &str, other: &str) -> bool {
    let real = |path: &str| std::fs::canonicalize(path).ok();
    let remote = |path: &str| path.parse::<model::RemoteUrl>().ok().map(|url| url.address);
    // Equal text first, because the path of a missing disk leads nowhere.
    one == other
        || remote(one).is_some_and(|address| remote(other) == Some(address))
        || real(one).is_some_and(|place| real(other) == Some(place))
}

fn said_of_group(group: &NewGroup) -> String {
    format!("{} of {} disks", group.level, group.disks.len())
}

/// Admits an entry of an existing pool: a document does not change its groups.
fn admit_pool(pool: &PoolReport, entry: &PoolEntry, state: &State) -> Result<(), Refusal> {
    let name = &pool.name;
    // A spare stands for the disk that it replaced, so an export from before the failure still matches.
    let stands_for: BTreeMap<&DiskName, &str> = state
        .pools
        .get(name)
        .into_iter()
        .flat_map(|record| record.taken.iter().map(|taken| (&taken.spare, taken.of.as_str())))
        .collect();
    let fits = |(group, wanted): (&GroupReport, &NewGroup)| {
        let is_member = |disk: &DiskName| {
            let named = |own: &DiskName| own == disk || stands_for.get(own).is_some_and(|of| *of == disk.as_str());
            group.members.iter().any(|member| member.disk.as_ref().is_some_and(named))
        };
        let strange = wanted.disks.iter().filter(|disk| !is_member(disk)).count();
        // Lost members have no name here, so the document may name as many disks that are unknown.
        let lost = group.members.iter().filter(|member| member.disk.is_none()).count();
        let chunk = wanted.chunk.is_none_or(|chunk| chunk == group.chunk);
        let used = match wanted.member_size {
            Some(MemberSize::Bytes(size)) => size.bytes() >> 20 == group.member_size.bytes() >> 20,
            // The sizes of the disks at the creation of the group are no longer known, so these two always
            // match.
            Some(MemberSize::Rounded | MemberSize::Exact) | None => true,
        };
        let members = strange <= lost && wanted.disks.len() + lost >= group.members.len();
        group.level == wanted.level
            && chunk
            && used
            && members
            && wanted.no_integrity != group.integrity
            && wanted.disks.len() <= group.members.len()
    };
    if pool.groups.len() == entry.groups.len() && pool.groups.iter().zip(&entry.groups).all(fits) {
        return Ok(());
    }
    let said = |group: &GroupReport| {
        let disks = group.members.iter().map(|member| member.disk.as_ref().map_or("a lost disk", DiskName::as_str));
        let plain = if group.integrity { "" } else { " without integrity" };
        let (disks, chunk, used) = (disks.collect::<Vec<_>>().join(" "), group.chunk.iec(), group.member_size.iec());
        format!("{} of {disks}, chunks of {chunk}, member size {used}{plain}", group.level)
    };
    let is: Vec<String> = pool.groups.iter().map(said).collect();
    let message = format!("pool {name} is {}, and the document says otherwise", is.join(", and "));
    Err(otherwise(message, "write its present layout; change it with blockyard pool add-group and disk replace"))
}

/// Admits the read-only flag of an entry: only an import changes it, because hosts may lose access.
fn admit_read_only(name: &Name, entry: &PoolEntry, known: &ExistingObjects<'_>) -> Result<(), Refusal> {
    let is = known.state.pools.get(name).is_some_and(|record| record.read_only.is_some());
    match entry.read_only {
        Some(true) if !is => Err(otherwise(
            format!("pool {name} was not imported read-only, and the document says that it is"),
            format!(
                "remove read_only, or run blockyard pool export {name} and blockyard pool import {name} --read-only"
            ),
        )),
        Some(false) if is => Err(otherwise(
            format!("pool {name} was imported read-only, and the document says otherwise"),
            format!("remove read_only, or run blockyard pool import {name}"),
        )),
        _ => Ok(()),
    }
}

/// Admits an entry of an existing volume: the options of its creation cannot change.
fn admit_volume(volume: &VolumeReport, entry: &VolumeEntry) -> Result<(), Refusal> {
    let name = &volume.name;
    if entry.size.is_some_and(|size| whole(size) < volume.size) {
        let message =
            format!("volume {name} is {} and the document says {}", volume.size, entry.size.unwrap_or_default());
        return Err(otherwise(message, "volumes cannot shrink: write its size or a larger one"));
    }
    // All differences are reported at once, rather than one per attempt.
    let mut differs: Vec<String> = Vec::new();
    let mut differ = |what: &str, is: String, wanted: String| {
        if is != wanted {
            differs.push(format!("{what} is {is}, and the document says {wanted}"));
        }
    };
    let size = |size: Option<Size>| size.map_or_else(|| "what the pool chose".to_owned(), Size::iec);
    differ("its block size", volume.block_bytes.to_string(), entry.block_bytes.unwrap_or(512).to_string());
    match &volume.backend {
        Backend::Pool { stripe_unit, provision, granule, zero_detection, encrypted } => {
            // The same default as at creation.
            let usual = if entry.stripe_unit.is_some() { Provision::Segments } else { Provision::Thick };
            let wanted = entry.provision.unwrap_or(usual);
            differ("its provisioning", provision.as_str().to_owned(), wanted.as_str().to_owned());
            differ("its zero detection", on(*zero_detection), on(entry.zero_detection));
            differ("its encryption", on(*encrypted), on(entry.encrypted));
            // Compared only where the document states it; otherwise the pool may choose.
            entry.granule.iter().for_each(|&wanted| differ("its granule", granule_of(*granule), wanted.iec()));
            entry.stripe_unit.iter().for_each(|&wanted| differ("its stripe unit", size(*stripe_unit), wanted.iec()));
            differ("its backend", "its pool".to_owned(), entry.backend.as_ref().map_or("its pool".to_owned(), backend));
        }
        own => {
            let is = backend_of(own);
            // An absent backend leaves the present one.
            differ("its backend", is.clone(), entry.backend.as_ref().map_or(is, backend));
        }
    }
    if differs.is_empty() {
        return Ok(());
    }
    let message = format!("volume {name} has other creation settings: {}", differs.join("; "));
    Err(otherwise(message, "write its settings, or create a volume with another name and copy the data"))
}

fn granule_of(granule: Option<Size>) -> String {
    granule.unwrap_or(Size::new(64 << 10)).iec()
}

fn on(is: bool) -> String {
    if is { "on" } else { "off" }.to_owned()
}

fn backend(wanted: &NewBackend) -> String {
    match wanted {
        NewBackend::File { path } => format!("file {path}"),
        NewBackend::Ram {} => "ram".to_owned(),
        NewBackend::Null {} => "null".to_owned(),
    }
}

fn backend_of(is: &Backend) -> String {
    match is {
        Backend::File { path } => format!("file {path}"),
        other => other.as_str().to_owned(),
    }
}
