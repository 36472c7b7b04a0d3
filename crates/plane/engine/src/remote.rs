//! Disks of other arrays (iSCSI) as members of pools.
//!
//! A member is a local disk or a remote one; the layers above treat both alike. The login parameters of a remote disk
//! come with the order that adds it and are kept in memory for all shards; its secrets appear in no report. Called by
//! [`crate::inspect`] and the conductor. A remote disk must never be opened for writing without a fence.

use crate::events::Events;
use crate::in_flight::OperationsInFlight;
use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Run, Space, Stable, View, Written};
use futures_util::future::join_all;
use initiator::{Closing, DiskConfig, DiskEvent, OpenError, OpenMode, PathReport, PathState, RemoteDisk};
use iscsi::chap::{Algorithm, Credential, Secret};
use iscsi::login::InitiatorAuth;
use iscsi::{DigestOffer, IscsiName};
use model::{
    Chap, DiskIdentity, DiskName, DiskPathReport, DiskPathState, NodeIdentity, PortalAddress, Raised, Refusal,
    RemoteAddress, RemoteLogin, RemoteReport, Subject, Timestamp, code, event,
};
use shard::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use volume::BLOCK_BYTES;

/// A member of a pool: a disk of this machine or one of another array.
pub enum MemberDisk<W: World> {
    /// Local disk or file.
    Local(W::Disk),
    /// Logical unit of another target.
    Remote(Rc<RemoteDisk<W>>),
}

/// Login parameters of remote disks. Shared by all shards of the daemon.
#[derive(Clone, Default)]
pub struct Logins(Arc<Mutex<RemoteLogins>>);

#[derive(Default)]
struct RemoteLogins {
    /// Identity of this node; set by the conductor before anything is opened.
    node: Option<NodeIdentity>,
    /// Name and login parameters, by the path of the disk.
    disks: BTreeMap<String, (Option<DiskName>, RemoteLogin)>,
}

/// Remote disks of one shard.
pub struct RemoteDisks<W: World> {
    world: W,
    events: Events,
    logins: Logins,
    open: RefCell<Vec<(String, Weak<RemoteDisk<W>>)>>,
    closing: RefCell<Vec<Closing<W>>>,
    landings: OperationsInFlight,
}

impl Logins {
    /// Sets the node whose name and key the sessions use.
    pub fn set_node(&self, node: &NodeIdentity) {
        self.known().node = Some(node.clone());
    }

    /// Sets name and login parameters of the disk at `path`.
    pub fn learn(&self, path: &str, disk: &DiskName, login: RemoteLogin) {
        // Preempting is a decision for one opening; later openings must not repeat it.
        let login = RemoteLogin { force: false, ..login };
        self.known().disks.insert(path.to_owned(), (Some(disk.clone()), login));
    }

    /// Sets the login parameters of the disk at `path`, which need not have a name yet.
    pub fn learn_unnamed(&self, path: &str, login: RemoteLogin) {
        let mut known = self.known();
        // A disk that was added before keeps its name, under which its events are raised.
        let name = known.disks.get(path).and_then(|(name, _)| name.clone());
        known.disks.insert(path.to_owned(), (name, login));
    }

    /// Removes the login parameters of the disk at `path`.
    pub fn forget(&self, path: &str) {
        self.known().disks.remove(path);
    }

    fn known(&self) -> MutexGuard<'_, RemoteLogins> {
        // A thread that panicked leaves the table valid: no change of it stops half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: World> RemoteDisks<W> {
    /// Creates the set of remote disks of a shard with this world.
    pub fn new(world: W, events: Events, logins: Logins) -> Self {
        let (open, closing, landings) = Default::default();
        Self { world, events, logins, open, closing, landings }
    }

    /// World in which local and remote disks are opened.
    pub fn world(&self) -> &W {
        &self.world
    }

    /// Operations of earlier openings that are still in flight.
    pub fn landings(&self) -> &OperationsInFlight {
        &self.landings
    }

    /// Login parameters of remote disks.
    pub fn logins(&self) -> &Logins {
        &self.logins
    }

    /// Opens the remote disk at `path`.
    ///
    /// *Errors*: no path can log in; another initiator holds a reservation; its portals lead to different logical
    /// units.
    pub async fn open(&self, path: &str, usage: OpenMode) -> Result<Rc<RemoteDisk<W>>, Refusal> {
        let config = self.config(path, usage)?;
        let initiator = config.initiator.as_str().to_owned();
        let opened = RemoteDisk::open(&self.world, config).await;
        let disk = Rc::new(opened.map_err(|error| refusal(path, &initiator, &error))?);
        // Closed disks are dropped here, so that both lists stay as long as the number of open disks.
        self.open.borrow_mut().retain(|(_, disk)| disk.strong_count() > 0);
        self.closing.borrow_mut().retain(|closing| !closing.has_ended());
        // Kept beside the disk: its logout goes on after the last handle was dropped.
        self.closing.borrow_mut().push(disk.closing());
        // An inspection ends at once and appears in no report of paths.
        if usage != OpenMode::Inspect {
            self.open.borrow_mut().push((path.to_owned(), Rc::downgrade(&disk)));
        }
        Ok(disk)
    }

