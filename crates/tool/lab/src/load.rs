//! Commands of a session: addresses, directions, sizes, pace, and the counting of results.

mod ledger;
mod places;
mod source;
mod tally;

pub use ledger::{Ledger, Verification};
pub use places::Addresses;
pub use source::{Content, Due, Op, Share, Source};
pub use tally::{Tallies, Window};
