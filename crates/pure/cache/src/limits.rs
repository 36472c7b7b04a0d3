//! How fast each volume may be, and who goes first when several want more than there is.

mod limited;
mod scheduler;
#[cfg(test)]
mod tests;

pub use limited::Limited;
pub use scheduler::Scheduler;
