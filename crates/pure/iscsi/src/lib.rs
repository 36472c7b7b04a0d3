//! RFC 7143 as pure state machines, for both roles.

mod close;
pub mod initiator;
mod login;
pub mod pdu;
mod receive;
mod session;
mod standin;
pub mod target;
mod text;
mod timers;
mod transmit;
mod violation;

#[cfg(test)]
mod tests;

pub use close::CloseReason;
pub use login::LoginStatus;
pub use session::TaskId;
pub use transmit::Gathered;
pub use violation::Violation;