    /// Preempts the registrations of other initiators with the disk at `path`, and leaves no registration of this node.
    ///
    /// *Errors*: as [`RemoteDisks::open`].
    pub async fn take(&self, path: &str) -> Result<(), Refusal> {
        let disk = self.open(path, OpenMode::ReadWrite { force: true }).await?;
        // The last handle starts the logout; its end is awaited so that no key stays registered.
        let closing = disk.closing();
        drop(disk);
        closing.ended().await;
        Ok(())
    }

    /// Paths of the remote disks that are open on this shard, by the path of the disk.
    pub fn reports(&self) -> Vec<(String, Vec<DiskPathReport>)> {
        let open = self.open.borrow();
        let disks = open.iter().filter_map(|(path, disk)| Some((path.clone(), disk.upgrade()?)));
        disks.map(|(path, disk)| (path, disk.paths().iter().map(path_report).collect())).collect()
    }

    /// Waits until every dropped remote disk has unregistered its keys and logged out.
    pub async fn all_closed(&self) {
        // A disk that is still in use would never end, and the shutdown must.
        let open: Vec<_> = self.open.borrow().iter().filter(|(_, disk)| disk.strong_count() > 0).cloned().collect();
        if !open.is_empty() {
            tracing::warn!(disks = open.len(), "remote disks are still open; their keys stay registered");
            return;
        }
        let closing = self.closing.take();
        join_all(closing.iter().map(Closing::ended)).await;
    }

    fn config(&self, path: &str, usage: OpenMode) -> Result<DiskConfig, Refusal> {
        let address: RemoteAddress = path.parse()?;
        let known = self.logins.known();
        let (disk, login) = known.disks.get(path).cloned().unzip();
        let node = known.node.clone();
        // The lock is released before anything below can fail or log.
        drop(known);
        let unfit = |what: &str| Refusal::new(code::IQN_INVALID, format!("{what} is not an iSCSI name"), "");
        // Set by `conduct` before it takes the first order, and no disk is opened before that.
        let node = node.expect("the conductor has said which node this is");
        let initiator = initiator_name(&node);
        let initiator = IscsiName::parse(&initiator).map_err(|_| unfit(&initiator))?;
        let target = IscsiName::parse(address.target.as_str()).map_err(|_| unfit(address.target.as_str()))?;
        // Without stored parameters the login is tried without authentication.
        let login = login.unwrap_or_default();
        let mut config = DiskConfig::new(address.portals, target, address.lun, initiator, node.id.to_bytes());
        config.auth = auth(&login)?;
        config.digests = if login.digests { DigestOffer::Required } else { DigestOffer::Accepted };
        config.block_bytes = BLOCK_BYTES;
        config.usage = usage;
        // An inspection raises no events: its session ends at once, which is no loss of a path.
        if let Some(disk) = disk.flatten().filter(|_| usage != OpenMode::Inspect) {
            let (world, events) = (self.world.clone(), self.events.clone());
            config.events = Rc::new(move |event| raise_event(&world, &events, &disk, &event));
        }
        Ok(config)
    }
}

/// Name of this node as an initiator (IQN).
pub(crate) fn initiator_name(node: &NodeIdentity) -> String {
    format!("iqn.2026-11.io.blockyard:initiator.{}", node.id)
}

/// Hardware identity of a remote disk, as reported by its target.
pub(crate) fn identity<W: World>(disk: &RemoteDisk<W>) -> DiskIdentity {
    let facts = disk.facts();
    DiskIdentity {
        serial: facts.serial.clone(),
        model: facts.model.clone(),
        wwn: Some(facts.name()),
        ..DiskIdentity::default()
    }
}

/// Report of a remote disk that is not in use; `None` for a path that is not remote.
pub(crate) fn idle_report(logins: &Logins, path: &str) -> Option<RemoteReport> {
    let address: RemoteAddress = path.parse().ok()?;
    let login = logins.known().disks.get(path).map(|(_, login)| login.clone()).unwrap_or_default();
    Some(address.report(&login))
}

fn path_report(path: &PathReport) -> DiskPathReport {
    let (state, reason) = match &path.state {
        PathState::Up => (DiskPathState::Up, None),
        PathState::Down(reason) => (DiskPathState::Down, Some(reason.clone())),
    };
    DiskPathReport {
        portal: PortalAddress(path.portal),
        state,
        active: path.is_active,
        reason,
        losses: path.losses,
        commands: path.commands,
        bytes: path.bytes,
    }
}

