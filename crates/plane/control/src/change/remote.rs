//! Remote disks: added, and returned to their pools when a path to them is available again.
//!
//! Called by [`Disks::add`] for addresses that begin with `iscsi://`, and by the reconcile loop in every round.

use crate::change::disks::Disks;
use crate::change::pools::Pools;
use crate::core::Core;
use crate::request::{NewChap, NewDisk, Replace};
use crate::state::{ChapRecord, DiskRecord, RemoteRecord};
use model::{
    Chap, ChapCredentials, Demand, DiskName, DiskPathState, DiskReport, DiskState, Order, Refusal, RemoteAddress,
    RemoteLogin, RemoteReport, RemoteUrl, code,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Interval between attempts to return a remote disk to its pool.
const RETURN_INTERVAL: Duration = Duration::from_secs(15);
/// Time limit for inspecting a remote disk that may be back.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Monitor that returns lost remote disks to their pools.
pub(crate) struct RemoteDisks {
    pub(crate) core: Arc<Core>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pools: Arc<Pools>,
}

impl RemoteRecord {
    /// Returns the login parameters for the data plane.
    pub(crate) fn login(&self, force: bool) -> RemoteLogin {
        let chap = |record: &ChapRecord| Chap {
            user: record.user.clone(),
            secret: record.secret.clone(),
            // Required in both directions: a target that skips mutual CHAP must not get data.
            demand: Demand::Required,
        };
        let proof = ChapCredentials { own: self.chap.as_ref().map(chap), mutual: self.mutual_chap.as_ref().map(chap) };
        RemoteLogin { proof, digests: self.digests, force }
    }
}

impl DiskRecord {
    /// Reports the address of a remote disk that is not logged in.
    pub(crate) fn remote_report(&self) -> Option<RemoteReport> {
        let address: RemoteAddress = self.path.parse().ok()?;
        self.remote.as_ref().map(|remote| address.report(&remote.login(false)))
    }

    /// Returns the order that opens the disk as `name`.
    pub(crate) fn order(&self, name: &DiskName) -> Order {
        let remote = self.remote.as_ref().map(|remote| Box::new(remote.login(false)));
        Order::OpenDisk { disk: name.clone(), path: self.path.clone(), remote }
    }
}

impl Disks {
    /// Logs in to a remote disk and adds it.
    ///
    /// *Errors*: as of [`Disks::add`]; the address or the credentials are invalid, no path logs in, or another
    /// initiator holds a reservation without `force`.
    pub(super) async fn add_remote(&self, request: NewDisk) -> Result<DiskReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let RemoteUrl { user, address } = request.path.parse()?;
        if request.create.is_some() {
            let hint = "omit --create; create a volume on the other array";
            return Err(Refusal::new(code::OPTIONS_CONFLICT, "a remote disk cannot be created here", hint));
        }
        let state = self.core.state();
        // The normalized address, without the CHAP name.
        let path = address.to_string();
        let name = match &request.name {
            Some(name) if state.disks.contains_key(name) => return Err(super::disks::disk_name_taken(name)),
            Some(name) => name.clone(),
            None => super::disks::numbered_name(|name| state.disks.contains_key(name)),
        };
        // Checked by address first, so that a duplicate is refused without a login.
        let same = |record: &DiskRecord| record.path.parse().is_ok_and(|known| is_same_unit(&known, &address));
        if let Some((known, _)) = state.disks.iter().find(|(_, record)| same(record)) {
            return Err(super::disks::disk_known(path.as_ref(), known));
        }
        let remote = remote_record(&self.core, user, &request)?;
        // `force` preempts registrations of other initiators.
        let login = Some(Box::new(remote.login(request.force)));
        let order = Order::OpenDisk { disk: name.clone(), path: path.clone(), remote: login };
        let report = self.core.engine.disk(order).await?;
        let identity = report.identity.clone();
        let record =
            DiskRecord { path, id: report.label.disk(), spare: None, identity, former: None, remote: Some(remote) };
        // The login is kept only if every check passes and the record is durable.
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

    /// Admits a unit that is not known under another address, and is empty or may be overwritten.
    async fn admit_remote(&self, record: &DiskRecord, report: &DiskReport, force: bool) -> Result<(), Refusal> {
        let state = self.core.state();
        // By its label, or by WWN where it carries none.
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
    /// Returns lost remote disks to their pools once they can be reached, which resynchronizes them. At most
    /// one attempt per disk and [`RETURN_INTERVAL`].
    pub(crate) async fn return_lost(&self, tried: &mut BTreeMap<DiskName, Instant>) -> Result<(), Refusal> {
        // Most arrays have no remote disk, and are spared the list of disks in every round.
        if !self.core.state().disks.values().any(|record| record.remote.is_some()) {
            return Ok(());
        }
        for disk in self.disks.list().await? {
            let Some(name) = disk.name.clone() else { continue };
            let is_lost = matches!(disk.state, DiskState::Failed | DiskState::Missing);
            let record = self.core.state().disks.get(&name).cloned();
            let Some(record) = record.filter(|record| is_lost && record.remote.is_some()) else {
                // In service: after a later loss the first attempt is made immediately.
                tried.remove(&name);
                continue;
            };
            let is_due = tried.get(&name).is_none_or(|last| last.elapsed() >= RETURN_INTERVAL);
            if is_due {
                // Noted before the attempt, so that the interval holds after a refusal as well.
                tried.insert(name.clone(), Instant::now());
                if !self.can_return(&disk, &record).await {
                    continue;
                }
                self.return_disk(&name).await;
            }
        }
        Ok(())
    }

    /// Returns true when the unit answers and carries the label of the lost member.
    async fn can_return(&self, disk: &DiskReport, record: &DiskRecord) -> bool {
        let mut paths = disk.remote.iter().flat_map(|remote| &remote.paths);
        if paths.all(|path| path.state == DiskPathState::Down) {
            // Paths that are down log in again by themselves as soon as they can.
            return false;
        }
        let remote = record.remote.as_ref().map(|remote| Box::new(remote.login(false)));
        let looking = self.core.engine.disk(Order::InspectDisk { path: record.path.clone(), remote });
        // A target that does not answer must not hold up the reconcile loop.
        let seen = timeout(INSPECT_TIMEOUT, looking).await;
        seen.is_ok_and(|seen| seen.is_ok_and(|seen| record.id.is_some() && seen.label.disk() == record.id))
    }

    async fn return_disk(&self, name: &DiskName) {
        let request = Replace { replacement: name.clone(), force: false, confirmed: false };
        match self.pools.replace_disk(name, request).await {
            Ok(pool) => tracing::info!(disk = %name, pool = %pool.name, "a remote disk rejoined its slot"),
            // Refused for now; a later round tries again.
            Err(refusal) => tracing::info!(disk = %name, %refusal, "a remote disk that responds cannot rejoin yet"),
        }
    }
}

/// Builds the login record of a remote disk.
///
/// *Errors*: a CHAP name without a secret, mutual CHAP without CHAP, or one secret for both directions.
fn remote_record(core: &Core, user: Option<String>, request: &NewDisk) -> Result<RemoteRecord, Refusal> {
    let node = core.settings.node.to_string();
    if user.is_some() && request.chap.is_none() {
        let hint = "give the secret with --chap-secret-file FILE, or omit the name before the @";
        return Err(Refusal::new(code::CHAP_INVALID, "the address has a CHAP name but no secret was given", hint));
    }
    if request.mutual_chap.is_some() && request.chap.is_none() {
        let hint = "give the CHAP secret of this array as well";
        return Err(Refusal::new(code::CHAP_INVALID, "mutual CHAP needs both secrets", hint));
    }
    let address: RemoteUrl = request.path.parse()?;
    let target = address.address.target.as_str().to_owned();
    let own = request.chap.as_ref().map(|chap| chap_record(chap, user.as_deref().unwrap_or(&node))).transpose()?;
    let mutual = request.mutual_chap.as_ref().map(|chap| chap_record(chap, &target)).transpose()?;
    if let (Some(own), Some(mutual)) = (&own, &mutual)
        && own.secret == mutual.secret
    {
        let hint = "use a different secret for each direction (RFC 7143 §9.2.1)";
        return Err(Refusal::new(code::CHAP_INVALID, "both directions use the same CHAP secret", hint));
    }
    Ok(RemoteRecord { chap: own, mutual_chap: mutual, digests: request.digests })
}

/// Returns true when both addresses name the same unit of one target with at least one portal in common.
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
