//! Pools: create, expand, import, export, destroy.
//!
//! Called by the API, by the start and by the reconcile loop. Nothing here writes to a disk itself: the data
//! plane does, and is ordered only after the checks.

use crate::access::{Access, Confirmation};
use crate::backing::BackingIdentity;
use crate::change::disks::{Disks, admit_former, admit_unused, missing};
use crate::change::volumes::Volumes;
use crate::core::Core;
use crate::engine::unexpected;
use crate::pending_replacements::PendingReplacements;
use crate::request::{AddGroup, AddMember, GrowPool, ImportPool, NewGroup, NewPool, PoolKeyText, Removal, SecretText};
use crate::state::{KeyRecord, PendingRecord, PoolRecord, PresentationRecord, ReadOnlyRecord, SpareRecord, State};
use crate::system::random;
use crate::unknown::unknown_pool;
pub(crate) use crate::unknown::unknown_pool as unknown;
use model::{
    DiskName, GroupReport, GroupSpec, LostBlocks, MemberReport, Name, Order, PoolId, PoolReport, PoolState,
    PoolWaiting, Refusal, Report, Size, SpaceState, Subject, code, event, spread,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Default chunk size of a disk group.
const CHUNK: Size = Size::new(64 << 10);

/// Pools, their groups and members.
pub struct Pools {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) volumes: Arc<Volumes>,
    /// Held exclusively while disks are searched, and shared by imports: a disk that is being inspected cannot
    /// be opened.
    pub(crate) opening: tokio::sync::RwLock<()>,
    /// Pending spare replacements of members that are still waited for.
    pub(crate) pending_replacements: PendingReplacements,
}

impl Pools {
    /// Creates a pool of the disks and opens it.
    ///
    /// *Errors*: the name is taken, a group has too few disks, a disk is unknown, missing, in use or named
    /// twice; or the refusal of the data plane. Nothing is changed then.
    pub async fn create(&self, request: NewPool) -> Result<PoolReport, Refusal> {
        let turn = self.core.lock_changes().await;
        if self.core.state().pools.contains_key(&request.name) {
            return Err(pool_name_taken(&request.name));
        }
        let disks = self.admit_groups(&request.groups, request.force).await?;
        self.admit_spares(&request.spares, &disks).await?;
        let groups = if request.spread { self.spread(request.groups).await? } else { request.groups };
        let id = PoolId::from_random(random()?);
        // From here to the final commit the pending record names the disks to wipe, should the daemon end in
        // between.
        let pending = PendingRecord { pool: request.name.clone(), disks };
        self.core.commit(&turn, |state| {
            state.pending.insert(id, pending);
        })?;
        let groups = groups.into_iter().map(spec).collect();
        let (name, force) = (request.name, request.force);
        let made = self.core.engine.pool(Order::CreatePool { pool: name.clone(), id, groups, force }).await;
        // The commit point: the pool becomes known and the pending record goes, in one version of the state.
        let committed = self.core.commit(&turn, |state| {
            state.pending.remove(&id);
            if let Ok(pool) = &made {
                state.learn(pool);
                for spare in &request.spares {
                    if let Some(record) = state.disks.get_mut(spare) {
                        // The spares were admitted as blank, so nothing on them has to be overwritten.
                        record.spare = Some(SpareRecord { pool: Some(pool.name.clone()), force: false });
                    }
                }
            }
        });
        if let (Ok(pool), Err(_)) = (&made, &committed) {
            // The pending record is still there, so whatever this leaves behind is wiped at the next start.
            self.core.engine.done(Order::DestroyPool { pool: pool.name.clone() }).await?;
        }
        // The error of the commit first: without the commit the pool was destroyed again.
        committed.and(made)?;
        // Reporting needs no lock, and other changes may run meanwhile.
        drop(turn);
        self.report(&name).await
    }

    /// Adds a disk group to the pool and makes its space available to volumes.
    ///
    /// *Errors*: there is no pool of this name, or it is not open; the group has too few disks, a disk is
    /// unknown, missing, in use or named twice; or the refusal of the data plane. Nothing is changed then.
    pub async fn add_group(&self, name: &Name, request: AddGroup) -> Result<PoolReport, Refusal> {
        let turn = self.core.lock_changes().await;
        self.admit_open(name).await?;
        self.admit_groups(std::slice::from_ref(&request.group), request.force).await?;
        let (group, force) = (spec(request.group), request.force);
        // The pool's own commit is the commit point; the state only remembers the new members.
        let pool = self.core.engine.pool(Order::AddGroup { pool: name.clone(), group, force }).await?;
        self.core.commit(&turn, |state| state.learn(&pool))?;
        drop(turn);
        self.report(name).await
    }

