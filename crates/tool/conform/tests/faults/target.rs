//! Blockyard's own target in this process: one shard, and a small in-memory volume for each check.

use engine::{Budget, Limits};
use iscsi_target::{Facts, conduct, shard_seeds};
use model::{
    Access, Backend, Call, ChapCredentials, Host, Initiators, Name, NodeId, NodeIdentity, Order, Portal, PortalPolicy,
    Presentation, Report, Secret, Size, Target, VolumeId, VolumeName, VolumeSpec,
};
use shard::StreamOptions;
use shard::mailbox::{self, Sender};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use uring::{Options, Uring, spawn_shard};

pub(crate) const IQN: &str = "iqn.2026-11.io.blockyard:faults";
/// Length of a volume; enough for reads of 64 KiB.
const VOLUME_BYTES: u64 = 1 << 20;

/// Starts a target with `luns` units, from LUN 0 on, which runs until the process ends; returns its address.
pub(crate) fn start(luns: u16) -> SocketAddr {
    let (tell, told) = mpsc::channel();
    let limits = Limits::of(Budget { shards: 1, buffer_bytes: 256 << 20, cache_bytes: 1 << 20 });
    let ticket = shard_seeds::<Uring>(limits, &StreamOptions::default()).pop().expect("a ticket for each shard");
    let (orders, inbox) = mailbox::channel();
    let serves = async move |world: Uring| {
        let shard = ticket.start(world);
        let (_, address_changes) = mailbox::channel();
        let facts = Facts {
            io: "uring".to_owned(),
            node: NodeIdentity {
                id: NodeId::from_bytes([1; 16]),
                name: name("faults"),
                boot_instance: [1; 16],
                machine: None,
            },
            secret: Secret::new(vec![1; 32]).expect("it is long enough"),
            addresses: Vec::new(),
            address_changes,
        };
        futures_util::future::join(conduct(shard, inbox, facts), async {
            tell.send(set_up(&orders, luns).await).expect("the test waits");
            std::future::pending::<()>().await;
        })
        .await;
    };
    // The thread is not joined; it ends with the process.
    std::mem::forget(spawn_shard("target", Options::default(), serves).expect("a thread"));
    told.recv().expect("it starts")
}

async fn set_up(orders: &Sender<Call>, luns: u16) -> SocketAddr {
    for lun in 0..luns {
        order(orders, Order::CreateVolume(volume(lun))).await;
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let Report::Portal(portal) = order(orders, Order::OpenPortal { address }).await else {
        panic!("a portal was to open");
    };
    order(orders, Order::SetAccess(access(portal.address, luns))).await;
    portal.address
}

async fn order(orders: &Sender<Call>, order: Order) -> Report {
    let (tell, told) = mailbox::channel();
    let call = Call::new(order, move |answer| drop(tell.send(answer)));
    assert!(orders.send(call).is_ok(), "the data plane runs");
    told.receive().await.expect("every order is answered").expect("it is not refused")
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn volume(lun: u16) -> VolumeSpec {
    let [high, low] = lun.to_be_bytes();
    let mut id = [7; 16];
    (id[0], id[1]) = (high, low);
    VolumeSpec {
        name: VolumeName::bare(name(&format!("v{lun}"))),
        id: VolumeId::from_random(id),
        size: Size::new(VOLUME_BYTES),
        block_bytes: 512,
        backend: Backend::Ram,
    }
}

/// Lets every initiator access all volumes.
fn access(address: SocketAddr, luns: u16) -> Access {
    let show = |lun: u16| {
        let VolumeSpec { name: volume, id: volume_id, .. } = volume(lun);
        let (host, target) = (name("anyone"), name("t"));
        Presentation { volume, volume_id, host, target, lun, groups: Vec::new(), read_only: false }
    };
    Access {
        targets: vec![Target { name: name("t"), iqn: IQN.parse().expect("a name") }],
        portals: vec![Portal { address, policy: PortalPolicy::default() }],
        hosts: vec![Host {
            name: name("anyone"),
            initiators: Initiators::Any,
            networks: Vec::new(),
            chap: ChapCredentials::default(),
        }],
        presentations: (0..luns).map(show).collect(),
        ..Access::default()
    }
}
