//! Data plane on a simulated machine: two volumes that two hosts see through one portal.

use engine::{Budget, Limits};
use iscsi_target::{Facts, conduct, shard_seeds};
use model::{
    Access, Backend, Call, Chap, ChapCredentials, Demand, Host, Initiators, LatencyReport, Name, NodeId, NodeIdentity,
    Order, Portal, PortalPolicy, Presentation, Raised, Recordable, Recordings, Refusal, RefusedLogin, Report, Secret,
    SessionDetail, SessionEnd, SessionReport, Size, Target, VolumeId, VolumeName, VolumeSpec,
};
use shard::mailbox::{self, Sender};
use shard::{StreamOptions, World};
use sim::{DiskHandle, DiskShape, Sim};
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const TARGET: &str = "iqn.2026-11.io.blockyard:sessions";
pub(crate) const HOST_SECRET: &[u8] = b"a secret of the host";
pub(crate) const ARRAY_SECRET: &[u8] = b"a secret of the array";
/// Blocks of 512 bytes on the disk of LUN 0.
pub(crate) const DISK_BLOCKS: u64 = 64;

/// Host without CHAP.
pub(crate) const OPEN: &str = "open";

pub(crate) fn portal() -> SocketAddr {
    "10.0.0.2:3260".parse().unwrap()
}

pub(crate) fn initiator(host: &str) -> String {
    format!("iqn.2026-11.io.blockyard:{host}")
}

/// Returns the identity of the node with this number, on its shard.
pub(crate) fn identity(number: u8) -> NodeIdentity {
    NodeIdentity {
        id: NodeId::from_bytes([number; 16]),
        name: name(&format!("array{number}")),
        boot_instance: [number; 16],
        machine: None,
    }
}

/// Returns the secret of that node.
pub(crate) fn pool_secret(number: u8) -> Secret {
    Secret::new(vec![number; 32]).unwrap()
}

/// Data plane that runs until the simulation ends.
pub(crate) struct Array {
    /// Disk of LUN 0; LUN 1 is in memory.
    pub disk: DiskHandle,
    /// Machine that it runs on.
    pub machine: Sim,
    orders: Sender<Call>,
}

impl Array {
    pub(crate) async fn start(world: &Sim, shards: usize) -> Self {
        Self::within(Limits::of(Budget { shards, buffer_bytes: 1 << 40, cache_bytes: 8 << 20 }), world).await
    }

    /// Starts a data plane with these limits.
    pub(crate) async fn within(limits: Limits, world: &Sim) -> Self {
        let machine = world.add_node(portal().ip());
        let disk = machine.add_disk("/lun0", DiskShape::of(DISK_BLOCKS * 512));
        let (orders, inbox) = mailbox::channel();
        let mut inbox = Some(inbox);
        for ticket in shard_seeds::<Sim>(limits, &StreamOptions::default()) {
            let inbox = if ticket.index == 0 { inbox.take() } else { None };
            let shard = ticket.start(machine.clone());
            if let Some(inbox) = inbox {
                let (_, address_changes) = mailbox::channel();
                let facts = Facts {
                    io: "sim".to_owned(),
                    node: identity(1),
                    secret: pool_secret(1),
                    addresses: Vec::new(),
                    address_changes,
                };
                machine.spawn(conduct(shard, inbox, facts));
            }
        }
        let array = Self { disk, machine, orders };
        array.order(Order::CreateVolume(volume(0, Backend::File { path: "/lun0".to_owned() }))).await;
        array.order(Order::CreateVolume(volume(1, Backend::Ram))).await;
        array.show_the_second_volume().await;
        array.order(Order::OpenPortal { address: portal() }).await;
        array
    }

    pub(crate) async fn sessions(&self) -> Vec<SessionReport> {
        match self.order(Order::Sessions).await {
            Report::Sessions(sessions) => sessions,
            other => panic!("Sessions was answered with {other:?}"),
        }
    }

    /// Returns the denied logins without a later successful one, latest first.
    pub(crate) async fn refused(&self) -> Vec<RefusedLogin> {
        match self.order(Order::RefusedLogins).await {
            Report::Refused(refused) => refused,
            other => panic!("RefusedLogins was answered with {other:?}"),
        }
    }

    /// Returns the events since the last call.
    pub(crate) async fn events(&self) -> Vec<Raised> {
        match self.order(Order::NextEvents).await {
            Report::Events(raised) => raised,
            other => panic!("NextEvents was answered with {other:?}"),
        }
    }

    /// Returns the details of one session.
    pub(crate) async fn session(&self, id: u32) -> SessionDetail {
        match self.order(Order::Session { id }).await {
            Report::Session(detail) => *detail,
            other => panic!("Session was answered with {other:?}"),
        }
    }

