//! Quality of service: rate limits of volumes, and fair scheduling among volumes that compete.

mod limited;
mod scheduler;
#[cfg(test)]
mod tests;

pub use limited::Limited;
pub use scheduler::Scheduler;