    /// Adds the disk to a group of the pool, which starts a reshape over all of its members.
    ///
    /// *Errors*: there is no pool of this name, or it is not open; the disk is unknown, missing or in use; or
    /// the refusal of the data plane. Nothing is changed then.
    pub async fn add_member(&self, name: &Name, request: AddMember) -> Result<PoolReport, Refusal> {
        let turn = self.core.lock_changes().await;
        self.admit_open(name).await?;
        self.admit_members(std::slice::from_ref(&request.disk), request.force).await?;
        let AddMember { disk, group, force } = request;
        let pool = self.core.engine.pool(Order::AddMember { pool: name.clone(), group, disk, force }).await?;
        self.core.commit(&turn, |state| state.learn(&pool))?;
        drop(turn);
        self.report(name).await
    }

    /// Expands one group of the pool, or every one that can, to the full size of disks that were replaced by
    /// larger ones.
    ///
    /// *Errors*: there is no pool of this name, or it is not open; or the refusal of the data plane. Nothing is
    /// changed then.
    pub async fn grow(&self, name: &Name, request: GrowPool) -> Result<PoolReport, Refusal> {
        let turn = self.core.lock_changes().await;
        self.admit_open(name).await?;
        // The state holds no sizes of groups, so there is nothing to commit.
        self.core
            .engine
            .pool(Order::GrowPool {
                pool: name.clone(),
                group: request.group,
                member_size: request.member_size.unwrap_or_default(),
            })
            .await?;
        drop(turn);
        self.report(name).await
    }

    /// Admits the name of an open pool and returns its report.
    pub(crate) async fn admit_open(&self, name: &Name) -> Result<PoolReport, Refusal> {
        // The record tells whether the pool belongs to this array; the data plane, whether it is open.
        let state = self.core.state();
        let record = state.pools.get(name).ok_or_else(|| unknown(name))?;
        let pools = self.core.engine.pools(Order::Pools).await?;
        let waiting = self.access.closed_pools.of(name);
        let open = pools.into_iter().find(|pool| pool.name == *name);
        open.ok_or_else(|| not_open(name, record.read_only.is_some(), waiting.as_ref()))
    }

    /// Imports a pool that is known from its disks alone, and opens it with its volumes.
    ///
    /// *Shape*: `force` confirms that the previous owner is down; `key` is the pool key of that node, where
    /// volumes are encrypted. *Errors*: the key is wrong, no disk of the pool is known, two pools have the
    /// name, too many disks are missing, or another node owns it or may own it.
    pub async fn import(&self, name: &Name, request: ImportPool) -> Result<PoolReport, Refusal> {
        let ImportPool { force, accept_log_loss, read_only, key, keep, confirmed } = request;
        let key = key.map(SecretText::secret).transpose().map_err(|refusal| {
            let hint = "give the 64 hexadecimal digits that blockyard pool key wrote";
            Refusal::new(code::POOL_KEY_WRONG, format!("the key is not a valid pool key: {}", refusal.message), hint)
        })?;
        let order = |id, confirmed| {
            let (key, keep) = (key.clone(), keep.clone());
            Order::OpenPool { id, force, accept_log_loss, read_only, key, whole: false, keep, confirmed }
        };
        let record = key.clone().map(|secret| KeyRecord { secret });
        let record = read_only.then_some(ReadOnlyRecord { force, accept_log_loss, key: record });
        // Keeps the search for disks out while the pool is opened.
        let _opening = self.opening.read().await;
        let turn = self.core.lock_changes().await;
        // Disks may have been attached since the start.
        self.disks.open_all(&turn).await?;
        let shown = self.close_to_import(name, read_only).await?;
        let known = self.core.state().pools.get(name).cloned();
        // A known pool is opened by its identity; an unknown one is found by the labels of the disks.
        let id = match &known {
            Some(known) => known.id,
            None => self.labelled(name).await?,
        };
        if known.is_some() && read_only {
            // Before the pool is opened: a daemon that ends in between must not open it for writing at its next
            // start.
            self.core.commit(&turn, |state| state.set_read_only(name, record.clone()))?;
        }
        // Watching for another owner's heartbeat can take seconds; other changes run in the meantime.
        drop(turn);
        // A known pool is not new to this node, so only the choice of a part has to be confirmed.
        let pool = match self.core.engine.pool(order(id, confirmed || (known.is_some() && keep.is_none()))).await {
            Ok(pool) => pool,
            Err(refusal) => {
                self.give_up_import(name, known, shown, &refusal).await?;
                return Err(refusal);
            }
        };
        let turn = self.core.lock_changes().await;
        self.core.commit(&turn, |state| {
            state.learn(&pool);
            state.set_read_only(&pool.name, record);
        })?;
        // Settings first, access last: hosts are admitted to volumes that already have their policies.
        self.apply_policy(&pool.name).await?;
        self.volumes.apply_policies(&turn, &pool.name).await?;
        self.access.closed_pools.forget(&pool.name);
        // Volumes may have been deleted while another node had the pool.
        self.access.drop_dangling(&turn).await?;
        self.volumes.learn_shapes(&turn).await?;
        self.access.apply().await?;
        drop(turn);
        self.report(&pool.name).await
    }

