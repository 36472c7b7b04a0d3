//! Write-back: writes acknowledged before the device below has them, and their destaging.

mod back;
mod destage;
mod dirty;
mod memory;
#[cfg(test)]
mod tests;

pub use back::{WriteBack, WriteCounters};
pub use memory::WriteMemory;
