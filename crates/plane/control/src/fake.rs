//! A data plane of files and memory: it obeys every order and serves nobody.
//!
//! For tests of everything above it. Labels and catalogues stand in the first page of each disk's file,
//! so that a pool survives a restart and is found under other names, as a real one is.

mod label;
mod log;
mod pool;
mod snapshots;
mod traces;

use crate::Engine;
use label::OnDisk;
use model::{
    Access, Activity, CacheReport, Call, CommandWindow, DiskCounters, DiskIdentity, DiskName, DiskReport, DiskState,
    EngineReport, EventCode, LatencyReport, MemberState, Name, Order, PoolCheck, PoolReport, PortalPolicy,
    PortalReport, PortalState, Raised, Recordable, Recordings, Refusal, RefusedLogin, Report, ReservationReport,
    ScrubState, Secret, SessionActivity, SessionDetail, SessionEnd, SessionReport, Size, SnapshotName, SnapshotReport,
    Subject, Took, VolumeActivity, VolumeCounters, VolumeName, VolumePolicy, VolumeReport, VolumeSpec, VolumeState,
    code, event,
};
use pool::Pool;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Called before (`false`) and after (`true`) each order that changes something, and in the midst of
/// those that write to several disks.
pub type Watch = Box<dyn FnMut(&Order, bool) + Send>;

/// The data plane that serves nobody.
#[derive(Default)]
pub struct Fake {
    /// Who is said to be logged in.
    pub sessions: Vec<SessionReport>,
    /// Who was not let in.
    pub refused: Vec<RefusedLogin>,
    /// What hosts have reserved, by volume.
    pub reservations: BTreeMap<VolumeName, ReservationReport>,
    /// Sees each change, to make crash images between them.
    pub watch: Option<Watch>,
    /// Where the latest access snapshot is left, for tests to look at.
    pub access: Arc<Mutex<Access>>,
    /// Which piece of hardware is at each path, where that is to be known.
    pub identities: BTreeMap<String, DiskIdentity>,
    /// A rebuild goes on at most once in so long, however often it is asked for.
    pub pace: Duration,
    /// How many volumes were told of, each time that somebody asked for all of them or for one.
    pub volumes_read: Arc<AtomicUsize>,
    /// How many more times a disk is said to be in use when it is to be opened.
    pub in_use: u32,
    disks: BTreeMap<DiskName, PathBuf>,
    pools: BTreeMap<Name, Pool>,
    /// What has happened and was not asked for yet, and who asks.
    raised: Vec<Raised>,
    asking: Option<Call>,
    loose: BTreeMap<VolumeName, VolumeSpec>,
    /// Gone with the fake: it has no map to keep them in.
    policies: BTreeMap<VolumeName, VolumePolicy>,
    snapshots: Vec<SnapshotReport>,
    clones: BTreeMap<VolumeName, SnapshotName>,
    portals: Vec<SocketAddr>,
    /// The volumes that are traced, and how many commands are kept of each.
    traces: BTreeMap<VolumeName, u32>,
}

