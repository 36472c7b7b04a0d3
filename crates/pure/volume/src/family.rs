//! A family: a volume with its snapshots and clones, over one map. `docs/adr/0007-families-of-volumes.md` says how.

pub mod plan;
