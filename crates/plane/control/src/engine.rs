//! Client of the data plane: sends orders and awaits their reports.
//!
//! Every part calls it through [`Core`](crate::Core). An order that changes something is sent under the change
//! lock.

use model::{
    Activity, Call, DiskReport, EngineReport, LatencyReport, NamedUnitAttributes, Order, PoolCheck, PoolReport,
    PortalReport, Recordings, Refusal, RefusedLogin, Report, SessionDetail, SessionEnd, SessionReport, SnapshotReport,
    TaskReport, TraceReport, Traced, VolumeName, VolumeReport, code,
};
use shard::mailbox::Sender;
use tokio::sync::oneshot;

/// Handle of the data plane: the sending end of its order mailbox.
#[derive(Clone)]
pub struct Engine(Sender<Call>);

macro_rules! typed {
    ($($(#[$doc:meta])* $name:ident: $variant:ident($report:ty);)*) => {
        $($(#[$doc])*
        pub async fn $name(&self, order: Order) -> Result<$report, Refusal> {
            match self.ask(order).await? {
                Report::$variant(report) => Ok(report),
                other => Err(unexpected(&other)),
            }
        })*
    };
}

impl Engine {
    /// Returns a handle that sends to this mailbox.
    #[must_use]
    pub fn new(calls: Sender<Call>) -> Self {
        Self(calls)
    }

    /// Sends the order and waits for its report. A refused order has changed nothing.
    ///
    /// *Errors*: the refusal of the data plane; `ENGINE_GONE` once it has ended.
    pub async fn ask(&self, order: Order) -> Result<Report, Refusal> {
        let (reply, answer) = oneshot::channel();
        // A dropped receiver means that the caller was cancelled; the order runs to its end all the same.
        let call = Call::new(order, move |report| drop(reply.send(report)));
        self.0.send(call).map_err(|_| gone())?;
        // A call that is dropped without an answer means that the data plane has ended.
        answer.await.map_err(|_| gone())?
    }

    /// Sends the order without waiting for its report.
    pub fn send(&self, order: Order) {
        // A data plane that is gone has nothing to do any more.
        let _ = self.0.send(Call::new(order, drop));
    }

    /// Sends an order as [`Engine::ask`] does; its report is `Report::Done`.
    pub async fn done(&self, order: Order) -> Result<(), Refusal> {
        match self.ask(order).await? {
            Report::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    typed! {
        /// Sends an order whose report is one disk.
        disk: Disk(DiskReport);
        /// Sends an order whose report is a list of disks.
        disks: Disks(Vec<DiskReport>);
        /// Sends an order whose report is one pool.
        pool: Pool(PoolReport);
        /// Sends an order whose report is a list of pools.
        pools: Pools(Vec<PoolReport>);
        /// Sends an order whose report is one volume.
        volume: Volume(VolumeReport);
        /// Sends an order whose report is a list of volumes.
        volumes: Volumes(Vec<VolumeReport>);
        /// Sends `Order::VolumeNames`.
        volume_names: VolumeNames(Vec<VolumeName>);
        /// Sends `Order::UnitShapes`.
        unit_shapes: UnitShapes(Vec<NamedUnitAttributes>);
        /// Sends an order whose report is a list of snapshots.
        snapshots: Snapshots(Vec<SnapshotReport>);
        /// Sends an order whose report is one portal.
        portal: Portal(PortalReport);
        /// Sends an order whose report is a list of portals.
        portals: Portals(Vec<PortalReport>);
        /// Sends an order whose report is a list of denied logins.
        refused: Refused(Vec<RefusedLogin>);
        /// Sends an order whose report is a list of sessions.
        sessions: Sessions(Vec<SessionReport>);
        /// Sends `Order::Session`.
        session: Session(Box<SessionDetail>);
        /// Sends `Order::EndSession`.
        session_end: SessionEnd(SessionEnd);
        /// Sends `Order::Record`.
        recording: Recording(u64);
        /// Sends `Order::NextRecorded`.
        recorded: Recorded(Recordings);
        /// Sends `Order::Activity`.
        activity: Activity(Activity);
        /// Sends `Order::Tasks`.
        tasks: Tasks(Vec<TaskReport>);
        /// Sends `Order::Latencies`.
        latencies: Latencies(Vec<LatencyReport>);
        /// Sends an order whose report is the state of a trace.
        trace: Trace(TraceReport);
        /// Sends `Order::TakeTrace`.
        traced: Traced(Box<Traced>);
        /// Sends `Order::CheckPool`.
        check: Check(PoolCheck);
        /// Sends an order whose report is text.
        text: Text(String);
        /// Sends `Order::Status`.
        status: Engine(EngineReport);
    }
}

fn gone() -> Refusal {
    Refusal::new(code::ENGINE_GONE, "the data plane does not respond", "check the daemon log and restart the daemon")
}

pub(crate) fn unexpected(report: &Report) -> Refusal {
    // A report of another type than the order asks for is a bug of ours.
    tracing::error!(?report, "unexpected response from the data plane");
    Refusal::new(code::INTERNAL, "unexpected response from the data plane", "report this as a bug, with the daemon log")
}
