//! What the engine asks of a front end: the code that serves units to hosts by one of their protocols.
//!
//! The engine knows no host protocol. A front end registers with each shard ([`FrontShard`](crate::FrontShard)), makes a face of its own for
//! every unit ([`FrontUnit`]), and carries out the orders that are about hosts ([`FrontEnd`]). Nothing here is on the path
//! of a command: that goes from the front end's own unit straight to the device below.

use model::{Order, Refusal, Report, SessionActivity, TaskReport, VolumeCounters, VolumeId, VolumeReport};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Work on one shard that a trait object gives.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A unit as one front end serves it: told what changes below, and asked what its hosts do.
pub trait FrontUnit {
    /// The unit has grown; its initiators are told.
    fn capacity_changed(&self);

    /// The unit holds something else from now on; its initiators are told.
    fn content_replaced(&self);

    /// Hosts may take the medium out, or may not.
    fn set_removable(&self, removable: bool);

    /// Writes may be lost before a flush, or may not; its initiators are told.
    fn set_write_cache(&self, volatile: bool);

    /// The pool of the unit has reached a threshold; its initiators are told.
    fn soft_threshold_reached(&self);

    /// Initiators are told of the thresholds that they set and that were crossed.
    fn check_thresholds(&self);

    /// Sessions that have sent a command to the unit and are still there.
    fn sessions(&self) -> usize;

    /// Adds what hosts have done with the unit.
    fn count(&self, counters: &mut VolumeCounters);

    /// Adds what hosts have reserved and ordered of it.
    fn describe(&self, report: &mut VolumeReport);

    /// True while what the unit holds is being destroyed by a host's order.
    fn is_being_sanitized(&self) -> bool;

    /// Nothing is written by such an order any more when this is done.
    fn stop_sanitizing(&self) -> Pending<'_, ()>;
}

/// A front end as a whole, on the shard of the conductor.
pub trait FrontEnd {
    /// Carries out an order of [`Order::is_for_front_ends`].
    fn carry_out(self: Rc<Self>, order: Order) -> Pending<'static, Result<Report, Refusal>>;

    /// Volumes have come, gone, or changed their home or whether they serve. All sessions go by that when this is done.
    fn volumes_changed(&self) -> Pending<'_, ()>;

    /// True when some host may see the volume.
    fn presents(&self, volume: VolumeId) -> bool;

    /// What all sessions have done since the start.
    fn totals(&self) -> SessionTotals;

    /// What each session does.
    fn session_activities(&self) -> Vec<SessionActivity>;

    /// Nobody is let in any more.
    fn close_portals(&self);

    /// Every session has ended, and nothing of it runs any more, when this is done.
    fn end_sessions(&self) -> Pending<'_, ()>;

    /// The commands that have no answer yet.
    fn tasks(&self) -> Pending<'_, Vec<TaskReport>>;
}

/// What all sessions of a front end have done since the start, ended ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Sessions that are there now.
    pub sessions: usize,
    /// Commands answered.
    pub commands: u64,
    /// Bytes sent to hosts.
    pub read_bytes: u64,
    /// Bytes received from hosts.
    pub written_bytes: u64,
}
