//! Tests of volume families as operators and hosts use them, on disks that record and lose writes.

mod atomic;
mod crash;
mod damage;
mod encrypted;
mod golden;
mod injected_bugs;
mod model;
mod operate;
pub(crate) mod rig;
mod thick;
mod together;
