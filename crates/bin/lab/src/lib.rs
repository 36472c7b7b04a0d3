//! The benchmark lab: loads for targets, disks and files, what they cost both ends, and the figures of the papers. See
//! `docs/lab.md`.

pub mod compare;
pub mod figure;
pub mod machine;
pub mod papers;
pub mod point;
pub mod report;
pub mod run;
pub mod scenario;
#[cfg(test)]
mod synthetic;
