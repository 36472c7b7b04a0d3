//! Disks of other arrays: made known, and brought back to their pools when a path to them is available again.
//!
//! Called by [`Disks::add`] for addresses that begin with `iscsi://`, and by the steward in every round.

use crate::change::disks::Disks;
use crate::change::pools::Pools;
use crate::core::Core;
use crate::request::{NewChap, NewDisk, Replace};
use crate::state::{ChapRecord, DiskRecord, RemoteRecord};
use model::{
    Chap, Demand, DiskName, DiskPathState, DiskReport, DiskState, Order, Proof, Refusal, RemoteAddress, RemoteLogin,
    RemoteReport, RemoteUrl, code,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How often it is tried to bring back a remote disk that its pool goes on without.
const RETURN_INTERVAL: Duration = Duration::from_secs(15);
/// How long it is waited for a remote disk that may be back.
const LOOK_LIMIT: Duration = Duration::from_secs(3);

/// Disks of other arrays that were lost, and their return to their pools.
pub(crate) struct RemoteDisks {
    pub(crate) core: Arc<Core>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pools: Arc<Pools>,
}

impl RemoteRecord {
    /// How the data plane logs in.
    pub(crate) fn login(&self, force: bool) -> RemoteLogin {
        let chap = |record: &ChapRecord| Chap {
            user: record.user.clone(),
            secret: record.secret.clone(),
            demand: Demand::Required,
        };
        let proof = Proof { own: self.chap.as_ref().map(chap), mutual: self.mutual_chap.as_ref().map(chap) };
        RemoteLogin { proof, digests: self.digests, force }
    }
}

impl DiskRecord {
    /// How the disk is reached, where nothing is logged in.
    pub(crate) fn remote_report(&self) -> Option<RemoteReport> {
        let address: RemoteAddress = self.path.parse().ok()?;
        self.remote.as_ref().map(|remote| address.report(&remote.login(false)))
    }

    /// The order that opens the disk as `name`.
    pub(crate) fn order(&self, name: &DiskName) -> Order {
        let remote = self.remote.as_ref().map(|remote| Box::new(remote.login(false)));
        Order::OpenDisk { disk: name.clone(), path: self.path.clone(), remote }
    }
}

impl Disks {
    /// The disk of another array is open and known.
    ///
    /// *Errors*: as of [`Disks::add`]; the address or the credentials cannot be used, no path logs in, or another
    /// initiator has reserved the unit and that was not forced.
    pub(super) async fn add_remote(&self, request: NewDisk) -> Result<DiskReport, Refusal> {
        let turn = self.core.turn().await;
        let RemoteUrl { user, address } = request.path.parse()?;
        if request.create.is_some() {
            let hint = "leave out --create; make a volume on the other array";
            return Err(Refusal::new(code::OPTIONS_CONFLICT, "a remote disk cannot be created here", hint));
        }
        let state = self.core.state();
        let path = address.to_string();
        let name = match &request.name {
            Some(name) if state.disks.contains_key(name) => return Err(super::disks::disk_name_taken(name)),
            Some(name) => name.clone(),
            None => super::disks::numbered_name(|name| state.disks.contains_key(name)),
        };
        let same = |record: &DiskRecord| record.path.parse().is_ok_and(|known| is_same_unit(&known, &address));
        if let Some((known, _)) = state.disks.iter().find(|(_, record)| same(record)) {
            return Err(super::disks::disk_known(path.as_ref(), known));
        }
        let remote = remote_record(&self.core, user, &request)?;
        let login = Some(Box::new(remote.login(request.force)));
        let order = Order::OpenDisk { disk: name.clone(), path: path.clone(), remote: login };
        let report = self.core.engine.disk(order).await?;
        let identity = report.identity.clone();
        let record =
            DiskRecord { path, id: report.label.disk(), spare: None, identity, former: None, remote: Some(remote) };
        let added = async {
            self.admit_remote(&record, &report, request.force).await?;
            self.core.commit(&turn, |state| {
                state.disks.insert(name.clone(), record);
            })
        };
        if let Err(refusal) = added.await {
            self.core.engine.done(Order::CloseDisk { disk: name }).await?;
            return Err(refusal);
        }
        Ok(report)
    }

    /// Admits a unit that is no known disk under another address, and is empty or may be overwritten.
    async fn admit_remote(&self, record: &DiskRecord, report: &DiskReport, force: bool) -> Result<(), Refusal> {
        let state = self.core.state();
        let is_it = |other: &DiskRecord| {
            record.id.is_some() && record.id == other.id
                || other.remote.is_some() && other.identity.wwn.is_some() && other.identity.wwn == record.identity.wwn
        };
        match state.disks.iter().find(|(_, other)| is_it(other)) {
            Some((other, _)) => Err(super::disks::disk_known(record.path.as_ref(), other)),
            None => self.devices.admit_contents(record.path.as_ref(), report, force).await,
        }
    }
}

impl RemoteDisks {
    /// Remote disks that were lost take their places again once they can be reached: what they have missed is written to
    /// them. At most one attempt per disk and [`RETURN_INTERVAL`].
    pub(crate) async fn return_lost(&self, tried: &mut BTreeMap<DiskName, Instant>) -> Result<(), Refusal> {
        if !self.core.state().disks.values().any(|record| record.remote.is_some()) {
            return Ok(());
        }
        for disk in self.disks.list().await? {
            let Some(name) = disk.name.clone() else { continue };
            let is_lost = matches!(disk.state, DiskState::Failed | DiskState::Missing);
            let record = self.core.state().disks.get(&name).cloned();
            let Some(record) = record.filter(|record| is_lost && record.remote.is_some()) else {
                tried.remove(&name);
                continue;
            };
            let is_due = tried.get(&name).is_none_or(|last| last.elapsed() >= RETURN_INTERVAL);
            if is_due {
                tried.insert(name.clone(), Instant::now());
                if !self.can_return(&disk, &record).await {
                    continue;
                }
                self.return_disk(&name).await;
            }
        }
        Ok(())
    }

    /// True when the unit answers and bears the label of the member that it was.
    async fn can_return(&self, disk: &DiskReport, record: &DiskRecord) -> bool {
        let mut paths = disk.remote.iter().flat_map(|remote| &remote.paths);
        if paths.all(|path| path.state == DiskPathState::Down) {
            // They log in again by themselves as soon as they can.
            return false;
        }
        let remote = record.remote.as_ref().map(|remote| Box::new(remote.login(false)));
        let looking = self.core.engine.disk(Order::InspectDisk { path: record.path.clone(), remote });
        let seen = timeout(LOOK_LIMIT, looking).await;
        seen.is_ok_and(|seen| seen.is_ok_and(|seen| record.id.is_some() && seen.label.disk() == record.id))
    }

    async fn return_disk(&self, name: &DiskName) {
        let request = Replace { replacement: name.clone(), force: false, confirmed: false };
        match self.pools.replace_disk(name, request).await {
            Ok(pool) => tracing::info!(disk = %name, pool = %pool.name, "a remote disk is back in its place"),
            Err(refusal) => tracing::info!(disk = %name, %refusal, "a remote disk that answers cannot return yet"),
        }
    }
}

/// What is kept of a login.
///
/// *Errors*: a CHAP name without a secret, or mutual CHAP alone.
fn remote_record(core: &Core, user: Option<String>, request: &NewDisk) -> Result<RemoteRecord, Refusal> {
    let node = core.settings.node.to_string();
    if user.is_some() && request.chap.is_none() {
        let hint = "give the secret with --chap-secret-file FILE, or leave out the name before the @";
        return Err(Refusal::new(code::CHAP_INVALID, "the address has a CHAP name, and there is no secret", hint));
    }
    if request.mutual_chap.is_some() && request.chap.is_none() {
        let hint = "give this array's own CHAP secret as well";
        return Err(Refusal::new(code::CHAP_INVALID, "the target cannot authenticate alone", hint));
    }
    let address: RemoteUrl = request.path.parse()?;
    let target = address.address.target.as_str().to_owned();
    let own = request.chap.as_ref().map(|chap| chap_record(chap, user.as_deref().unwrap_or(&node))).transpose()?;
    let mutual = request.mutual_chap.as_ref().map(|chap| chap_record(chap, &target)).transpose()?;
    if let (Some(own), Some(mutual)) = (&own, &mutual)
        && own.secret == mutual.secret
    {
        let hint = "give each direction a secret of its own (RFC 7143 §9.2.1)";
        return Err(Refusal::new(code::CHAP_INVALID, "both directions have the same CHAP secret", hint));
    }
    Ok(RemoteRecord { chap: own, mutual_chap: mutual, digests: request.digests })
}

/// True when both name the same unit of one target over at least one common portal.
fn is_same_unit(one: &RemoteAddress, other: &RemoteAddress) -> bool {
    let shares = one.portals.iter().any(|portal| other.portals.contains(portal));
    shares && one.target == other.target && one.lun == other.lun
}

fn chap_record(given: &NewChap, usual: &str) -> Result<ChapRecord, Refusal> {
    let secret = given.secret.clone().ok_or_else(|| {
        Refusal::new(code::CHAP_INVALID, "a CHAP secret is missing", "give it with --chap-secret-file FILE")
    })?;
    let user = given.user.clone().unwrap_or_else(|| usual.to_owned());
    Ok(ChapRecord { user, secret: secret.secret()?, demand: None })
}
