//! Arrays from outside: their costs, service with faults, and that they never return wrong data.

#![expect(clippy::single_range_in_vec_init, reason = "a rebuild takes a list of ranges, often of one")]

mod bench;
mod best;
mod copy;
mod costs;
mod disk;
mod failures;
mod faults;
mod late;
mod model;
mod rebuild;
mod verify;
