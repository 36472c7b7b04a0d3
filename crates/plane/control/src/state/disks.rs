//! Records of disks and of their pools in the desired state.

use super::{DiskRecord, PoolRecord, ReadOnlyRecord, State};
use model::{DiskName, FormerMember, Name, PoolReport, Refusal, code};

impl State {
    /// Records the pool and its members, and links each named member to its identity.
    pub(crate) fn learn(&mut self, pool: &PoolReport) {
        let record = self.pools.entry(pool.name.clone()).or_insert_with(|| PoolRecord::new(pool.id));
        record.id = pool.id;
        record.members = pool.members().map(|member| member.id).collect();
        // A taken entry lasts only while its former spare is a member of the pool.
        record.taken.retain(|taken| pool.members().any(|member| member.disk.as_ref() == Some(&taken.spare)));
        for member in pool.members() {
            if let Some(record) = member.disk.as_ref().and_then(|disk| self.disks.get_mut(disk)) {
                // A member is no longer a spare, and no former member either.
                record.id = Some(member.id);
                record.spare = None;
                record.former = None;
            }
        }
    }

    /// Marks the disk `name` as a former member: another disk has taken its place.
    pub(crate) fn mark_former_member(&mut self, name: &DiskName, former: FormerMember) {
        if let Some(record) = self.disks.get_mut(name) {
            record.former = Some(former);
        }
    }

    /// Sets the read-only options for later starts; without a record the pool is opened for writing.
    pub(crate) fn set_read_only(&mut self, pool: &Name, record: Option<ReadOnlyRecord>) {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.read_only = record;
        }
    }

    /// Removes the pool and the spare assignments to it.
    pub(crate) fn forget_pool(&mut self, pool: &Name) {
        self.pools.remove(pool);
        for record in self.disks.values_mut() {
            record.spare.take_if(|spare| spare.pool.as_ref() == Some(pool));
        }
    }

    /// Returns true for a remote disk.
    pub(crate) fn is_remote(&self, name: &DiskName) -> bool {
        self.disks.get(name).is_some_and(|record| record.remote.is_some())
    }

    /// Returns the record of the disk `name`.
    pub(crate) fn disk(&self, name: &DiskName) -> Result<&DiskRecord, Refusal> {
        self.disks.get(name).ok_or_else(|| {
            Refusal::new(
                code::DISK_UNKNOWN,
                format!("disk {name} does not exist"),
                "see blockyard disk list, or add it with blockyard disk add",
            )
        })
    }
}
