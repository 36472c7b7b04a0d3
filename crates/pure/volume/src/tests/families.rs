//! Families of volumes: what operators and hosts do with them, on disks that record and forget.

mod atomic;
mod crash;
mod damage;
mod encrypted;
mod golden;
mod model;
mod operate;
pub(crate) mod rig;
mod sabotaged;
mod thick;
mod together;
