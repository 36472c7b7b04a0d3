//! Third-party copy (SPC-4): EXTENDED COPY, ROD tokens, the reports on both, and VPD page 8Fh.
//!
//! The copy manager of a unit copies between units that are mapped to the asking nexus, and accesses each of them as
//! that nexus: reservations, write protection and access states apply. Units that are not mapped to the nexus do not
//! exist for it.

mod list;
mod ranges;
mod report;
mod rod;
mod run;
mod segment;
mod status;

pub(crate) use list::check_list_length;
pub(crate) use ranges::check_ranges_length;
pub(crate) use report::emit_third_party_page;
pub(crate) use status::Copies;

use crate::command::{NexusId, Status};
use crate::identity::{Identity, TargetPort};
use crate::nexus::{InitiatorPort, Nexuses};
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::TaskGuard;
use block::{Extent, Geometry, Lba, Rope, Run, View};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Future of an operation on another unit.
pub type CopyFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Environment of a copy manager: mapped units, time and randomness. Implemented by the front end.
pub trait CopyEnvironment {
    /// Lists the units that are mapped to the nexus through its port, each once, including the asking one.
    fn mapped_units(&self, asker: &CopyPrincipal) -> Vec<MappedUnit>;

    /// Returns the time since a fixed but arbitrary instant.
    fn now(&self) -> Duration;

    /// Fills `out` with cryptographically secure random bytes.
    fn random(&self, out: &mut [u8]);
}

/// Unit that is mapped to a nexus.
#[derive(Clone)]
pub struct MappedUnit {
    /// Identity of the unit.
    pub identity: Identity,
    /// True when the nexus has no write access.
    pub read_only: bool,
    /// Access to the unit on its home shard.
    pub unit: Rc<dyn CopyUnit>,
}

impl MappedUnit {
    /// Sense for a unit that has been removed meanwhile: COPY TARGET DEVICE NOT REACHABLE (A/0D/02).
    pub const NOT_REACHABLE: Sense = Sense::new(SenseKey::CopyAborted, AdditionalSense::COPY_TARGET_NOT_REACHABLE);
}

/// Access to a unit on behalf of a copy: [`LogicalUnit::copy_read`](crate::LogicalUnit::copy_read) and related
/// functions, executed on the home shard of the unit.
pub trait CopyUnit {
    /// Returns the geometry of its device, or `None` when the unit no longer exists.
    fn geometry(&self) -> CopyFuture<'_, Option<Geometry>>;

    /// Reads `extent` on behalf of `asker`.
    fn read(&self, asker: CopyPrincipal, extent: Extent) -> CopyFuture<'_, Result<Rope, Sense>>;

    /// Returns the first run of `extent` on behalf of `asker`: blocks that are mapped, or blocks that are not and read
    /// as zeros.
    fn run(&self, asker: CopyPrincipal, extent: Extent) -> CopyFuture<'_, Result<Run, Sense>>;

    /// Makes `extent` read as zeros and frees its space where possible; stable.
    fn discard(&self, asker: CopyPrincipal, extent: Extent) -> CopyFuture<'_, Result<(), Sense>>;

    /// Returns the extents that `token`, one of its own, represents; `deletes` invalidates it.
    fn token(
        &self,
        asker: CopyPrincipal,
        token: Box<[u8; 512]>,
        deletes: bool,
    ) -> CopyFuture<'_, Result<Vec<Extent>, Sense>>;

    /// Writes `data` from `start` on, on behalf of `asker`; stable.
    fn write(&self, asker: CopyPrincipal, start: Lba, data: View) -> CopyFuture<'_, Result<(), Sense>>;
}

/// Principal of a copy: the nexus at the copy manager, which need not be attached to the other unit.
#[derive(Clone, Debug)]
pub struct CopyPrincipal {
    /// Nexus that issued the copy command.
    pub nexus: NexusId,
    /// Initiator port of the nexus.
    pub initiator: InitiatorPort,
    /// Target port of the nexus.
    pub port: TargetPort,
    /// True when the nexus has no write access to the unit that is accessed.
    pub read_only: bool,
}

/// Third-party copy command in execution.
pub(crate) struct CopyContext<'a> {
    pub job: &'a Job,
    pub ticket: &'a TaskGuard<'a>,
    /// Unit that executes it.
    pub identity: &'a Identity,
    pub nexuses: &'a Nexuses,
}

impl CopyContext<'_> {
    /// Returns the principal of the copy.
    ///
    /// *Errors*: BUSY when the nexus is no longer attached.
    fn principal(&self) -> Result<CopyPrincipal, Status> {
        let nexus = self.job.nexus;
        let (name, port) = self.nexuses.names(nexus).ok_or(Status::Busy)?;
        let initiator = name.initiator.clone();
        // Write protection belongs to the unit that is written, so `copy_segment` adds it for each destination.
        Ok(CopyPrincipal { nexus, initiator, port: (*port).clone(), read_only: false })
    }
}

#[cfg(test)]
mod tests;
