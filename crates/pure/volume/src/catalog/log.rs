//! The write log of a pool, as its catalog knows it: where it lies, which one it is, and whose data it may hold.

use super::check::{all_differ, ensure};
use super::wire::{Cursor, RECORD_BYTES, put, record, wire};
use super::{Catalog, CatalogError, GroupRole, MemberState, VOLUMES_MAX};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const TYPE_LOG: u16 = 7;

/// The write log of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The group whose device it lies on, by its place.
    pub group: u16,
    /// Which log: another one on the device is not this pool's. No two logs of a pool have one identity.
    pub id: Uuid,
    /// Whether it may be opened.
    pub state: LogState,
    /// The volumes that may have acknowledged data in it and not yet below. Of an abandoned log: those whose
    /// acknowledged data was in memory alone when it was given up.
    pub volumes: Vec<Uuid>,
}

/// Whether a log may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It is to be opened and replayed before its volumes serve.
    Live,
    /// As live, but none of its disks was found when the pool was opened last. The members of its group that went
    /// missing then hold what they held when it was used last, however old their catalogs become.
    Away,
    /// It failed while it was in use: what it holds is older than what its volumes have, and it is never opened again.
    Abandoned,
}

wire! {
    struct LogWire { id: [u8; 16], group: U16, state: u8, reserved: [u8; 9], volumes: U32 }
}

impl LogRecord {
    /// The most bytes that the record of a log can have.
    pub(crate) const EMITTED_BYTES_MAX: usize = RECORD_BYTES + size_of::<LogWire>() + VOLUMES_MAX * size_of::<Uuid>();

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        record(out, TYPE_LOG, |out| {
            let state = match self.state {
                LogState::Live => 0,
                LogState::Abandoned => 1,
                LogState::Away => 2,
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
        ensure(count <= VOLUMES_MAX, "a log has too many volumes")?;
        let volumes = (0..count).map(|_| payload.read::<[u8; 16]>().map(Uuid::from_bytes));
        Ok(Self {
            group: wire.group.get(),
            id: Uuid::from_bytes(wire.id),
            state: match wire.state {
                0 => LogState::Live,
                1 => LogState::Abandoned,
                2 => LogState::Away,
                _ => return Err(CatalogError::Damaged("unknown state of a log")),
            },
            volumes: volumes.collect::<Result<_, _>>()?,
        })
    }
}

impl Catalog {
    /// The group that is there for the write log, by its place.
    #[must_use]
    pub fn log_group(&self) -> Option<u16> {
        let at = self.groups.iter().position(|group| group.role == GroupRole::Log)?;
        Some(u16::try_from(at).expect("bounded by GROUPS_MAX"))
    }

    /// The volumes of the log that the pool still has.
    #[must_use]
    pub fn log_volumes(&self) -> Vec<Uuid> {
        let volumes = self.log.iter().flat_map(|log| &log.volumes).copied();
        volumes.filter(|&volume| self.volume(volume).is_some() || self.branch(volume).is_some()).collect()
    }

    /// The generation in which the disks of the log went away together, while they are.
    pub(crate) fn log_away_since(&self) -> Option<u64> {
        let log = self.log.as_ref().filter(|log| log.state == LogState::Away)?;
        let members = &self.groups.get(usize::from(log.group))?.members;
        members.iter().filter(|member| member.state == MemberState::Missing).map(|member| member.since).max()
    }

    /// There is one group for a log at most, and the log lies on it.
    pub(super) fn check_log(&self) -> Result<(), CatalogError> {
        let logs = self.groups.iter().filter(|group| group.role == GroupRole::Log).count();
        ensure(logs <= 1, "a pool has two groups for its log")?;
        let Some(log) = &self.log else { return Ok(()) };
        ensure(self.log_group() == Some(log.group), "a log lies on a group that is not for it")?;
        ensure(all_differ(log.volumes.iter()), "a log has a volume twice")
    }
}