impl Fake {
    /// The fake runs on a thread of its own until it is told to stop or every [`Engine`] is gone.
    ///
    /// *Panics*: when the system gives no thread.
    #[must_use]
    pub fn start(mut self) -> (Engine, JoinHandle<()>) {
        let (post, inbox) = shard::mailbox::channel::<Call>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
            runtime.block_on(async {
                while let Some(call) = inbox.receive().await {
                    if matches!(call.order, Order::NextEvents) {
                        self.asking = Some(call);
                        self.tell();
                        continue;
                    }
                    let last = matches!(call.order, Order::Stop);
                    let answer = self.obey_watched(&call.order);
                    // So whoever hears what happened hears it before the asker goes on.
                    self.tell();
                    call.answer(answer);
                    if last {
                        break;
                    }
                }
            });
        });
        (Engine::new(post), thread)
    }

    fn obey_watched(&mut self, order: &Order) -> Result<Report, Refusal> {
        use Order::{Disks, Pools, Portals, RefusedLogins, Sessions, Snapshots, Status, Volume, Volumes};
        let one = matches!(order, Volume { .. });
        let looks =
            one || matches!(order, Disks | Pools | Volumes | Snapshots | Sessions | Portals | RefusedLogins | Status);
        let changes = !looks;
        if changes {
            self.note(order, false);
        }
        let answer = self.obey(order);
        if changes {
            self.note(order, true);
        }
        answer
    }

    fn pool_report(&self, pool: &Name) -> Report {
        Report::Pool(self.pools[pool].report(&self.disks))
    }

    fn turn_scrub(&mut self, pool: &Name, state: ScrubState) -> Result<Report, Refusal> {
        self.pools.get_mut(pool).expect("control asks for open pools").turn_scrub(state)?;
        Ok(self.pool_report(pool))
    }

    fn end_scrub(&mut self, pool: &Name) {
        self.turn_scrub(pool, ScrubState::Done).expect("one runs");
        self.raise(event::SCRUB_ENDED, Subject::pool(pool), format!("the scrub of pool {pool}: all was right"));
    }

    /// All pools, each rebuild one step further, if it is time.
    fn advance(&mut self) -> Vec<PoolReport> {
        let pace = self.pace;
        let ended = self.pools.iter_mut().filter_map(|(name, pool)| pool.advance(pace).then(|| name.clone()));
        for name in ended.collect::<Vec<_>>() {
            self.raise(event::REBUILD_ENDED, Subject::pool(&name), format!("a disk of pool {name} is filled"));
        }
        let scrubbed = self.pools.iter().filter(|(_, pool)| pool.has_scrubbed()).map(|(name, _)| name.clone());
        for name in scrubbed.collect::<Vec<_>>() {
            self.end_scrub(&name);
        }
        self.pools.values().map(|pool| pool.report(&self.disks)).collect()
    }

    fn raise(&mut self, code: EventCode, subject: Subject, sentence: String) {
        self.raised.push(Raised::new(crate::system::now(), code, subject, sentence));
    }

    /// Whoever asks what has happened hears it.
    fn tell(&mut self) {
        if !self.raised.is_empty()
            && let Some(call) = self.asking.take()
        {
            call.answer(Ok(Report::Events(std::mem::take(&mut self.raised))));
        }
    }

    fn note(&mut self, order: &Order, done: bool) {
        if let Some(watch) = &mut self.watch {
            watch(order, done);
        }
    }

    fn obey(&mut self, order: &Order) -> Result<Report, Refusal> {
        match order {
            Order::InspectDisk { path, .. } => self.inspect(None, path).map(Report::Disk),
            Order::OpenDisk { disk, path, .. } => self.open_disk(disk, path).map(Report::Disk),
            Order::CloseDisk { disk } => Ok(self.close_disk(disk)),
            Order::EraseDisk { disk, .. } => label::erase(&self.disks[disk]).map(|()| Report::Done),
            Order::LocateDisk { disk, .. } => self.locate_disk(disk),
            Order::BlinkDisk { .. } | Order::KeepState { .. } => Ok(Report::Done),
            Order::PoolKey { .. } => Ok(Report::PoolKey("5a5a5a5a".to_owned(), Secret::new(vec![0x5a; 32])?)),
            Order::CreatePool { pool, id, groups, force } => self.create_pool(pool, *id, groups, *force),
            Order::AddGroup { pool, group, force } => self.add_group(pool, group, *force),
            Order::AddMember { pool, group, disk, force } => self.add_member(pool, *group, disk, *force),
            Order::GrowPool { pool, group, .. } => self.grow_pool(pool, *group),
            Order::AddLog { .. } | Order::RemoveLog { .. } => self.change_log(order),
            Order::OpenPool { id, read_only, .. } => self.open_pool(*id, *read_only),
            Order::ClosePool { pool } => Ok(self.close_pool(pool)),
            Order::DestroyPool { pool } => self.destroy_pool(pool),
            Order::FailDisk { disk } => self.fail_disk(disk),
            Order::ReplaceDisk { failed, member, replacement, force } => {
                self.replace_disk(failed, *member, replacement, *force)
            }
            Order::SetRepair { pool, .. } | Order::SetSpace { pool, .. } => Ok(self.pool_report(pool)),
            Order::StartScrub { pool, repairs } => {
                self.pools.get_mut(pool).expect("control asks for open pools").start_scrub(*repairs)?;
                self.raise(event::SCRUB_BEGAN, Subject::pool(pool), format!("a scrub of pool {pool} has begun"));
                Ok(self.pool_report(pool))
            }
            Order::StopScrub { pool } => self.turn_scrub(pool, ScrubState::Stopped),
            Order::HoldScrub { pool, held } => {
                let state = if *held { ScrubState::Waiting } else { ScrubState::Running };
                // Without one that runs the next one is meant.
                self.turn_scrub(pool, state).or_else(|_| Ok(self.pool_report(pool)))
            }
            Order::CreateVolume(_)
            | Order::ResizeVolume { .. }
            | Order::SetVolumePolicy { .. }
            | Order::CopyVolume { .. }
            | Order::CancelCopy { .. }
            | Order::ClearReservations { .. }
            | Order::DeleteVolume { .. } => self.obey_of_volumes(order),
            Order::CheckPool { .. } => Ok(Report::Check(PoolCheck::default())),
            Order::DumpPool { pool } => Ok(Report::Text(format!("pool {pool}, which has no maps\n"))),
            Order::CreateSnapshots { .. }
            | Order::DeleteSnapshot { .. }
            | Order::LockSnapshot { .. }
            | Order::CloneSnapshot { .. }
            | Order::RollBack { .. }
            | Order::Snapshots => self.obey_of_snapshots(order),
            Order::SetAccess(access) => {
                *self.access.lock().unwrap_or_else(PoisonError::into_inner) = access.clone();
                Ok(Report::Done)
            }
            Order::OpenPortal { .. } | Order::ClosePortal { .. } | Order::Portals => self.obey_of_portals(order),
            Order::Status => Ok(Report::Engine(EngineReport { shards: 1, io: "none".into(), ..Default::default() })),
            Order::Disks => self.inspect_all().map(Report::Disks),
            Order::Pools => Ok(Report::Pools(self.advance())),
            Order::Volumes => Ok(self.counted(self.volumes())),
            Order::HeldVolumes => Ok(Report::Volumes(Vec::new())),
            Order::VolumeNames => Ok(Report::VolumeNames(self.volume_names())),
            Order::Volume { volume } => Ok(self.counted(self.volumes_where(|name| name == volume))),
            Order::Sessions => Ok(Report::Sessions(self.sessions.clone())),
            Order::NextEvents => unreachable!("it is answered when something has happened"),
            Order::SetReadCache { .. } | Order::Stop => Ok(Report::Done),
            Order::Trace { .. } | Order::StartTrace { .. } | Order::TakeTrace { .. } | Order::StopTrace { .. } => {
                self.obey_of_traces(order)
            }
            _ => self.obey_of_sessions(order),
        }
    }

    fn obey_of_volumes(&mut self, order: &Order) -> Result<Report, Refusal> {
        match order {
            Order::CreateVolume(spec) => self.create_volume(spec).map(Report::Volume),
            Order::ResizeVolume { volume, size } => self.resize_volume(volume, *size).map(Report::Volume),
            Order::SetVolumePolicy { volume, policy } => self.set_volume_policy(volume, *policy),
            // It takes no time, for there is nothing to copy.
            Order::CopyVolume { source, target, id } => {
                let like = self.volumes().into_iter().find(|volume| volume.name == *source.volume());
                let like = like.expect("control asks for volumes that are open");
                let (name, backend) = (target.clone(), like.backend);
                let spec = VolumeSpec { name, id: *id, size: like.size, block_bytes: like.block_bytes, backend };
                self.create_volume(&spec).map(Report::Volume)
            }
            Order::CancelCopy { target } => {
                let message = format!("nothing is being copied to volume {target}");
                Err(Refusal::new(code::COPY_UNKNOWN, message, "see blockyard volume list"))
            }
            // Nobody is logged in who could have made one.
            Order::ClearReservations { volume } => Ok(Report::Volume(self.volume_named(volume))),
            Order::DeleteVolume { volume } => {
                self.traces.remove(volume);
                self.delete_volume(volume).map(|()| Report::Done)
            }
            _ => unreachable!("only orders about volumes come here"),
        }
    }

    fn locate_disk(&self, disk: &DiskName) -> Result<Report, Refusal> {
        let known = self.disks.get(disk).and_then(|path| self.identities.get(&text(path)));
        if known.is_some_and(|identity| identity.has_light) {
            return Ok(Report::Done);
        }
        let message = format!("no light beside disk {disk} is known");
        let hint = format!("let its own light blink with blockyard disk locate {disk} --blink");
        Err(Refusal::new(code::DISK_NO_LIGHT, message, hint))
    }

    fn inspect(&self, name: Option<&DiskName>, path: &str) -> Result<DiskReport, Refusal> {
        let (size, label) = label::read(path.as_ref())?;
        let member = name.and_then(|name| self.pools.values().find_map(|pool| pool.member_state(&self.disks, name)));
        let state = match member {
            Some(MemberState::InSync | MemberState::Joining) => DiskState::InUse,
            Some(MemberState::Rebuilding) => DiskState::Rebuilding,
            Some(MemberState::Failed) => DiskState::Failed,
            Some(MemberState::Missing) | None => DiskState::Free,
        };
        Ok(DiskReport {
            name: name.cloned(),
            path: path.to_owned(),
            size,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            label: label.report(),
            state,
            counters: DiskCounters::default(),
            spare: None,
            identity: self.identities.get(path).cloned().unwrap_or_default(),
            health: None,
            remote: None,
        })
    }

    fn open_disk(&mut self, disk: &DiskName, path: &str) -> Result<DiskReport, Refusal> {
        if self.in_use > 0 {
            self.in_use -= 1;
            return Err(Refusal::new(code::DISK_IN_USE, format!("something else uses {path}"), "wait"));
        }
        let report = self.inspect(Some(disk), path)?;
        self.disks.insert(disk.clone(), path.into());
        Ok(report)
    }

    fn close_disk(&mut self, disk: &DiskName) -> Report {
        self.disks.remove(disk);
        Report::Done
    }

    fn obey_of_sessions(&mut self, order: &Order) -> Result<Report, Refusal> {
        match order {
            Order::Session { id } => self.session(*id).map(|detail| Report::Session(Box::new(detail))),
            Order::EndSession { id, .. } => {
                self.session(*id)?;
                self.sessions.retain(|session| session.id != *id);
                Ok(Report::SessionEnd(SessionEnd::LoggedOut))
            }
            Order::EndConnection { id, .. } => self.session(*id).map(|_| Report::Done),
            Order::Record { what: Recordable::Session(id), .. } => self.session(*id).map(|_| Report::Recording(1)),
            Order::Record { what: Recordable::From(_), .. } => Ok(Report::Recording(1)),
            Order::NextRecorded { .. } | Order::StopRecording { .. } => {
                Ok(Report::Recorded(Recordings { is_over: true, ..Recordings::default() }))
            }
            Order::Tasks => Ok(Report::Tasks(Vec::new())),
            Order::Activity => Ok(Report::Activity(self.activity())),
            Order::Latencies { .. } => Ok(Report::Latencies(latencies())),
            Order::RefusedLogins => Ok(Report::Refused(self.refused.clone())),
            Order::RememberRefused(logins) => {
                self.refused.clone_from(logins);
                Ok(Report::Done)
            }
            _ => unreachable!("{order:?} is not of sessions"),
        }
    }

    /// Nobody does anything, but for those who are said to be logged in.
    fn activity(&self) -> Activity {
        let session = |session: &SessionReport| SessionActivity {
            id: session.id,
            host: session.host.clone(),
            initiator: session.initiator.clone(),
            address: session.address,
            portal: session.portal,
            commands: session.commands,
            read_bytes: session.read_bytes,
            written_bytes: session.written_bytes,
            took: Took::default(),
        };
        let volume = |report: VolumeReport| VolumeActivity {
            name: report.name,
            id: report.id,
            counters: report.counters,
            policy: report.policy.unwrap_or_default(),
            cache: report.cache,
            took: Took::default(),
        };
        Activity {
            volumes: self.volumes().into_iter().map(volume).collect(),
            disks: self.disks.keys().map(|disk| (disk.clone(), DiskCounters::default())).collect(),
            sessions: self.sessions.iter().map(session).collect(),
        }
    }

    fn session(&self, id: u32) -> Result<SessionDetail, Refusal> {
        let session = self.sessions.iter().find(|session| session.id == id).cloned();
        let window = Some(CommandWindow { exp_cmd_sn: 1_250_001, max_cmd_sn: 1_250_128 });
        session.map(|session| SessionDetail { session, window, latencies: latencies() }).ok_or_else(|| {
            Refusal::new(code::SESSION_UNKNOWN, format!("there is no session {id}"), "see blockyard session list")
        })
    }

    fn obey_of_portals(&mut self, order: &Order) -> Result<Report, Refusal> {
        match order {
            Order::OpenPortal { address } => self.open_portal(*address),
            Order::ClosePortal { address } => {
                self.portals.retain(|portal| portal != address);
                Ok(Report::Done)
            }
            _ => Ok(Report::Portals(self.portals())),
        }
    }

    fn open_portal(&mut self, address: SocketAddr) -> Result<Report, Refusal> {
        if self.portals.contains(&address) || address.port() == 1 {
            let message = format!("{address} cannot be listened on: address in use");
            return Err(Refusal::new(code::PORTAL_UNUSABLE, message, "choose another"));
        }
        self.portals.push(address);
        Ok(Report::Portal(portal(address)))
    }

    fn portals(&self) -> Vec<PortalReport> {
        let access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let policy =
            |address| access.portals.iter().find(|portal| portal.address == address).map(|known| known.policy.clone());
        let report = |&address| PortalReport { policy: policy(address).unwrap_or_default(), ..portal(address) };
        self.portals.iter().map(report).collect()
    }

    /// An answer with these volumes, which are counted as read.
    fn counted(&self, volumes: Vec<VolumeReport>) -> Report {
        self.volumes_read.fetch_add(volumes.len(), Ordering::Relaxed);
        Report::Volumes(volumes)
    }

    fn volumes(&self) -> Vec<VolumeReport> {
        self.volumes_where(|_| true)
    }

    fn inspect_all(&self) -> Result<Vec<DiskReport>, Refusal> {
        self.disks.iter().map(|(name, path)| self.inspect(Some(name), &text(path))).collect()
    }

    fn volume_names(&self) -> Vec<VolumeName> {
        let names: BTreeSet<VolumeName> = self.volumes().into_iter().map(|volume| volume.name).collect();
        names.into_iter().collect()
    }

    fn volumes_where(&self, is_wanted: impl Fn(&VolumeName) -> bool) -> Vec<VolumeReport> {
        let pooled = self.pools.values().flat_map(Pool::volumes);
        let report = |spec: VolumeSpec| {
            let policy = self.policies.get(&spec.name).copied();
            let told = volume(&spec);
            VolumeReport { space: self.space(&spec.name), policy: policy.or(told.policy), ..told }
        };
        let mut volumes: Vec<VolumeReport> =
            pooled.chain(self.loose.values().cloned()).filter(|spec| is_wanted(&spec.name)).map(report).collect();
        for volume in &mut volumes {
            volume.reservation = self.reservations.get(&volume.name).cloned().map(Box::new);
        }
        volumes
    }

    fn create_volume(&mut self, spec: &VolumeSpec) -> Result<VolumeReport, Refusal> {
        match spec.name.pool().and_then(|pool| self.pools.get_mut(pool)) {
            Some(pool) => pool.create_volume(&self.disks, spec)?,
            None => {
                if let model::Backend::File { path } = &spec.backend {
                    label::read(path.as_ref())?;
                }
                self.loose.insert(spec.name.clone(), spec.clone());
            }
        }
        Ok(volume(spec))
    }

    fn resize_volume(&mut self, name: &VolumeName, size: Size) -> Result<VolumeReport, Refusal> {
        let spec = match name.pool().and_then(|pool| self.pools.get_mut(pool)) {
            Some(pool) => pool.resize_volume(&self.disks, name, size)?,
            None => {
                let spec = self.loose.get_mut(name).expect("control asks for volumes that are open");
                spec.size = size;
                spec.clone()
            }
        };
        Ok(volume(&spec))
    }

    fn delete_volume(&mut self, name: &VolumeName) -> Result<(), Refusal> {
        self.forget_snapshots_of(name);
        match name.pool().and_then(|pool| self.pools.get_mut(pool)) {
            Some(pool) => pool.delete_volume(&self.disks, name),
            None => {
                self.loose.remove(name);
                Ok(())
            }
        }
    }
}

