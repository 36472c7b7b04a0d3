//! The redo log: a ring of batches on the members, and the anchors that say where it begins.

pub(crate) mod checkpoint;
mod commit;
pub(crate) mod ring;
