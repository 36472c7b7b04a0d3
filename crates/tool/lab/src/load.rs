//! What a session asks for next, and when: addresses, directions, sizes and pace, and the counting of how it ended.

mod ledger;
mod places;
mod source;
mod tally;

pub use ledger::{Ledger, Proof};
pub use places::Places;
pub use source::{Content, Due, Op, Share, Source};
pub use tally::{Tallies, Window};
