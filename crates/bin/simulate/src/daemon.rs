//! The data plane on one simulated machine, and the orders that control would give it.

use crate::planted::{BentWorld, Plant};
use engine::{Budget, Limits};
use iscsi_target::{Facts, IscsiShard, conduct, tickets};
use model::{Call, LocalAddress, NodeId, NodeIdentity, Order, Refusal, Report, Secret, code};
use shard::mailbox::{self, Sender};
use shard::{StreamOptions, World};
use sim::Sim;
use std::rc::Rc;

/// Buffers that the data plane may use. Runs share the counter of their process, so it must never be met.
const BUFFER_BYTES: u64 = 64 << 30;

/// A data plane that runs until its machine is killed, loses its power, or is told to stop.
#[derive(Clone)]
pub(crate) struct Daemon {
    post: Sender<Call>,
    _seats: Rc<Shards>,
}

/// What the data plane has open. A pool and its shard hold each other for as long as a process lives, so what
/// was killed is taken apart here.
struct Shards(Vec<Rc<IscsiShard<BentWorld>>>);

impl Drop for Shards {
    fn drop(&mut self) {
        self.0.iter().for_each(|shard| shard.abandon());
    }
}

impl Daemon {
    /// The data plane runs on `machine` with so many shards, all on the machine's one core, and so much memory for its cache.
    pub(crate) fn start(machine: &Sim, shards: usize, cache_bytes: u64, plant: &Rc<Plant>) -> Self {
        plant.begin_life();
        let limits = Limits::of(Budget { shards, buffer_bytes: BUFFER_BYTES, cache_bytes });
        let (post, inbox) = mailbox::channel();
        let mut inbox = Some(inbox);
        let mut shards = Vec::new();
        for ticket in tickets::<BentWorld>(limits, &StreamOptions::default()) {
            let orders = if ticket.index == 0 { inbox.take() } else { None };
            let shard = ticket.start(BentWorld::new(machine, plant));
            shards.push(shard.clone());
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

    /// What the data plane answers; a refusal of `ENGINE_GONE` when it is not there any more.
    pub(crate) async fn order(&self, order: Order) -> Result<Report, Refusal> {
        let (tell, told) = mailbox::channel();
        let call = Call::new(order, move |answer| {
            // Nobody waits when the power was cut meanwhile.
            let _ = tell.send(answer);
        });
        let gone = || Refusal::new(code::ENGINE_GONE, "the machine has no power", "");
        self.post.send(call).map_err(|_| gone())?;
        told.receive().await.unwrap_or_else(|| Err(gone()))
    }
}

/// The machine has one daemon after another, and they have its shard.
fn node() -> NodeIdentity {
    let name = "array".parse().expect("this is a name");
    NodeIdentity { id: NodeId::from_bytes([1; 16]), name, seat: [2; 16], machine: None }
}

/// What the keys of its pools are made of.
fn secret() -> Secret {
    Secret::new(vec![3; 32]).expect("it is long enough")
}

fn addresses(machine: &Sim) -> Vec<LocalAddress> {
    let (address, interface) = (machine.address(), "eth0".to_owned());
    vec![LocalAddress { address, prefix: 8, interface, is_up: true, mtu_bytes: 9000 }]
}