    /// Closes the pool if it is open. Returns true when it served its volumes read-only until then.
    ///
    /// *Errors*: it is open, and an import would change nothing.
    async fn close_to_import(&self, name: &Name, read_only: bool) -> Result<bool, Refusal> {
        let open = self.core.engine.pools(Order::Pools).await?.into_iter().find(|pool| pool.name == *name);
        let Some(pool) = open else { return Ok(false) };
        let is_imported_read_only = self.core.state().pools.get(name).is_some_and(|record| record.read_only.is_some());
        let may_be_reopened = match pool.read_only {
            // A failed pool serves nothing, so reopening it cannot disturb anyone.
            _ if pool.state == PoolState::Failed => true,
            // A pool that opened read-only by itself is admitted: the import records the choice for later starts.
            Some(_) => !(read_only && is_imported_read_only),
            None => false,
        };
        if !may_be_reopened {
            return Err(open_already(&pool, read_only));
        }
        // Presentations stay, so hosts find the volumes again afterwards.
        self.core.engine.done(Order::ClosePool { pool: name.clone() }).await?;
        Ok(pool.read_only.is_some())
    }

    /// Restores the `known` record after a refused import; a pool that was open read-only (`shown`) is opened
    /// again.
    async fn give_up_import(
        &self,
        name: &Name,
        known: Option<PoolRecord>,
        shown: bool,
        refusal: &Refusal,
    ) -> Result<(), Refusal> {
        // Only a refusal because of another owner is worth an event.
        if matches!(refusal.code, code::POOL_OWNED | code::POOL_NOT_RELEASED) {
            let sentence = format!("import of pool {name} failed: {refusal}");
            self.core.raise(event::IMPORT_REFUSED, Subject::pool(name), sentence);
        }
        let Some(known) = known else { return Ok(()) };
        // Locked for the commit only, because opening the pool again can take seconds.
        {
            let turn = self.core.lock_changes().await;
            self.core.commit(&turn, |state| state.set_read_only(name, known.read_only.clone()))?;
        }
        if shown && let Some(pool) = self.open_known(name, &known).await {
            self.settle(&self.core.lock_changes().await, &pool).await?;
        }
        Ok(())
    }

    /// Returns the pool key, which wraps the keys of the pool's encrypted volumes: with it, they can be read
    /// elsewhere.
    ///
    /// *Errors*: there is no pool of this name, or it is not open.
    pub async fn key(&self, name: &Name) -> Result<PoolKeyText, Refusal> {
        self.admit_open(name).await?;
        match self.core.engine.ask(Order::PoolKey { pool: name.clone() }).await? {
            Report::PoolKey(id, key) => Ok(PoolKeyText { id, key: SecretText::hex(key.expose()) }),
            other => Err(unexpected(&other)),
        }
    }

