//! The benchmark lab: loads for targets, disks and files, what they cost both ends, and the figures of the papers. See
//! `docs/lab.md`.

pub mod point;
pub mod run;
pub mod scenario;
