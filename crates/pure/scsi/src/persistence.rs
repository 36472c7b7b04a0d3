//! Persistence: the interface through which a logical unit stores state that survives power loss, and the reader of
//! stored state.

use crate::failure::Failure;
use crate::identity::TargetPort;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Future of a store operation.
pub type StoreFuture<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + 'a>>;

/// Reason why state was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// No room for the new state; the previous state remains stored.
    Full,
    /// The store has failed for the rest of the run.
    Gone,
}

/// Stored bytes that this version cannot parse. A unit with unreadable reservations must not be served: it would admit
/// nexuses that a reservation excludes. Nor must a unit with an unreadable pending SANITIZE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError;

/// Stores the persistent state of one logical unit, and enumerates its target ports. Implemented by the owner of the
/// unit.
pub trait StateStore {
    /// True when [`StateStore::store`] may be called; the unit then offers persistence through power loss (PTPL_C).
    fn is_able(&self) -> bool;

    /// Replaces the stored state by `kept`, from which [`PersistentState`](crate::PersistentState) is parsed after any
    /// crash; empty bytes erase it.
    ///
    /// *Durability*: durable when the future completes. *Errors*: [`StoreError`].
    fn store(&self, kept: Vec<u8>) -> StoreFuture<'_>;

    /// Lists the target ports through which the unit can be reached.
    fn target_ports(&self) -> Vec<TargetPort>;
}

/// Store of a unit: that of its owner, or one without persistence.
pub(crate) struct Persistence(Rc<dyn StateStore>);

impl Persistence {
    pub(crate) fn by(keeper: Rc<dyn StateStore>) -> Self {
        Self(keeper)
    }

    /// True when state can survive power loss.
    pub(crate) fn is_able(&self) -> bool {
        self.0.is_able()
    }

    /// Stores `kept` where persistence exists; succeeds without effect where it does not.
    pub(crate) async fn store(&self, kept: Vec<u8>) -> Result<(), StoreError> {
        if self.0.is_able() { self.0.store(kept).await } else { Ok(()) }
    }

    /// Lists the target ports of the unit except `port`.
    pub(crate) fn other_ports(&self, port: &TargetPort) -> Vec<TargetPort> {
        let name = |port: &TargetPort| (port.target_name.clone(), port.portal_group_tag);
        let mut ports = self.0.target_ports();
        ports.retain(|other| name(other) != name(port));
        ports
    }

    /// Returns the relative port identifiers of the target that `port` belongs to, by target port group. A SCSI target
    /// device is an iSCSI target.
    pub(crate) fn port_groups_of(&self, port: &TargetPort) -> BTreeMap<u16, u16> {
        let others = self.0.target_ports().into_iter().filter(|other| other.target_name == port.target_name);
        // The own port is added, because a store without persistence knows no ports.
        others.chain([port.clone()]).map(|port| (port.portal_group_tag, port.relative_port)).collect()
    }
}

impl Default for Persistence {
    fn default() -> Self {
        Self(Rc::new(NoPersistence))
    }
}

impl fmt::Debug for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persistence").field("is_able", &self.is_able()).finish()
    }
}

/// Store without persistence that knows no ports.
struct NoPersistence;

impl StateStore for NoPersistence {
    fn is_able(&self) -> bool {
        false
    }

    fn store(&self, _: Vec<u8>) -> StoreFuture<'_> {
        // Never called: `Persistence::store` asks `is_able` first.
        Box::pin(std::future::ready(Err(StoreError::Gone)))
    }

    fn target_ports(&self) -> Vec<TargetPort> {
        Vec::new()
    }
}

/// Maps a failed store to the failure of the command that needed it.
pub(crate) fn store_failure(why: StoreError) -> Failure {
    let sense = match why {
        StoreError::Full => Sense::illegal(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES),
        StoreError::Gone => Sense::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE),
    };
    sense.into()
}

/// Cursor over unread bytes of stored state (little-endian).
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], ParseError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(ParseError)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], ParseError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(ParseError)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.array().map(|&[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().copied().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().copied().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().copied().map(u64::from_le_bytes)
    }
}