    /// Exports the pool: closes it and forgets it, so that another machine may import it.
    ///
    /// *Errors*: there is none of this name, it is not open; or its volumes are presented, and `force` is not
    /// set.
    pub async fn export(&self, name: &Name, request: Removal) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        self.admit_open(name).await?;
        let state = self.core.state();
        let unpresented = |state: &mut State| state.presentations.retain(|seen| seen.volume.pool() != Some(name));
        match state.presentations.iter().find(|seen| seen.volume.pool() == Some(name)) {
            None => {}
            // Hosts lose the LUNs first, so that no command of theirs meets a closed pool.
            Some(_) if request.force => self.access.commit(&turn, Confirmation::forced(true), unpresented).await?,
            Some(PresentationRecord { volume, host, .. }) => {
                let message = format!("volume {volume} of pool {name} is presented to host {host}");
                let hint = format!("unpresent it first with blockyard unpresent {volume} {host}");
                return Err(self.access.in_use(Refusal::new(code::POOL_IN_USE, message, hint), unpresented).await);
            }
        }
        let before = self.core.state();
        // Forgotten before it is closed: after a crash in between this node does not open it again.
        self.core.commit(&turn, |state| state.forget_pool(name))?;
        let closed = self.core.engine.done(Order::ClosePool { pool: name.clone() }).await;
        // Still open, so it stays one of ours.
        self.core.or_restore(&turn, closed, &before)?;
        self.core.raise(
            event::POOL_EXPORTED,
            Subject::pool(name),
            format!("pool {name} exported: another machine may import it"),
        );
        Ok(())
    }

    /// Destroys the pool and frees its disks.
    ///
    /// *Errors*: there is none of this name, it has volumes, or it is not open.
    pub async fn destroy(&self, name: &Name) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        let before = self.core.state();
        let pool = self.admit_open(name).await?;
        let record = before.pools.get(name).ok_or_else(|| unknown(name))?;
        if pool.volumes > 0 {
            return Err(Refusal::new(
                code::POOL_IN_USE,
                format!("pool {name} has {} volume{}", pool.volumes, if pool.volumes == 1 { "" } else { "s" }),
                "delete them first, see blockyard volume list",
            ));
        }
        let disks: Vec<DiskName> = pool.members().filter_map(|member| member.disk.clone()).collect();
        // The commit point: from here the pool is gone, and remaining labels are wiped at the next start.
        self.core.commit(&turn, |state| {
            // The identities of the disks end with the pool.
            for disk in &disks {
                if let Some(record) = state.disks.get_mut(disk) {
                    record.id = None;
                }
            }
            state.forget_pool(name);
            state.pending.insert(record.id, PendingRecord { pool: name.clone(), disks });
        })?;
        let destroyed = self.core.engine.done(Order::DestroyPool { pool: name.clone() }).await;
        self.core.or_restore(&turn, destroyed, &before)?;
        // A crash before this commit leads to another wipe at the start, which finds no label of this pool.
        self.core.commit(&turn, |state| {
            state.pending.remove(&record.id);
        })
    }

    /// Admits groups of enough disks that are known, open, free and named once; returns the disks.
    pub(crate) async fn admit_groups(&self, groups: &[NewGroup], force: bool) -> Result<Vec<DiskName>, Refusal> {
        if groups.is_empty() {
            let hint = "give the disks of at least one group";
            return Err(Refusal::new(code::TOO_FEW_MEMBERS, "a pool needs disks", hint));
        }
        groups.iter().try_for_each(|group| group.level.admit_members(group.disks.len()))?;
        let disks: Vec<DiskName> = groups.iter().flat_map(|group| group.disks.iter().cloned()).collect();
        self.admit_members(&disks, force).await?;
        Ok(disks)
    }

    /// Admits disks that are known, open, free and named once.
    async fn admit_members(&self, disks: &[DiskName], force: bool) -> Result<(), Refusal> {
        let open: BTreeMap<DiskName, _> = self
            .core
            .engine
            .disks(Order::Disks)
            .await?
            .into_iter()
            .filter_map(|disk| disk.name.clone().map(|name| (name, disk)))
            .collect();
        let mut seen = BTreeSet::new();
        let mut media: BTreeMap<BackingIdentity, &DiskName> = BTreeMap::new();
        for disk in disks {
            if self.core.state().disk(disk)?.spare.is_some() {
                let hint = format!("choose another disk, or run blockyard disk spare remove {disk} first");
                return Err(Refusal::new(code::DISK_IN_USE, format!("disk {disk} is a hot spare"), hint));
            }
            admit_unused(disk, open.get(disk).ok_or_else(|| missing(disk))?)?;
            admit_former(disk, self.core.state().disk(disk)?.former.as_ref(), force)?;
            if !seen.insert(disk) {
                let message = format!("disk {disk} is listed twice");
                return Err(Refusal::new(code::DISK_IN_USE, message, "list each disk once"));
            }
            // Two names may lead to one device, as with two links; redundancy across them would be none.
            let medium = BackingIdentity::at(&self.core.state().disk(disk)?.path);
            if let Some(other) = medium.and_then(|medium| media.insert(medium, disk)) {
                return Err(one_disk(other, disk));
            }
        }
        Ok(())
    }

    /// Admits blank, unused disks as spares, which are not among `members` of the new pool.
    async fn admit_spares(&self, spares: &[DiskName], members: &[DiskName]) -> Result<(), Refusal> {
        let mut seen: BTreeSet<&DiskName> = members.iter().collect();
        for spare in spares {
            if !seen.insert(spare) {
                let message = format!("disk {spare} is listed twice");
                return Err(Refusal::new(code::DISK_IN_USE, message, "list each disk once"));
            }
            self.disks.admit_spare(spare, false).await?;
        }
        Ok(())
    }

    /// Redistributes the disks of the groups over enclosures.
    async fn spread(&self, groups: Vec<NewGroup>) -> Result<Vec<NewGroup>, Refusal> {
        // Only groups of one shape can be dealt out evenly.
        // `admit_groups` has refused an empty list, so there is a first group.
        let like_first =
            |group: &NewGroup| group.level == groups[0].level && group.disks.len() == groups[0].disks.len();
        if !groups.iter().all(like_first) {
            let hint = "make all groups alike, or list the disks of each group in order";
            return Err(Refusal::new(code::GROUPS_UNEQUAL, "groups of different kinds cannot be spread", hint));
        }
        let placed = self.disks.placed().await?;
        let disks = groups.iter().flat_map(|group| &group.disks);
        let disks: Vec<_> = disks.map(|disk| (disk.clone(), placed.get(disk).cloned())).collect();
        let spread = spread::spread(groups[0].level, &disks, groups.len());
        Ok(groups.into_iter().zip(spread).map(|(group, disks)| NewGroup { disks, ..group }).collect())
    }

    /// Returns the only pool called `name` by the labels of open disks.
    async fn labelled(&self, name: &Name) -> Result<PoolId, Refusal> {
        let disks = self.core.engine.disks(Order::Disks).await?;
        let pools = disks.iter().filter_map(|disk| disk.label.pool()).filter(|(_, label)| *label == name);
        let ids: BTreeSet<PoolId> = pools.map(|(id, _)| id).collect();
        let mut ids = ids.into_iter();
        match (ids.next(), ids.next()) {
            (Some(id), None) => Ok(id),
            (None, _) => Err(Refusal::new(
                code::POOL_UNKNOWN,
                format!("no disk of pool {name} is known"),
                "add its disks first with blockyard disk add",
            )),
            (Some(_), Some(_)) => Err(Refusal::new(
                code::NAME_TAKEN,
                format!("the disks belong to two different pools named {name}"),
                "remove the disks of the other pool with blockyard disk remove",
            )),
        }
    }

    /// Lists all known pools, including those that are not open. Missing members have their names.
    pub async fn list(&self) -> Result<Vec<PoolReport>, Refusal> {
        let mut pools = self.core.engine.pools(Order::Pools).await?;
        let state = self.core.state();
        for member in pools.iter_mut().flat_map(PoolReport::all_groups_mut).flat_map(|group| &mut group.members) {
            // The data plane knows a missing member by identity only; the state remembers its name.
            if member.disk.is_none() {
                let known = state.disks.iter().find(|(_, record)| record.id == Some(member.id));
                member.disk = known.map(|(name, _)| name.clone());
            }
            // The plan may be older than the return of the member.
            member.next_spare = self.pending_replacements.of(member.id).filter(|_| member.state.is_lost());
        }
        let placed = self.disks.placed().await?;
        for pool in &mut pools {
            pool.weak_enclosures = weak_enclosures(pool, &placed);
            pool.spares = state.spares_of(&pool.name).cloned().collect();
            let Some(record) = state.pools.get(&pool.name) else { continue };
            pool.policy = record.policy.clone();
            pool.imported_read_only = record.read_only.is_some();
            // The data plane knows the latest scrub; the stored one serves where it knows none.
            pool.scrub = pool.scrub.take().or_else(|| record.scrubs.last().cloned());
            pool.next_scrub = record.next_scrub();
            for member in pool.all_groups_mut().flat_map(|group| &mut group.members) {
                let taken = record.taken.iter().find(|taken| member.disk.as_ref() == Some(&taken.spare));
                member.replaces = taken.map(|taken| taken.of.clone()).or(member.replaces.take());
            }
        }
        let open: Vec<Name> = pools.iter().map(|pool| pool.name.clone()).collect();
        // Closed pools are known from the state alone.
        let lost = state.pools.iter().filter(|(name, _)| !open.contains(name));
        pools.extend(lost.map(|(name, record)| PoolReport {
            name: name.clone(),
            id: record.id,
            state: PoolState::Missing,
            size: Size::ZERO,
            used: Size::ZERO,
            space: SpaceState::Enough,
            volumes: 0,
            groups: Vec::new(),
            log: None,
            spares: state.spares_of(name).cloned().collect(),
            policy: record.policy.clone(),
            scrub: record.scrubs.last().cloned(),
            weak_enclosures: Vec::new(),
            next_scrub: None,
            lost: LostBlocks::default(),
            fenced: None,
            read_only: None,
            imported_read_only: record.read_only.is_some(),
            waiting: self.access.closed_pools.of(name),
        }));
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pools)
    }

    /// Returns one pool. *Errors*: there is none of this name.
    pub async fn report(&self, name: &Name) -> Result<PoolReport, Refusal> {
        self.list().await?.into_iter().find(|pool| pool.name == *name).ok_or_else(|| unknown_pool(name))
    }
}

