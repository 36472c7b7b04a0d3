//! The [`World`](shard::World) from a seed: virtual clock, seeded scheduler, faulty network, faulty disks.
//!
//! ```
//! use shard::World;
//! let slept = sim::Sim::new(7).run(async |sim| {
//!     let start = sim.now();
//!     sim.sleep(std::time::Duration::from_secs(3600)).await;
//!     sim.now().since(start)
//! });
//! assert!(slept.as_secs() >= 3600);
//! ```
//!
//! The same seed gives the same run, event by event; [`Sim::digest`] proves it. A run that panics prints the seed that
//! reproduces it. The possible faults of disks and the network are listed in [`DiskFaults`], [`Crash`] and
//! [`NetworkFaults`].

mod core;
mod disk;
mod net;
mod node;
mod random;
mod trace;

pub use disk::{Crash, DiskCounts, DiskFaults, DiskHandle, DiskImage, DiskShape, SimDisk};
pub use net::{Network, NetworkCounts, NetworkFaults, SimListener, SimStream};
pub use node::Sim;
