//! Runs the whole data plane on a simulated world, driven by our own initiator, and judges it.
//!
//! A run is a [`Profile`] and a seed: the seed decides everything, from the layout of the pool to the
//! instant at which the power is cut, so the same seed gives the same run ([`Outcome::digest`]). What the
//! volumes may hold at any moment is known to an oracle, which judges every read. That it sees what is wrong
//! is shown by bugs that are [`Planted`]. `docs/simulate.md` says what is judged and what is not yet.

// The futures of a command are as deep as the sleeves that it passes.
#![recursion_limit = "256"]

mod chance;
mod daemon;
mod damage;
mod families;
mod host;
mod judge;
mod oracle;
mod pattern;
mod planted;
mod pool;
mod power;
mod profile;
mod run;
mod stage;
mod volumes;

pub use damage::{Damage, Found, Kind, Strike, Structure, damage, table};
pub use planted::Planted;
pub use profile::Profile;
pub use run::{Outcome, run};
