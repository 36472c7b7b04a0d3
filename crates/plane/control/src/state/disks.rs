//! What the state knows of disks and of the pools that they make up.

use super::{DiskRecord, PoolRecord, ReadOnlyRecord, State};
use model::{DiskName, FormerMember, Name, PoolReport, Refusal, code};

impl State {
    /// The pool is one of ours, and each of its members that has a name is known by its identity.
    pub(crate) fn learn(&mut self, pool: &PoolReport) {
        let record = self.pools.entry(pool.name.clone()).or_insert_with(|| PoolRecord::new(pool.id));
        record.id = pool.id;
        record.members = pool.members().map(|member| member.id).collect();
        record.taken.retain(|taken| pool.members().any(|member| member.disk.as_ref() == Some(&taken.spare)));
        for member in pool.members() {
            if let Some(record) = member.disk.as_ref().and_then(|disk| self.disks.get_mut(disk)) {
                record.id = Some(member.id);
                record.spare = None;
                record.former = None;
            }
        }
    }

    /// The disk called `name` is a member of the pool no more: another one has its place.
    pub(crate) fn let_go(&mut self, name: &DiskName, former: FormerMember) {
        if let Some(record) = self.disks.get_mut(name) {
            record.former = Some(former);
        }
    }

    /// Each start opens the pool read-only, as the record says, or for writing without one.
    pub(crate) fn set_read_only(&mut self, pool: &Name, record: Option<ReadOnlyRecord>) {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.read_only = record;
        }
    }

    /// The pool is none of ours any more, and nothing is a spare for it.
    pub(crate) fn forget_pool(&mut self, pool: &Name) {
        self.pools.remove(pool);
        for record in self.disks.values_mut() {
            record.spare.take_if(|spare| spare.pool.as_ref() == Some(pool));
        }
    }

    /// True for a disk of another array.
    pub(crate) fn is_remote(&self, name: &DiskName) -> bool {
        self.disks.get(name).is_some_and(|record| record.remote.is_some())
    }

    /// What we know of the disk called `name`.
    pub(crate) fn disk(&self, name: &DiskName) -> Result<&DiskRecord, Refusal> {
        self.disks.get(name).ok_or_else(|| {
            Refusal::new(
                code::DISK_UNKNOWN,
                format!("there is no disk {name}"),
                "see blockyard disk list, or add it with blockyard disk add",
            )
        })
    }
}
