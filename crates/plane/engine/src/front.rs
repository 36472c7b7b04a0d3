//! Interface between the engine and a front end, the code that serves units to hosts by one protocol.
//!
//! The engine knows no host protocol. A front end registers with each shard ([`FrontShard`](crate::FrontShard)), builds
//! its own object for every unit ([`FrontUnit`]), and carries out the orders about hosts ([`FrontEnd`]). Nothing here
//! is on the path of a command, which goes from the front end's own unit straight to the device below.

use model::{Order, Refusal, Report, SessionActivity, TaskReport, VolumeCounters, VolumeId, VolumeReport};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Boxed future of a trait method; it runs on one shard and is not `Send`.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A unit as one front end serves it: notified of changes below, and asked for the activity of its hosts.
pub trait FrontUnit {
    /// Notifies initiators that the capacity of the unit has grown.
    fn capacity_changed(&self);

    /// Notifies initiators that the content of the unit was replaced.
    fn content_replaced(&self);

    /// Allows or forbids hosts to eject the medium.
    fn set_removable(&self, removable: bool);

    /// Sets whether acknowledged writes may be lost before a flush (volatile write cache), and notifies initiators.
    fn set_write_cache(&self, volatile: bool);

    /// Notifies initiators that the pool of the unit has reached its soft threshold.
    fn soft_threshold_reached(&self);

    /// Notifies initiators of the provisioning thresholds that they set and that were crossed.
    fn check_thresholds(&self);

    /// Number of open sessions that have sent a command to the unit.
    fn sessions(&self) -> usize;

    /// Adds the commands of hosts to `counters`.
    fn count(&self, counters: &mut VolumeCounters);

    /// Adds reservations and a running SANITIZE to `report`.
    fn describe(&self, report: &mut VolumeReport);

    /// True while a SANITIZE of a host is destroying the content of the unit.
    fn is_being_sanitized(&self) -> bool;

    /// Stops a running SANITIZE; when the future is ready, the operation writes nothing more.
    fn stop_sanitizing(&self) -> Pending<'_, ()>;
}

/// A front end as a whole, on the shard of the conductor (shard 0).
pub trait FrontEnd {
    /// Carries out an order for which [`Order::is_for_front_ends`] is true.
    fn carry_out(self: Rc<Self>, order: Order) -> Pending<'static, Result<Report, Refusal>>;

    /// Takes over changed volumes: created, removed, moved to another home, or changed in whether they serve. When the
    /// future is ready, all sessions use the new table.
    fn volumes_changed(&self) -> Pending<'_, ()>;

    /// True if at least one host has a mapping of the volume.
    fn presents(&self, volume: VolumeId) -> bool;

    /// Totals of all sessions since the start.
    fn totals(&self) -> SessionTotals;

    /// Current activity of each session.
    fn session_activities(&self) -> Vec<SessionActivity>;

    /// Closes the portals: no further login is accepted.
    fn close_portals(&self);

    /// Ends every session; when the future is ready, none of them runs any more.
    fn end_sessions(&self) -> Pending<'_, ()>;

    /// Commands that have not been answered yet.
    fn tasks(&self) -> Pending<'_, Vec<TaskReport>>;
}

/// Totals of all sessions of a front end since the start, including ended sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Sessions that are open now.
    pub sessions: usize,
    /// Commands answered.
    pub commands: u64,
    /// Bytes sent to hosts.
    pub read_bytes: u64,
    /// Bytes received from hosts.
    pub written_bytes: u64,
}
