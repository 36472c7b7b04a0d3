//! Asking the data plane.

use model::{
    Activity, Call, DiskReport, EngineReport, LatencyReport, Order, PoolCheck, PoolReport, PortalReport, Recordings,
    Refusal, RefusedLogin, Report, SessionDetail, SessionEnd, SessionReport, ShapeOfUnit, SnapshotReport, TaskReport,
    TraceReport, Traced, VolumeName, VolumeReport, code,
};
use shard::mailbox::Sender;
use tokio::sync::oneshot;

/// The data plane, as control sees it: a mailbox that takes orders.
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
    /// The data plane behind this mailbox.
    #[must_use]
    pub fn new(calls: Sender<Call>) -> Self {
        Self(calls)
    }

    /// The order is done, or was refused with nothing changed.
    ///
    /// *Errors*: what the data plane refuses; `ENGINE_GONE` when it is not there any more.
    pub async fn ask(&self, order: Order) -> Result<Report, Refusal> {
        let (reply, answer) = oneshot::channel();
        // The asker may have gone; then nobody needs the answer.
        let call = Call::new(order, move |report| drop(reply.send(report)));
        self.0.send(call).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// The order is given, and nobody waits for its answer.
    pub fn tell(&self, order: Order) {
        // A data plane that is gone has nothing to do any more.
        let _ = self.0.send(Call::new(order, drop));
    }

    /// As [`Engine::ask`], for orders that are answered with `Report::Done`.
    pub async fn done(&self, order: Order) -> Result<(), Refusal> {
        match self.ask(order).await? {
            Report::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    typed! {
        /// As [`Engine::ask`], for orders that are answered with one disk.
        disk: Disk(DiskReport);
        /// As [`Engine::ask`], for orders that are answered with disks.
        disks: Disks(Vec<DiskReport>);
        /// As [`Engine::ask`], for orders that are answered with one pool.
        pool: Pool(PoolReport);
        /// As [`Engine::ask`], for orders that are answered with pools.
        pools: Pools(Vec<PoolReport>);
        /// As [`Engine::ask`], for orders that are answered with one volume.
        volume: Volume(VolumeReport);
        /// As [`Engine::ask`], for orders that are answered with volumes.
        volumes: Volumes(Vec<VolumeReport>);
        /// As [`Engine::ask`], for `Order::VolumeNames`.
        volume_names: VolumeNames(Vec<VolumeName>);
        /// As [`Engine::ask`], for `Order::UnitShapes`.
        unit_shapes: UnitShapes(Vec<ShapeOfUnit>);
        /// As [`Engine::ask`], for orders that are answered with snapshots.
        snapshots: Snapshots(Vec<SnapshotReport>);
        /// As [`Engine::ask`], for orders that are answered with one portal.
        portal: Portal(PortalReport);
        /// As [`Engine::ask`], for orders that are answered with portals.
        portals: Portals(Vec<PortalReport>);
        /// As [`Engine::ask`], for orders that are answered with logins that were refused.
        refused: Refused(Vec<RefusedLogin>);
        /// As [`Engine::ask`], for orders that are answered with sessions.
        sessions: Sessions(Vec<SessionReport>);
        /// As [`Engine::ask`], for `Order::Session`.
        session: Session(Box<SessionDetail>);
        /// As [`Engine::ask`], for `Order::EndSession`.
        session_end: SessionEnd(SessionEnd);
        /// As [`Engine::ask`], for `Order::Record`.
        recording: Recording(u64);
        /// As [`Engine::ask`], for `Order::NextRecorded`.
        recorded: Recorded(Recordings);
        /// As [`Engine::ask`], for `Order::Activity`.
        activity: Activity(Activity);
        /// As [`Engine::ask`], for `Order::Tasks`.
        tasks: Tasks(Vec<TaskReport>);
        /// As [`Engine::ask`], for `Order::Latencies`.
        latencies: Latencies(Vec<LatencyReport>);
        /// As [`Engine::ask`], for orders that are answered with a trace's state.
        trace: Trace(TraceReport);
        /// As [`Engine::ask`], for `Order::TakeTrace`.
        traced: Traced(Box<Traced>);
        /// As [`Engine::ask`], for `Order::CheckPool`.
        check: Check(PoolCheck);
        /// As [`Engine::ask`], for orders that are answered with text.
        text: Text(String);
        /// As [`Engine::ask`], for `Order::Status`.
        status: Engine(EngineReport);
    }
}

fn gone() -> Refusal {
    Refusal::new(code::ENGINE_GONE, "the data plane does not answer", "look at the daemon's log and start it again")
}

pub(crate) fn unexpected(report: &Report) -> Refusal {
    tracing::error!(?report, "the data plane answered another question");
    Refusal::new(code::INTERNAL, "the data plane answered another question", "report this with the daemon's log")
}
