//! Writes that are acknowledged before the device below has them, and how they get there.

mod back;
mod destage;
mod dirty;
mod memory;
#[cfg(test)]
mod tests;

pub use back::{WriteBack, WriteCounters};
pub use memory::WriteMemory;
