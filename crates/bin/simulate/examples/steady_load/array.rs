//! Data plane on its machine, with units that one host accesses.

use crate::counted::{CountedWorld, Counter};
use anyhow::{Result, anyhow};
use engine::{Budget, Limits};
use iscsi_target::{Facts, conduct, shard_seeds};
use model::{
    Access, Backend, Call, ChapCredentials, GroupSpec, Host, Initiators, Level, MemberSize, Name, NodeId, NodeIdentity,
    Order, PoolId, Portal, PortalPolicy, Presentation, Report, Secret, Size, Target, VolumeId, VolumeName, VolumeSpec,
};
use shard::mailbox::{self, Sender};
use shard::{StreamOptions, World};
use sim::{DiskShape, Sim};
use std::net::SocketAddr;

/// Target name to which hosts log in.
pub(crate) const TARGET: &str = "iqn.2026-11.io.blockyard:counted";
/// Length of a logical block in bytes.
pub(crate) const BLOCK_BYTES: u32 = 512;
/// Length of a unit in bytes.
pub(crate) const UNIT_BYTES: u64 = 4 << 20;

/// Name of the pool.
const POOL: &str = "tank";
/// Length of a command trace; smaller than the number of commands, so that a full ring is part of the measurement.
const TRACED_COMMANDS: u32 = 500;
const DISKS: usize = 4;
const DISK_BYTES: u64 = 64 << 20;

/// Data plane that runs until its machine ends.
pub(crate) struct Array {
    machine: Sim,
    post: Sender<Call>,
}

impl Array {
    /// Starts the data plane with `shards` shards, which share the single core of the machine.
    pub(crate) fn start(machine: &Sim, shards: usize, counter: &Counter) -> Result<Self> {
        let limits = Limits::of(Budget { shards, buffer_bytes: 1 << 30, cache_bytes: 32 << 20 });
        let (post, inbox) = mailbox::channel();
        let mut inbox = Some(inbox);
        let node = NodeIdentity {
            id: NodeId::from_bytes([1; 16]),
            name: name("array")?,
            boot_instance: [2; 16],
            machine: None,
        };
        for ticket in shard_seeds::<CountedWorld>(limits, &StreamOptions::default()) {
            // The first shard conducts the others, and gets all orders.
            let orders = if ticket.index == 0 { inbox.take() } else { None };
            let shard = ticket.start(CountedWorld::new(machine, counter));
            // The addresses of a simulated machine do not change, so the other end of the channel may be dropped.
            if let Some(orders) = orders {
                let (_, address_changes) = mailbox::channel();
                let facts = Facts {
                    io: "sim".to_owned(),
                    node: node.clone(),
                    secret: Secret::new(vec![1; 32])?,
                    addresses: Vec::new(),
                    address_changes,
                };
                machine.spawn(conduct(shard, orders, facts));
            }
        }
        Ok(Self { machine: machine.clone(), post })
    }

    /// Creates a RAID-10 pool with checksums on disks that are as fast as memory.
    pub(crate) async fn create_pool(&self) -> Result<()> {
        let mut disks = Vec::new();
        for number in 0..DISKS {
            let path = format!("/dev/disk{number}");
            self.machine.add_disk(&path, DiskShape::of(DISK_BYTES));
            let disk = name(&format!("disk{number}"))?;
            self.order(Order::OpenDisk { disk: disk.clone(), path, remote: None }).await?;
            disks.push(disk);
        }
        let group = GroupSpec {
            level: Level::Raid10,
            chunk: Size::new(64 << 10),
            integrity: true,
            member_size: MemberSize::default(),
            disks,
        };
        let (pool, id) = (name(POOL)?, PoolId::from_bytes([3; 16]));
        self.order(Order::CreatePool { pool, id, groups: vec![group], force: false }).await.map(drop)
    }

    /// Creates `units` units and maps them to every host as LUNs from 0 on, through `portal`. Their home shards
    /// alternate.
    pub(crate) async fn furnish(&self, units: u16, backend: &Backend, portal: SocketAddr) -> Result<()> {
        let (host, target) = (name("everybody")?, name("target")?);
        let mut presentations = Vec::new();
        for lun in 0..units {
            let volume = volume_of(lun, backend)?;
            let volume_id = VolumeId::from_bytes(u128::from(lun).to_be_bytes());
            let spec = VolumeSpec {
                name: volume.clone(),
                id: volume_id,
                size: Size::new(UNIT_BYTES),
                block_bytes: BLOCK_BYTES,
                backend: backend.clone(),
            };
            self.order(Order::CreateVolume(spec)).await?;
            let (host, target) = (host.clone(), target.clone());
            let (groups, read_only) = (Vec::new(), false);
            presentations.push(Presentation { volume, volume_id, host, target, lun, groups, read_only });
        }
        let (initiators, chap) = (Initiators::Any, ChapCredentials::default());
        let access = Access {
            targets: vec![Target { name: target, iqn: TARGET.parse().map_err(|why| anyhow!("{why}"))? }],
            portals: vec![Portal { address: portal, policy: PortalPolicy::default() }],
            hosts: vec![Host { name: host, initiators, networks: Vec::new(), chap }],
            presentations,
            ..Access::default()
        };
        self.order(Order::SetAccess(access)).await?;
        self.order(Order::OpenPortal { address: portal }).await?;
        Ok(())
    }

    /// Starts a trace of the last commands of every unit.
    pub(crate) async fn trace(&self, units: u16, backend: &Backend) -> Result<()> {
        for lun in 0..units {
            let volume = volume_of(lun, backend)?;
            self.order(Order::StartTrace { volume, commands: TRACED_COMMANDS }).await?;
        }
        Ok(())
    }

    async fn order(&self, order: Order) -> Result<Report> {
        let (tell, told) = mailbox::channel();
        let call = Call::new(order, move |answer| {
            // The sender waits for the answer, so its end exists.
            let _ = tell.send(answer);
        });
        self.post.send(call).map_err(|_| anyhow!("the data plane has stopped"))?;
        let answer = told.receive().await.ok_or_else(|| anyhow!("the data plane has stopped"))?;
        answer.map_err(|refusal| anyhow!("refused: {refusal}"))
    }
}

fn name(text: &str) -> Result<Name> {
    text.parse().map_err(|why| anyhow!("{why}"))
}

fn volume_of(lun: u16, backend: &Backend) -> Result<VolumeName> {
    let pool = if matches!(backend, Backend::Pool { .. }) { format!("{POOL}/") } else { String::new() };
    format!("{pool}unit{lun}").parse().map_err(|why| anyhow!("{why}"))
}
