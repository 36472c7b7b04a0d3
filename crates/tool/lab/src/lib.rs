//! Benchmark lab: load generators for targets, disks and files, meters of both ends, and the figures of the papers. See
//! `docs/lab.md`.
//!
//! Called by `blockyard lab`. Nothing here may be linked into the data path of the daemon.

pub mod bare;
pub mod child;
pub mod compare;
pub mod drive;
pub mod explain;
pub mod figure;
pub mod label_filter;
pub mod load;
pub mod machine;
pub mod measure;
pub mod meter;
pub mod peer;
pub mod point;
pub mod random;
pub mod references;
pub mod replay;
pub mod report;
pub mod run;
pub mod scenario;
pub mod seen;
pub mod stamp;
pub mod stream;
#[cfg(test)]
mod synthetic;
pub mod target;
