//! Data plane on one simulated machine, and the orders that the control plane would give it.

use crate::planted::{BugState, BuggyWorld};
use engine::{Budget, Limits};
use iscsi_target::{Facts, IscsiShard, conduct, shard_seeds};
use model::{Call, LocalAddress, NodeId, NodeIdentity, Order, Refusal, Report, Secret, code};
use shard::mailbox::{self, Sender};
use shard::{StreamOptions, World};
use sim::Sim;
use std::rc::Rc;

/// Buffer memory of the data plane. All runs of the process share its counter, so the limit must never be reached.
const BUFFER_BYTES: u64 = 64 << 30;

/// Data plane that runs until its machine is killed, loses power, or is told to stop.
#[derive(Clone)]
pub(crate) struct Daemon {
    post: Sender<Call>,
    _seats: Rc<Shards>,
}

/// Shards of a data plane. A pool and its shard refer to each other for the lifetime of a process, so a killed data
/// plane is taken apart explicitly here.
struct Shards(Vec<Rc<IscsiShard<BuggyWorld>>>);

impl Drop for Shards {
    fn drop(&mut self) {
        self.0.iter().for_each(|shard| shard.abandon());
    }
}

impl Daemon {
    /// Starts the data plane on `machine` with `shards` shards, which share its single core, and `cache_bytes` of
    /// cache.
    pub(crate) fn start(machine: &Sim, shards: usize, cache_bytes: u64, plant: &Rc<BugState>) -> Self {
        plant.record_start();
        let limits = Limits::of(Budget { shards, buffer_bytes: BUFFER_BYTES, cache_bytes });
        let (post, inbox) = mailbox::channel();
        let mut inbox = Some(inbox);
        let mut shards = Vec::new();
        for ticket in shard_seeds::<BuggyWorld>(limits, &StreamOptions::default()) {
            // Orders arrive at one shard, so that they are serialized as in the daemon.
            let orders = if ticket.index == 0 { inbox.take() } else { None };
            let shard = ticket.start(BuggyWorld::new(machine, plant));
            shards.push(shard.clone());
            // The conductor runs on the first shard and receives every order.
            if let Some(orders) = orders {
                let (_, address_changes) = mailbox::channel();
                let facts = Facts {
                    io: "sim".to_owned(),
                    node: node(),
                    secret: secret(),
                    addresses: addresses(machine),
                    address_changes,
                };
                machine.spawn(conduct(shard, orders, facts));
            }
        }
        Self { post, _seats: Rc::new(Shards(shards)) }
    }

    /// Sends an order and returns the answer; a refusal with `ENGINE_GONE` when the data plane no longer runs.
    pub(crate) async fn order(&self, order: Order) -> Result<Report, Refusal> {
        let (tell, told) = mailbox::channel();
        let call = Call::new(order, move |answer| {
            // The sender is gone if the power was cut meanwhile.
            let _ = tell.send(answer);
        });
        let gone = || Refusal::new(code::ENGINE_GONE, "the machine has no power", "");
        // Sending fails once the receiver, which the conductor owns, is gone with the machine.
        self.post.send(call).map_err(|_| gone())?;
        told.receive().await.unwrap_or_else(|| Err(gone()))
    }
}

/// Returns the identity of the machine's node; daemons that run on it one after another share it.
fn node() -> NodeIdentity {
    let name = "array".parse().expect("this is a name");
    NodeIdentity { id: NodeId::from_bytes([1; 16]), name, boot_instance: [2; 16], machine: None }
}

/// Returns the secret from which the keys of the pools are derived.
fn secret() -> Secret {
    Secret::new(vec![3; 32]).expect("it is long enough")
}

fn addresses(machine: &Sim) -> Vec<LocalAddress> {
    let (address, interface) = (machine.address(), "eth0".to_owned());
    vec![LocalAddress { address, prefix: 8, interface, is_up: true, mtu_bytes: 9000 }]
}