fn spec(group: NewGroup) -> GroupSpec {
    GroupSpec {
        level: group.level,
        chunk: group.chunk.unwrap_or(CHUNK),
        integrity: !group.no_integrity,
        member_size: group.member_size.unwrap_or_default(),
        disks: group.disks,
    }
}

fn one_disk(one: &DiskName, other: &DiskName) -> Refusal {
    Refusal::new(
        code::DISK_IN_USE,
        format!("{one} and {other} are the same disk"),
        format!("list it once, and remove the other name with blockyard disk remove {other}"),
    )
}

fn not_open(name: &Name, read_only: bool, waiting: Option<&PoolWaiting>) -> Refusal {
    let option = if read_only { " --read-only" } else { "" };
    let why = waiting.map_or_else(String::new, |waiting| format!(": {}", waiting.reason));
    let hint = match waiting {
        Some(PoolWaiting { hint: Some(hint), .. }) => hint.clone(),
        Some(PoolWaiting { needs_operator: true, .. }) => {
            format!("run blockyard pool import {name}{option}, which shows the next step; keep its disks until then")
        }
        _ => format!(
            "attach its disks and run blockyard pool import {name}{option}, which shows the problem; keep its \
             disks until then"
        ),
    };
    Refusal::new(code::POOL_INCOMPLETE, format!("pool {name} is not open{why}"), hint)
}

