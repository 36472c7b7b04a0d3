//! Third-party copy (SPC-4): EXTENDED COPY, tokens, what is received of both, and what VPD page 8Fh says of them.
//!
//! The copy manager of a unit copies between units that the asking nexus sees itself, and asks each of them as that nexus: what
//! is reserved, write-protected or not served for it there stays so. Whatever else there is does not exist here.

mod known;
mod list;
mod ranges;
mod report;
mod rod;
mod run;
mod segment;

pub(crate) use known::Copies;
pub(crate) use list::check_list_length;
pub(crate) use ranges::check_ranges_length;
pub(crate) use report::emit_third_party_page;

use crate::command::{NexusId, Status};
use crate::identity::{Identity, TargetPort};
use crate::nexus::{InitiatorPort, Nexuses};
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::Ticket;
use block::{Extent, Geometry, Lba, Rope, Run, View};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// What a unit is asked for a copy, on its way.
pub type Copying<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a copy manager needs of the outside: which units a nexus sees, time, and chance.
pub trait Neighbours {
    /// The units that the nexus sees through its port, each once, the asking one among them.
    fn of(&self, asker: &CopyAsker) -> Vec<Neighbour>;

    /// How long it is since some instant.
    fn now(&self) -> Duration;

    /// Fills `out` with what nobody can guess.
    fn random(&self, out: &mut [u8]);
}

/// A unit that a nexus sees.
#[derive(Clone)]
pub struct Neighbour {
    /// Who it is.
    pub identity: Identity,
    /// True when the nexus may not write it.
    pub read_only: bool,
    /// The unit, wherever it is.
    pub unit: Rc<dyn CopyUnit>,
}

impl Neighbour {
    /// What is said for a unit that is not there any more: COPY TARGET DEVICE NOT REACHABLE.
    pub const NOT_REACHABLE: Sense = Sense::new(SenseKey::CopyAborted, AdditionalSense::COPY_TARGET_NOT_REACHABLE);
}

/// Asks a unit for a copy: [`LogicalUnit::copy_read`](crate::LogicalUnit::copy_read) and its like, where it has its home.
pub trait CopyUnit {
    /// The shape of its device; `None` when it is not there any more.
    fn geometry(&self) -> Copying<'_, Option<Geometry>>;

    /// What it has in `extent`, for `asker`.
    fn read(&self, asker: CopyAsker, extent: Extent) -> Copying<'_, Result<Rope, Sense>>;

    /// The run that `extent` begins with: blocks that have a place, or have none and read as zeros; for `asker`.
    fn run(&self, asker: CopyAsker, extent: Extent) -> Copying<'_, Result<Run, Sense>>;

    /// What it has in `extent` reads as zeros, and has no place where it need not have one; stable.
    fn discard(&self, asker: CopyAsker, extent: Extent) -> Copying<'_, Result<(), Sense>>;

    /// What `token` stands for, which is one of its own; `deletes` ends it.
    fn token(&self, asker: CopyAsker, token: Box<[u8; 512]>, deletes: bool) -> Copying<'_, Result<Vec<Extent>, Sense>>;

    /// It has `data` from `start` on, by order of `asker`; stable.
    fn write(&self, asker: CopyAsker, start: Lba, data: View) -> Copying<'_, Result<(), Sense>>;
}

/// For whom something is copied: the nexus at the copy manager, which need not have spoken to the other unit yet.
#[derive(Clone, Debug)]
pub struct CopyAsker {
    /// The nexus.
    pub nexus: NexusId,
    /// Where it comes from.
    pub initiator: InitiatorPort,
    /// The port that it comes through.
    pub port: TargetPort,
    /// True when it may not write the unit that is asked.
    pub read_only: bool,
}

/// A third-party copy command that a unit processes.
pub(crate) struct Asked<'a> {
    pub job: &'a Job,
    pub ticket: &'a Ticket<'a>,
    /// The unit that processes it.
    pub identity: &'a Identity,
    pub nexuses: &'a Nexuses,
}

impl Asked<'_> {
    /// For whom it copies.
    fn asker(&self) -> Result<CopyAsker, Status> {
        let nexus = self.job.nexus;
        let (name, port) = self.nexuses.names(nexus).ok_or(Status::Busy)?;
        let initiator = name.initiator.clone();
        Ok(CopyAsker { nexus, initiator, port: (*port).clone(), read_only: false })
    }
}

#[cfg(test)]
mod tests;