    /// Ends a session, and returns the kind of its end, or the refusal.
    pub(crate) async fn end_session(&self, id: u32, now: bool) -> Result<SessionEnd, Refusal> {
        match self.try_order(Order::EndSession { id, now }).await? {
            Report::SessionEnd(end) => Ok(end),
            other => panic!("EndSession was answered with {other:?}"),
        }
    }

    /// Ends one connection, or returns the refusal.
    pub(crate) async fn end_connection(&self, id: u32, cid: u16) -> Result<(), Refusal> {
        self.try_order(Order::EndConnection { id, cid }).await.map(drop)
    }

    /// Starts a recording, and returns its number, or the refusal.
    pub(crate) async fn record(&self, what: Recordable, time: Duration) -> Result<u64, Refusal> {
        match self.try_order(Order::Record { what, time }).await? {
            Report::Recording(number) => Ok(number),
            other => panic!("Record was answered with {other:?}"),
        }
    }

    /// Returns recorded traffic, once there is some.
    pub(crate) async fn next_recorded(&self, recording: u64) -> Recordings {
        match self.order(Order::NextRecorded { recording }).await {
            Report::Recorded(recordings) => recordings,
            other => panic!("NextRecorded was answered with {other:?}"),
        }
    }

    /// Stops a recording, and returns the traffic that was not fetched.
    pub(crate) async fn stop_recording(&self, recording: u64) -> Recordings {
        match self.order(Order::StopRecording { recording }).await {
            Report::Recorded(recordings) => recordings,
            other => panic!("StopRecording was answered with {other:?}"),
        }
    }

    /// Returns the latencies of LUN 0.
    pub(crate) async fn latencies(&self) -> Vec<LatencyReport> {
        match self.order(Order::Latencies { volume: VolumeName::bare(name("v0")) }).await {
            Report::Latencies(told) => told,
            other => panic!("Latencies was answered with {other:?}"),
        }
    }

    pub(crate) async fn hide_the_second_volume(&self) {
        self.order(Order::SetAccess(access(&[0]))).await;
    }

    pub(crate) async fn show_the_second_volume(&self) {
        self.order(Order::SetAccess(access(&[0, 1]))).await;
    }

    /// Applies a changed access table to all volumes.
    pub(crate) async fn edit_access(&self, edit: impl FnOnce(&mut Access)) {
        let mut table = access(&[0, 1]);
        edit(&mut table);
        self.order(Order::SetAccess(table)).await;
    }

    async fn order(&self, order: Order) -> Report {
        self.try_order(order).await.unwrap()
    }

    /// Sends an order, and returns its report, or the refusal.
    pub(crate) async fn try_order(&self, order: Order) -> Result<Report, Refusal> {
        let (tell, told) = mailbox::channel();
        let call = Call::new(order, move |answer| drop(tell.send(answer)));
        assert!(self.orders.send(call).is_ok(), "the data plane runs");
        told.receive().await.expect("every order is answered")
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn volume(lun: u8, backend: Backend) -> VolumeSpec {
    VolumeSpec {
        name: VolumeName::bare(name(&format!("v{lun}"))),
        id: VolumeId::from_random([lun; 16]),
        size: Size::new(DISK_BLOCKS * 512),
        block_bytes: 512,
        backend,
    }
}

/// Returns a CHAP name and secret.
pub(crate) fn chap(user: &str, secret: &[u8], demand: Demand) -> Chap {
    Chap { user: user.to_owned(), secret: Secret::new(secret.to_vec()).unwrap(), demand }
}

/// Returns the table in which all hosts see the volumes of `luns`.
fn access(luns: &[u8]) -> Access {
    let host = |text: &str| {
        let proves = text != OPEN;
        Host {
            name: name(text),
            initiators: Initiators::Listed(vec![initiator(text).parse().unwrap()]),
            networks: Vec::new(),
            chap: ChapCredentials {
                own: proves.then(|| chap(text, HOST_SECRET, Demand::Required)),
                mutual: proves.then(|| chap("array", ARRAY_SECRET, Demand::Offered)),
            },
        }
    };
    let hosts: Vec<Host> = ["web", "other", OPEN].map(host).into();
    let show = |host: &Host, lun: u8| Presentation {
        volume: VolumeName::bare(name(&format!("v{lun}"))),
        volume_id: VolumeId::from_random([lun; 16]),
        host: host.name.clone(),
        target: name("t"),
        lun: lun.into(),
        groups: Vec::new(),
        read_only: false,
    };
    Access {
        targets: vec![Target { name: name("t"), iqn: TARGET.parse().unwrap() }],
        portals: vec![Portal { address: portal(), policy: PortalPolicy::default() }],
        presentations: hosts.iter().flat_map(|host| luns.iter().map(|&lun| show(host, lun))).collect(),
        hosts,
        ..Access::default()
    }
}
