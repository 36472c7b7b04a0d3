//! The fake's pools: members, states and a catalogue, and no data.

use super::Fake;
use super::label::{self, Label, OnDisk};
use model::{
    Backend, DiskId, DiskName, GroupReport, GroupSpec, Level, MemberReport, MemberState, Name, Order, PoolId,
    PoolPolicy, PoolReport, PoolState, Progress, Refusal, Report, ScrubReport, ScrubState, Size, Subject, VolumeId,
    VolumeName, VolumeSpec, code, event,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Smaller disks are refused.
const DISK_BYTES_MIN: u64 = 64 << 20;

/// How many times the pools must be asked for before a rebuild has ended.
const REBUILD_TURNS: u64 = 4;

/// How many times the pools must be asked for before a scrub has ended.
const SCRUB_TURNS: u64 = 8;

type Disks = BTreeMap<DiskName, PathBuf>;

/// An open pool.
pub struct Pool {
    pub(super) catalogue: Catalogue,
    rebuild_turns: u64,
    rebuild_turned: Option<Instant>,
    scrub: Option<ScrubReport>,
    scrub_turns: u64,
    is_read_only: bool,
}

/// All that a pool's disks know of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Catalogue {
    pub id: PoolId,
    pub name: Name,
    generation: u64,
    size: Size,
    groups: Vec<Group>,
    volumes: Vec<Volume>,
    #[serde(default)]
    pub(super) log: Option<Group>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Group {
    level: Level,
    chunk: Size,
    pub(super) members: Vec<(DiskId, MemberState)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Volume {
    name: Name,
    id: VolumeId,
    size: Size,
    block_bytes: u32,
    backend: Backend,
}

impl Fake {
    pub(super) fn create_pool(
        &mut self,
        name: &Name,
        id: PoolId,
        specs: &[GroupSpec],
        force: bool,
    ) -> Result<Report, Refusal> {
        let mut groups = Vec::new();
        let mut paths = Vec::new();
        let mut size = 0;
        for spec in specs {
            let (group, bytes) = self.draft_group(spec, force, &mut paths)?;
            size += bytes;
            groups.push(group);
        }
        let size = Size::new(size);
        let (name, volumes, log) = (name.clone(), Vec::new(), None);
        let catalogue = Catalogue { id, name: name.clone(), generation: 1, size, groups, volumes, log };
        for (disk, path) in paths {
            label::write(&path, &Label { disk, pool: catalogue.clone() })?;
            self.note(
                &Order::OpenPool { id, force: false, accept_log_loss: false, read_only: false, key: None },
                false,
            );
        }
        self.pools.insert(name.clone(), Pool::new(catalogue));
        Ok(Report::Pool(self.pools[&name].report(&self.disks)))
    }

    /// A group of the disks, how much it holds, and where each disk of it is.
    pub(super) fn draft_group(
        &self,
        spec: &GroupSpec,
        force: bool,
        paths: &mut Vec<(DiskId, PathBuf)>,
    ) -> Result<(Group, u64), Refusal> {
        let (mut smallest, mut members) = (u64::MAX, Vec::new());
        for disk in &spec.disks {
            let path = self.disks[disk].clone();
            smallest = smallest.min(admit_disk(disk, &path, force)?);
            let disk = DiskId::from_random(crate::system::random()?);
            paths.push((disk, path));
            members.push((disk, MemberState::InSync));
        }
        let bytes = smallest * spec.level.data_members(members.len()) as u64;
        Ok((Group { level: spec.level, chunk: spec.chunk, members }, bytes))
    }

    pub(super) fn add_group(&mut self, name: &Name, spec: &GroupSpec, force: bool) -> Result<Report, Refusal> {
        let mut paths = Vec::new();
        let (group, bytes) = self.draft_group(spec, force, &mut paths)?;
        let pool = self.pools.get_mut(name).expect("control asks for open pools");
        pool.catalogue.groups.push(group);
        pool.catalogue.size = Size::new(pool.catalogue.size.bytes() + bytes);
        for (disk, path) in paths {
            label::write(&path, &Label { disk, pool: pool.catalogue.clone() })?;
        }
        pool.save(&self.disks)?;
        Ok(self.pool_report(name))
    }

    /// The group has one more member, at once.
    pub(super) fn add_member(
        &mut self,
        name: &Name,
        group: Option<u16>,
        disk: &DiskName,
        force: bool,
    ) -> Result<Report, Refusal> {
        let bytes = admit_disk(disk, &self.disks[disk], force)?;
        let id = DiskId::from_random(crate::system::random()?);
        let pool = self.pools.get_mut(name).expect("control asks for open pools");
        let group = pool.catalogue.groups.get_mut(usize::from(group.unwrap_or(0))).ok_or_else(|| {
            let message = format!("pool {name} has no such group");
            Refusal::new(code::GROUP_UNKNOWN, message, "see blockyard pool show")
        })?;
        if !matches!(group.level, Level::Raid5 | Level::Raid6) {
            let message = format!("a group of {} gets no member", group.level);
            return Err(Refusal::new(code::GROUP_FIXED, message, "give the pool one more group"));
        }
        group.members.push((id, MemberState::InSync));
        pool.catalogue.size = Size::new(pool.catalogue.size.bytes() + bytes);
        label::write(&self.disks[disk], &Label { disk: id, pool: pool.catalogue.clone() })?;
        pool.save(&self.disks)?;
        Ok(self.pool_report(name))
    }

    /// Every group uses all of its disks, as they are now.
    pub(super) fn grow_pool(&mut self, name: &Name, group: Option<u16>) -> Result<Report, Refusal> {
        let sizes: BTreeMap<DiskId, u64> = labels(&self.disks)
            .into_iter()
            .filter_map(|(disk, label)| Some((label.disk, label::read(&self.disks[&disk]).ok()?.0.bytes())))
            .collect();
        let pool = self.pools.get_mut(name).expect("control asks for open pools");
        let groups = &pool.catalogue.groups;
        if let Some(group) = group.filter(|&group| usize::from(group) >= groups.len()) {
            let message = format!("pool {name} has no group {group}");
            return Err(Refusal::new(code::GROUP_UNKNOWN, message, "see blockyard pool show"));
        }
        let bytes = |group: &Group| {
            let smallest = group.members.iter().map(|(disk, _)| sizes.get(disk).copied().unwrap_or(0)).min();
            smallest.unwrap_or(0) * group.level.data_members(group.members.len()) as u64
        };
        let size = Size::new(groups.iter().map(bytes).sum());
        if size <= pool.catalogue.size {
            let message = format!("the disks of pool {name} have no room that it does not use");
            return Err(Refusal::new(code::GROUP_FULL_SIZE, message, "replace them by larger ones"));
        }
        pool.catalogue.size = size;
        pool.save(&self.disks)?;
        Ok(self.pool_report(name))
    }

    pub(super) fn open_pool(&mut self, id: PoolId, is_read_only: bool) -> Result<Report, Refusal> {
        let found: Vec<Label> =
            labels(&self.disks).into_iter().filter(|(_, label)| label.pool.id == id).map(|(_, label)| label).collect();
        let newest = found.iter().max_by_key(|label| label.pool.generation);
        let incomplete =
            || Refusal::new(code::POOL_INCOMPLETE, "too many disks of the pool are missing", "attach them");
        let mut catalogue = newest.ok_or_else(incomplete)?.pool.clone();
        for group in &mut catalogue.groups {
            for (disk, state) in &mut group.members {
                if !found.iter().any(|label| label.disk == *disk) {
                    *state = MemberState::Missing;
                }
            }
        }
        if catalogue.state() == PoolState::Failed {
            return Err(incomplete());
        }
        let name = catalogue.name.clone();
        self.pools.insert(name.clone(), Pool { is_read_only, ..Pool::new(catalogue) });
        Ok(Report::Pool(self.pools[&name].report(&self.disks)))
    }

    pub(super) fn close_pool(&mut self, name: &Name) -> Report {
        self.pools.remove(name);
        Report::Done
    }

    pub(super) fn destroy_pool(&mut self, name: &Name) -> Result<Report, Refusal> {
        let pool = self.pools.remove(name).expect("control destroys pools that are open");
        for (disk, found) in labels(&self.disks) {
            if found.pool.id == pool.catalogue.id {
                label::erase(&self.disks[&disk])?;
                self.note(&Order::DestroyPool { pool: name.clone() }, false);
            }
        }
        Ok(Report::Done)
    }

    pub(super) fn fail_disk(&mut self, disk: &DiskName) -> Result<Report, Refusal> {
        let id = label_of(&self.disks, disk).map(|label| label.disk);
        let pool = self.pools.values_mut().find(|pool| id.is_some_and(|id| pool.catalogue.has(id)));
        let Some((pool, id)) = pool.zip(id) else {
            let message = format!("disk {disk} belongs to no pool");
            return Err(Refusal::new(code::DISK_NOT_MEMBER, message, "name a member, see blockyard pool show"));
        };
        let mut next = pool.catalogue.clone();
        *next.member(id).expect("just found") = MemberState::Failed;
        if next.state() == PoolState::Failed {
            let message = format!("without disk {disk} pool {} would lose data", next.name);
            return Err(Refusal::new(code::POOL_WOULD_FAIL, message, "replace the disk that failed before"));
        }
        pool.catalogue = next;
        pool.save(&self.disks)?;
        let report = pool.report(&self.disks);
        let sentence = format!("disk {disk} was taken out of pool {}", report.name);
        self.raise(event::DISK_OUT, Subject::disk(disk), sentence);
        Ok(Report::Pool(report))
    }

    pub(super) fn replace_disk(
        &mut self,
        failed: &DiskName,
        member: Option<DiskId>,
        by: &DiskName,
        force: bool,
    ) -> Result<Report, Refusal> {
        admit_disk(by, &self.disks[by], force || failed == by)?;
        let id = label_of(&self.disks, failed).map(|label| label.disk).or(member);
        let pool = id.and_then(|id| self.pools.values_mut().find(|pool| pool.catalogue.has(id)).map(|pool| (pool, id)));
        let Some((pool, id)) = pool else {
            let message = format!("disk {failed} belongs to no pool");
            return Err(Refusal::new(code::DISK_NOT_MEMBER, message, "name a member, see blockyard pool show"));
        };
        let new = DiskId::from_random(crate::system::random()?);
        let members = pool.catalogue.groups.iter_mut().flat_map(|group| &mut group.members);
        for member in members.filter(|(member, _)| *member == id) {
            *member = (new, MemberState::Rebuilding);
        }
        (pool.rebuild_turns, pool.rebuild_turned) = (0, Some(Instant::now()));
        label::write(&self.disks[by], &Label { disk: new, pool: pool.catalogue.clone() })?;
        pool.save(&self.disks)?;
        let report = pool.report(&self.disks);
        let sentence = format!("disk {by} of pool {} is being filled", report.name);
        self.raise(event::REBUILD_BEGAN, Subject::pool(&report.name), sentence);
        Ok(Report::Pool(report))
    }
}

impl Pool {
    fn new(catalogue: Catalogue) -> Self {
        let (rebuild_turns, rebuild_turned, scrub, scrub_turns, is_read_only) = Default::default();
        Self { catalogue, rebuild_turns, rebuild_turned, scrub, scrub_turns, is_read_only }
    }

    /// True when the scrub that runs has read everything.
    pub fn has_scrubbed(&self) -> bool {
        self.scrub_turns > SCRUB_TURNS && self.scrub.as_ref().is_some_and(|scrub| scrub.state == ScrubState::Running)
    }

    /// Everything is being read.
    pub fn start_scrub(&mut self, repairs: bool) -> Result<(), Refusal> {
        if self.scrub.as_ref().is_some_and(|scrub| scrub.state.runs()) {
            let message = format!("a scrub of pool {} runs already", self.catalogue.name);
            return Err(Refusal::new(code::POOL_BUSY, message, "see blockyard pool scrub status"));
        }
        self.scrub_turns = 0;
        let progress = Progress { total_bytes: self.catalogue.used(), ..Progress::default() };
        self.scrub = Some(ScrubReport {
            state: ScrubState::Running,
            started: crate::system::now(),
            ended: None,
            repairs,
            progress: Some(progress),
            checked: Size::ZERO,
            mismatches: 0,
            unreadable: 0,
            healed: 0,
        });
        Ok(())
    }

    /// The scrub that runs is in another state.
    pub fn turn_scrub(&mut self, state: ScrubState) -> Result<(), Refusal> {
        let Some(scrub) = self.scrub.as_mut().filter(|scrub| scrub.state.runs()) else {
            let message = format!("no scrub of pool {} runs", self.catalogue.name);
            return Err(Refusal::new(code::SCRUB_UNKNOWN, message, "start one with blockyard pool scrub start"));
        };
        scrub.state = state;
        if !state.runs() {
            scrub.ended = Some(crate::system::now());
            scrub.progress = None;
            scrub.checked = Size::new(self.catalogue.used());
        }
        Ok(())
    }

    /// A rebuild that runs is one step further, if the last one was `pace` ago; true when it ends with it.
    pub fn advance(&mut self, pace: Duration) -> bool {
        if self.rebuild_turned.is_some_and(|turned| turned.elapsed() < pace) {
            return false;
        }
        self.rebuild_turned = Some(Instant::now());
        self.rebuild_turns += 1;
        if self.scrub.as_ref().is_some_and(|scrub| scrub.state == ScrubState::Running) {
            self.scrub_turns += 1;
        }
        let mut ended = false;
        for (_, state) in self.catalogue.groups.iter_mut().flat_map(|group| &mut group.members) {
            if *state == MemberState::Rebuilding && self.rebuild_turns > REBUILD_TURNS {
                *state = MemberState::InSync;
                ended = true;
            }
        }
        ended
    }

    pub fn report(&self, disks: &Disks) -> PoolReport {
        let catalogue = &self.catalogue;
        let names: BTreeMap<DiskId, DiskName> =
            labels(disks).into_iter().map(|(name, label)| (label.disk, name)).collect();
        let data = |group: &Group| group.level.data_members(group.members.len()) as u64;
        let member_size = Size::new(catalogue.size.bytes() / catalogue.groups.iter().map(data).sum::<u64>().max(1));
        let group = |(number, group)| {
            let report = group_report(group, &names, Some(self.progress()));
            GroupReport { number, member_size, ..report }
        };
        PoolReport {
            name: catalogue.name.clone(),
            id: catalogue.id,
            state: catalogue.state(),
            size: catalogue.size,
            used: Size::new(catalogue.used()),
            space: model::SpaceState::Enough,
            volumes: u32::try_from(catalogue.volumes.len()).expect("few volumes"),
            groups: (0..).zip(&catalogue.groups).map(group).collect(),
            log: self.log_report(&names),
            spares: Vec::new(),
            policy: PoolPolicy::default(),
            scrub: self.scrub.clone(),
            weak_enclosures: Vec::new(),
            next_scrub: None,
            fenced: None,
            read_only: self.is_read_only.then(|| "it was imported with --read-only".to_owned()),
            imported_read_only: false,
        }
    }

    pub fn member_state(&self, disks: &Disks, disk: &DiskName) -> Option<MemberState> {
        let id = label_of(disks, disk)?.disk;
        self.catalogue
            .groups
            .iter()
            .flat_map(|group| &group.members)
            .find(|(member, _)| *member == id)
            .map(|(_, state)| *state)
    }

    pub fn volumes(&self) -> Vec<VolumeSpec> {
        self.catalogue.volumes.iter().map(|volume| volume.spec(&self.catalogue.name)).collect()
    }

    pub fn create_volume(&mut self, disks: &Disks, spec: &VolumeSpec) -> Result<(), Refusal> {
        self.admit_growth(spec.size.bytes())?;
        let (name, id) = (spec.name.volume().clone(), spec.id);
        self.catalogue.volumes.push(Volume {
            name,
            id,
            size: spec.size,
            block_bytes: spec.block_bytes,
            backend: spec.backend.clone(),
        });
        self.save(disks)
    }

    pub fn resize_volume(&mut self, disks: &Disks, name: &VolumeName, size: Size) -> Result<VolumeSpec, Refusal> {
        let index = self.index(name);
        self.admit_growth(size.bytes() - self.catalogue.volumes[index].size.bytes())?;
        self.catalogue.volumes[index].size = size;
        self.save(disks)?;
        Ok(self.catalogue.volumes[index].spec(&self.catalogue.name))
    }

    pub fn delete_volume(&mut self, disks: &Disks, name: &VolumeName) -> Result<(), Refusal> {
        self.catalogue.volumes.remove(self.index(name));
        self.save(disks)
    }

    fn index(&self, name: &VolumeName) -> usize {
        let position = self.catalogue.volumes.iter().position(|volume| volume.name == *name.volume());
        position.expect("control asks for volumes that are there")
    }

    fn admit_growth(&self, bytes: u64) -> Result<(), Refusal> {
        let free = self.catalogue.size.bytes().saturating_sub(self.catalogue.used());
        if bytes <= free {
            return Ok(());
        }
        let message = format!("pool {} has {} free", self.catalogue.name, Size::new(free));
        Err(Refusal::new(code::POOL_FULL, message, "ask for less or delete a volume"))
    }

    pub(super) fn save(&mut self, disks: &Disks) -> Result<(), Refusal> {
        self.catalogue.generation += 1;
        for (disk, label) in labels(disks) {
            if label.pool.id == self.catalogue.id {
                label::write(&disks[&disk], &Label { disk: label.disk, pool: self.catalogue.clone() })?;
            }
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        let total_bytes = self.catalogue.size.bytes();
        let done_bytes = total_bytes / REBUILD_TURNS * self.rebuild_turns.min(REBUILD_TURNS);
        let seconds_left = Some(REBUILD_TURNS.saturating_sub(self.rebuild_turns));
        Progress { done_bytes, total_bytes, bytes_per_second: total_bytes / REBUILD_TURNS, seconds_left }
    }
}

impl Catalogue {
    fn state(&self) -> PoolState {
        self.groups.iter().map(Group::state).max().expect("a pool has groups")
    }

    fn used(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.size.bytes()).sum()
    }

    fn has(&self, id: DiskId) -> bool {
        self.groups.iter().flat_map(|group| &group.members).any(|(member, _)| *member == id)
    }

    fn member(&mut self, id: DiskId) -> Option<&mut MemberState> {
        let mut members = self.groups.iter_mut().flat_map(|group| &mut group.members);
        members.find(|(member, _)| *member == id).map(|(_, state)| state)
    }
}

impl Group {
    fn state(&self) -> PoolState {
        let is = |wanted: &[MemberState]| self.members.iter().filter(|(_, state)| wanted.contains(state)).count();
        let lost = is(&[MemberState::Failed, MemberState::Missing]);
        let rebuilding = is(&[MemberState::Rebuilding]);
        match (lost, rebuilding) {
            (0, 0) => PoolState::Healthy,
            _ if lost + rebuilding > self.level.tolerated(self.members.len()) => PoolState::Failed,
            (0, _) => PoolState::Rebuilding,
            _ => PoolState::Degraded,
        }
    }
}

impl Volume {
    fn spec(&self, pool: &Name) -> VolumeSpec {
        VolumeSpec {
            name: VolumeName::in_pool(pool.clone(), self.name.clone()),
            id: self.id,
            size: self.size,
            block_bytes: self.block_bytes,
            backend: self.backend.clone(),
        }
    }
}

/// How a group is; `progress` is that of its rebuild, should one run.
pub(super) fn group_report(
    group: &Group,
    names: &BTreeMap<DiskId, DiskName>,
    progress: Option<Progress>,
) -> GroupReport {
    let member = |(slot, (id, state)): (usize, &(DiskId, MemberState))| MemberReport {
        slot: u16::try_from(slot).expect("few members"),
        id: *id,
        disk: names.get(id).cloned(),
        state: *state,
        errors: 0,
        wrong_blocks: 0,
        stands_for: None,
    };
    let state = group.state();
    GroupReport {
        number: 0,
        level: group.level,
        chunk: group.chunk,
        integrity: true,
        member_size: Size::new(DISK_BYTES_MIN),
        state,
        members: group.members.iter().enumerate().map(member).collect(),
        rebuild: progress.filter(|_| state == PoolState::Rebuilding),
        resync: None,
        reshape: None,
        growth: None,
    }
}

/// The bytes of a disk that may become a member.
fn admit_disk(disk: &DiskName, path: &std::path::Path, force: bool) -> Result<u64, Refusal> {
    let (size, found) = label::read(path)?;
    if size.bytes() < DISK_BYTES_MIN {
        let hint = format!("use disks of at least {}", Size::new(DISK_BYTES_MIN));
        return Err(Refusal::new(code::DISK_TOO_SMALL, format!("disk {disk} has only {size}"), hint));
    }
    match found {
        OnDisk::Nothing => Ok(size.bytes()),
        _ if force => Ok(size.bytes()),
        OnDisk::Foreign | OnDisk::Ours(_) => {
            let hint = "use another disk, or repeat with --force to overwrite it";
            Err(Refusal::new(code::DISK_FOREIGN, format!("disk {disk} is not empty"), hint))
        }
    }
}

fn label_of(disks: &Disks, disk: &DiskName) -> Option<Label> {
    match label::read(disks.get(disk)?) {
        Ok((_, OnDisk::Ours(label))) => Some(*label),
        _ => None,
    }
}

pub(super) fn labels(disks: &Disks) -> BTreeMap<DiskName, Label> {
    disks.keys().filter_map(|disk| label_of(disks, disk).map(|label| (disk.clone(), label))).collect()
}
