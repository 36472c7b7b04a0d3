//! What a logical unit needs of others for its reservations.

use crate::identity::TargetPort;
use std::future::Future;
use std::pin::Pin;

/// What is under way until something is kept.
pub type Keeping<'a> = Pin<Box<dyn Future<Output = Result<(), NotKept>> + 'a>>;

/// Why something was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// There is no room for so much; what was kept before still is.
    Full,
    /// Nothing can be kept any more.
    Gone,
}

/// Keeps the reservations of one logical unit, and knows the ports that lead to it.
pub trait Keeper {
    /// True when [`Keeper::keep`] can be asked: persistence through power loss is offered then.
    fn is_able(&self) -> bool;

    /// `kept` is what [`Kept`](crate::Kept) is read from after any crash from now on; nothing is
    /// kept when it is empty.
    ///
    /// *Durability*: when it is ready. *Errors*: [`NotKept`].
    fn keep(&self, kept: Vec<u8>) -> Keeping<'_>;

    /// The target ports through which the unit can be reached.
    fn target_ports(&self) -> Vec<TargetPort>;
}

/// Keeps nothing and knows no ports.
pub(crate) struct Forgetful;

impl Keeper for Forgetful {
    fn is_able(&self) -> bool {
        false
    }

    fn keep(&self, _: Vec<u8>) -> Keeping<'_> {
        Box::pin(std::future::ready(Err(NotKept::Gone)))
    }

    fn target_ports(&self) -> Vec<TargetPort> {
        Vec::new()
    }
}
