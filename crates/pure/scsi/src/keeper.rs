//! Persistence: what a logical unit needs of its owner so that something survives power loss, and how what was kept is read.

use crate::failure::Failure;
use crate::identity::TargetPort;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

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

/// The bytes are not what this program keeps. A unit whose reservations cannot be read must not serve: it would let in
/// whom others have shut out. Nor must one that was being sanitized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUnderstood;

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

/// What a unit has to keep things with: its keeper, or one that keeps nothing.
pub(crate) struct Persistence(Rc<dyn Keeper>);

impl Persistence {
    pub(crate) fn by(keeper: Rc<dyn Keeper>) -> Self {
        Self(keeper)
    }

    /// True when what is to survive power loss has a place.
    pub(crate) fn is_able(&self) -> bool {
        self.0.is_able()
    }

    /// Has `kept` survive, where anything does.
    pub(crate) async fn keep(&self, kept: Vec<u8>) -> Result<(), NotKept> {
        if self.0.is_able() { self.0.keep(kept).await } else { Ok(()) }
    }

    /// The target ports that lead to the unit, but for `port`.
    pub(crate) fn other_ports(&self, port: &TargetPort) -> Vec<TargetPort> {
        let name = |port: &TargetPort| (port.target_name.clone(), port.portal_group_tag);
        let mut ports = self.0.target_ports();
        ports.retain(|other| name(other) != name(port));
        ports
    }

    /// The relative identifiers of the ports of the target that `port` belongs to, by their groups: a SCSI target device is an
    /// iSCSI target.
    pub(crate) fn ports_beside(&self, port: &TargetPort) -> BTreeMap<u16, u16> {
        let others = self.0.target_ports().into_iter().filter(|other| other.target_name == port.target_name);
        others.chain([port.clone()]).map(|port| (port.portal_group_tag, port.relative_port)).collect()
    }
}

impl Default for Persistence {
    fn default() -> Self {
        Self(Rc::new(Forgetful))
    }
}

impl fmt::Debug for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persistence").field("is_able", &self.is_able()).finish()
    }
}

/// Keeps nothing and knows no ports.
struct Forgetful;

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

/// The failure of a command that needed something to be kept.
pub(crate) fn keeping_failure(why: NotKept) -> Failure {
    let sense = match why {
        NotKept::Full => Sense::illegal(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES),
        NotKept::Gone => Sense::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE),
    };
    sense.into()
}

/// Bytes that are not read yet.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], NotUnderstood> {
        let (head, rest) = self.0.split_first_chunk().ok_or(NotUnderstood)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], NotUnderstood> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(NotUnderstood)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, NotUnderstood> {
        self.array().map(|&[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, NotUnderstood> {
        self.array().copied().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, NotUnderstood> {
        self.array().copied().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, NotUnderstood> {
        self.array().copied().map(u64::from_le_bytes)
    }
}