fn pool_name_taken(name: &Name) -> Refusal {
    Refusal::new(code::NAME_TAKEN, format!("pool {name} already exists"), "choose another name")
}

/// Refusal to import an open pool, with the alternative.
fn open_already(pool: &PoolReport, read_only: bool) -> Refusal {
    let name = &pool.name;
    let (message, hint) = match (&pool.read_only, read_only) {
        (Some(_), _) => (
            format!("pool {name} is already open, read-only"),
            format!(
                "to open it for writing, import it without --read-only, or export it first with blockyard pool export {name}"
            ),
        ),
        (None, true) => (
            format!("pool {name} is already open, for writing"),
            format!("to open it read-only, export it first with blockyard pool export {name}"),
        ),
        (None, false) => (format!("pool {name} is already open"), "see blockyard pool show".to_owned()),
    };
    Refusal::new(code::NAME_TAKEN, message, hint)
}

/// Returns the enclosures whose loss would cost some group of the pool its data.
fn weak_enclosures(pool: &PoolReport, placed: &BTreeMap<DiskName, String>) -> Vec<String> {
    let of_group = |group: &GroupReport| {
        let place = |member: &MemberReport| {
            // A member without a known disk has no enclosure. Its name does not matter then, so the pool's will do.
            let enclosure = member.disk.as_ref().and_then(|disk| placed.get(disk).cloned());
            (member.disk.clone().unwrap_or_else(|| pool.name.clone()), enclosure)
        };
        spread::weak_enclosures(group.level, &group.members.iter().map(place).collect::<Vec<_>>())
    };
    let weak: BTreeSet<String> = pool.kept_groups().flat_map(of_group).collect();
    weak.into_iter().collect()
}