fn auth(login: &RemoteLogin) -> Result<InitiatorAuth, Refusal> {
    let invalid = |why: String| Refusal::new(code::CHAP_INVALID, why, "set other CHAP credentials for the disk");
    let credential = |chap: &Chap| {
        let secret = Secret::try_from(chap.secret.bare()).map_err(|why| invalid(why.to_string()))?;
        Ok::<_, Refusal>(Credential { name: chap.user.clone(), secret })
    };
    // Mutual CHAP needs credentials of the initiator as well, so without these there is no authentication.
    let Some(own) = &login.proof.own else { return Ok(InitiatorAuth::None) };
    let target = login.proof.mutual.as_ref().map(credential).transpose()?;
    // RFC 7143, 12.1.3: CHAP with MD5 is the algorithm that every target implements.
    InitiatorAuth::chap(credential(own)?, target, Algorithm::Md5).map_err(|why| invalid(why.to_string()))
}

/// Raises an event for a change of the paths of `disk`.
fn raise_event<W: World>(world: &W, events: &Events, disk: &DiskName, event: &DiskEvent) {
    let (code, sentence) = match event {
        DiskEvent::PathLost { portal, reason, left } => {
            let sentence = match left {
                0 => format!("disk {disk} lost its path {portal}, the last one: {reason}. I/O waits for a path."),
                1 => format!("disk {disk} lost its path {portal}: {reason}. One path is left."),
                left => format!("disk {disk} lost its path {portal}: {reason}. {left} paths are left."),
            };
            (event::PATH_LOST, sentence)
        }
        DiskEvent::PathRestored { portal, key } => {
            let key = if *key == 0 { String::new() } else { format!(", reservation key {key:#018x}") };
            (event::PATH_RESTORED, format!("disk {disk}: path {portal} is available again{key}"))
        }
        DiskEvent::PathFenced { portal, key } => {
            let how = match key {
                0 => "LOGICAL UNIT RESET".to_owned(),
                key => format!("PREEMPT AND ABORT of the key {key:#018x}"),
            };
            (event::PATH_FENCED, format!("disk {disk}: writes on the lost path {portal} were aborted by {how}"))
        }
        DiskEvent::Unreachable { reason } => {
            let sentence = format!(
                "disk {disk} is unreachable: {reason}. Its pool continues without it. The disk rejoins by itself \
                 when a path is available again."
            );
            (event::REMOTE_DISK_UNREACHABLE, sentence)
        }
    };
    let now = Timestamp::from_unix(world.unix_seconds());
    events.raise(Raised::new(now, code, Subject::disk(disk), sentence));
}

fn refusal(path: &str, initiator: &str, error: &OpenError) -> Refusal {
    let (code, hint) = match error {
        OpenError::NoPath(_) | OpenError::NoUnit(_) => (
            code::REMOTE_UNREACHABLE,
            format!(
                "check the network, the CHAP credentials, and that the target maps the LUN to the initiator {initiator}"
            ),
        ),
        OpenError::Fence(initiator::FenceError::Foreign { .. }) => (code::REMOTE_RESERVED, RESERVED_HINT.to_owned()),
        OpenError::OtherUnit { .. } | OpenError::BlockBytes { .. } | OpenError::NoIdentity(_) => {
            (code::REMOTE_UNUSABLE, "give only portals of one logical unit with blocks of 512 or 4096 bytes".to_owned())
        }
        OpenError::Fence(_) | OpenError::Refused { .. } => {
            (code::DISK_UNREADABLE, "check the target: it refuses mandatory disk commands".to_owned())
        }
    };
    Refusal::new(code, format!("{path} cannot be opened: {error}"), hint)
}

const RESERVED_HINT: &str =
    "stop the host that uses the disk, or preempt its registration with blockyard disk add --force if it is down";

/// Refusal of a disk that another initiator has registered with.
pub(crate) fn reserved(path: &str, key: u64) -> Refusal {
    let message = format!("{path} is reserved by another initiator with the key {key:#018x}");
    Refusal::new(code::REMOTE_RESERVED, message, RESERVED_HINT)
}

macro_rules! each {
    ($member:expr, $device:ident => $local:expr, $remote:expr) => {
        match $member {
            MemberDisk::Local($device) => $local,
            MemberDisk::Remote($device) => $remote,
        }
    };
}

impl<W: World> BlockDevice for MemberDisk<W> {
    fn geometry(&self) -> Geometry {
        each!(self, device => device.geometry(), device.geometry())
    }

    // The remote futures are boxed, so that those of local disks stay small.

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        each!(self, device => device.read(extent).await, Box::pin(device.read(extent)).await)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        each!(self, device => device.write(start, data).await, Box::pin(device.write(start, data)).await)
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        each!(self, device => device.write_unlogged(start, data).await, Box::pin(device.write_unlogged(start, data)).await)
    }

    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        each!(self, device => device.try_read(extent), device.try_read(extent))
    }

    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        each!(self, device => device.try_write(start, data), device.try_write(start, data))
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        each!(self, device => device.flush(after).await, Box::pin(device.flush(after)).await)
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        each!(self, device => device.discard(extent).await, Box::pin(device.discard(extent)).await)
    }

    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        each!(self, device => device.reserve(extent).await, device.reserve(extent).await)
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        each!(self, device => device.run(extent).await, device.run(extent).await)
    }

    fn space(&self) -> Option<Space> {
        each!(self, device => device.space(), device.space())
    }
}