fn volume(spec: &VolumeSpec) -> VolumeReport {
    VolumeReport {
        name: spec.name.clone(),
        id: spec.id,
        size: spec.size,
        block_bytes: spec.block_bytes,
        backend: spec.backend.clone(),
        state: VolumeState::Online,
        why: None,
        counters: VolumeCounters::default(),
        space: None,
        policy: spec.name.pool().map(|_| VolumePolicy::default()),
        cache: spec.name.pool().map(|_| CacheReport::default()),
        copy: None,
        reservation: None,
        sanitize: None,
    }
}

fn portal(address: SocketAddr) -> PortalReport {
    PortalReport { address, policy: PortalPolicy::default(), state: PortalState::Open, also_ipv4: false, sessions: 0 }
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

impl OnDisk {
    fn report(&self) -> model::Label {
        match self {
            Self::Nothing => model::Label::None,
            Self::Foreign => model::Label::Foreign { what: "data of an unknown kind".to_owned() },
            Self::Ours(label) => model::Label::Ours {
                pool: label.pool.id,
                pool_name: label.pool.name.clone(),
                disk: label.disk,
                owner: None,
            },
        }
    }
}

fn latencies() -> Vec<LatencyReport> {
    let of = |operation: &str, commands, [p50_us, p99_us, p999_us, longest_us]: [u64; 4]| LatencyReport {
        operation: operation.to_owned(),
        commands,
        p50_us,
        p99_us,
        p999_us,
        longest_us,
    };
    vec![of("READ (10)", 1_000_000, [95, 319, 1_151, 20_411]), of("WRITE (10)", 250_000, [239, 895, 2_303, 41_007])]
}
