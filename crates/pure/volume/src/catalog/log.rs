//! Catalog record of the pool's write log: its location, identity, state and volumes.

use super::check::{all_differ, ensure};
use super::wire::{Cursor, RECORD_BYTES, put, record, wire};
use super::{Catalog, CatalogError, GroupRole, MemberState, VOLUMES_MAX};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_LOG: u16 = 7;

/// Write log of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Index of the group whose device it is on.
    pub group: u16,
    /// UUID of the log, unique in the pool; a log with another UUID on the device does not belong to it.
    pub id: Uuid,
    /// State of the log.
    pub state: LogState,
    /// Volumes that may have acknowledged data in the log that is not yet on their groups. For an abandoned
    /// log: those whose acknowledged data was in memory only when it was given up.
    pub volumes: Vec<Uuid>,
}

/// State of a write log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Live: it is opened and replayed before its volumes serve.
    Live,
    /// Away: live, but none of its disks was found at the last opening. The members of its group that went
    /// missing hold their content of the last use, however old their catalogs become.
    Missing,
    /// Abandoned: it failed while in use and is never opened again, because its volumes have newer data.
    Abandoned,
}

wire! {
    struct LogWire { id: [u8; 16], group: U16, state: u8, reserved: [u8; 9], volumes: U32 }
}

impl LogRecord {
    /// Maximum size of the record in bytes.
    pub(crate) const EMITTED_BYTES_MAX: usize = RECORD_BYTES + size_of::<LogWire>() + VOLUMES_MAX * size_of::<Uuid>();

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        record(out, TYPE_LOG, |out| {
            let state = match self.state {
                LogState::Live => 0,
                LogState::Abandoned => 1,
                LogState::Missing => 2,
            };
            let volumes = u32::try_from(self.volumes.len()).expect("bounded by VOLUMES_MAX").into();
            let (id, group) = (*self.id.as_bytes(), self.group.into());
            put(out, &LogWire { id, group, state, reserved: [0; 9], volumes });
            self.volumes.iter().for_each(|volume| out.extend_from_slice(volume.as_bytes()));
        });
    }

    pub(super) fn parse(payload: &mut Cursor<'_>) -> Result<Self, CatalogError> {
        let wire: LogWire = payload.read()?;
        let count = wire.volumes.get() as usize;
        // Bounded before the UUIDs are collected.
        ensure(count <= VOLUMES_MAX, "a log has too many volumes")?;
        let volumes = (0..count).map(|_| payload.read::<[u8; 16]>().map(Uuid::from_bytes));
        Ok(Self {
            group: wire.group.get(),
            id: Uuid::from_bytes(wire.id),
            state: match wire.state {
                0 => LogState::Live,
                1 => LogState::Abandoned,
                2 => LogState::Missing,
                _ => return Err(CatalogError::Damaged("unknown state of a log")),
            },
            volumes: volumes.collect::<Result<_, _>>()?,
        })
    }
}

impl Catalog {
    /// Index of the log group.
    #[must_use]
    pub fn log_group(&self) -> Option<u16> {
        let at = self.groups.iter().position(|group| group.role == GroupRole::Log)?;
        Some(u16::try_from(at).expect("bounded by GROUPS_MAX"))
    }

    /// Volumes of the log that still exist.
    #[must_use]
    pub fn log_volumes(&self) -> Vec<Uuid> {
        let volumes = self.log.iter().flat_map(|log| &log.volumes).copied();
        // Deleted volumes may remain in the record until the next change of it.
        volumes.filter(|&volume| self.volume(volume).is_some() || self.branch(volume).is_some()).collect()
    }

    /// Generation in which the disks of the log went away together, while they are away.
    pub(crate) fn log_missing_since(&self) -> Option<u64> {
        let log = self.log.as_ref().filter(|log| log.state == LogState::Missing)?;
        let members = &self.groups.get(usize::from(log.group))?.members;
        // Members that were rebuilding or damaged then are marked failed and do not count.
        members.iter().filter(|member| member.state == MemberState::Missing).map(|member| member.since).max()
    }

    /// Checks that there is at most one log group, and that the log is on it.
    pub(super) fn check_log(&self) -> Result<(), CatalogError> {
        let logs = self.groups.iter().filter(|group| group.role == GroupRole::Log).count();
        ensure(logs <= 1, "a pool has two groups for its log")?;
        // A group for the log may have none: it is committed before its log is formatted.
        let Some(log) = &self.log else { return Ok(()) };
        ensure(self.log_group() == Some(log.group), "a log lies on a group that is not for it")?;
        ensure(all_differ(log.volumes.iter()), "a log has a volume twice")
    }
}
