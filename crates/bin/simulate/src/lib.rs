//! Simulation of the whole data plane in a deterministic world, driven by the project's own initiator, with an oracle
//! as judge.
//!
//! A run is a [`Profile`] and a seed. The seed determines everything, from the layout of the pool to the time of the
//! power failure, so that a seed always repeats the same run ([`Outcome::digest`]). An oracle knows the allowed content
//! of the volumes at any time and judges every read. [`InjectedBug`]s show that it detects violations. See
//! `docs/simulate.md` for the scope of the checks.

// The futures of a command are nested as deeply as its layers.
#![recursion_limit = "256"]

mod daemon;
mod damage;
mod families;
mod host;
mod oracle;
mod pattern;
mod planted;
mod pool;
mod power;
mod profile;
mod run;
mod seeded_random;
mod stage;
mod violation_log;
mod volumes;

pub use damage::{CorruptedBlock, Corruption, Kind, RoundResult, Structure, damage, table};
pub use planted::InjectedBug;
pub use profile::Profile;
pub use run::{Outcome, run};
