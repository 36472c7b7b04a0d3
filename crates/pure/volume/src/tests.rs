//! Tests of the whole crate on simulated disks that record their writes and can lose what was not flushed.

mod bad_blocks;
mod crash;
pub(crate) mod disk;
mod exchange;
mod families;
mod golden;
mod groups;
mod labels;
mod lost;
mod mirror;
mod owner;
mod ownership;
mod pools;
mod reservations;
mod vectors;
mod world;
