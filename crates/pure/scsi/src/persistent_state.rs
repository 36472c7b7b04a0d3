//! On-disk format of the persistent state of a unit beside its blocks: reservations, saved mode parameters, and an
//! unfinished SANITIZE. `docs/on-disk.md` has the byte map.

use crate::mode::ModeParameters;
use crate::persistence::{ParseError, Reader};
use crate::reservation::State as Reserved;
use crate::sanitize::State as Sanitize;

/// Tag of the SANITIZE section, which precedes the reservations (whose first byte is their version, 1).
const WITH_SANITIZE: u8 = 2;
/// Tag of the mode parameter section, which precedes all others.
const WITH_MODE: u8 = 3;

/// Parsed persistent state of a unit.
#[derive(Debug, Default)]
pub struct PersistentState {
    pub(crate) reservations: Reserved,
    pub(crate) sanitize: Sanitize,
    pub(crate) mode: ModeParameters,
}

impl PersistentState {
    /// Parses stored bytes; no bytes are the state of a new unit.
    ///
    /// *Errors*: [`ParseError`] for anything that [`PersistentState::emit`] does not produce.
    pub fn parse(kept: &[u8]) -> Result<Self, ParseError> {
        let mut rest = Reader(kept);
        // Sections are optional, each marked by its tag, and in this order.
        let mode = match rest.0.first() {
            Some(&WITH_MODE) => {
                rest.u8()?;
                ModeParameters::parse(&mut rest)?
            }
            _ => ModeParameters::default(),
        };
        let sanitize = match rest.0.first() {
            Some(&WITH_SANITIZE) => {
                rest.u8()?;
                Sanitize::parse(&mut rest)?
            }
            _ => Sanitize::Idle,
        };
        let reservations = if rest.0.is_empty() { Reserved::default() } else { Reserved::parse(rest.0)? };
        Ok(Self { reservations, sanitize, mode })
    }

    /// True when `bytes` are the stored form of this state.
    #[must_use]
    pub fn is_stored_as(&self, bytes: &[u8]) -> bool {
        self.emit() == bytes
    }

    /// Emits the form that [`PersistentState::parse`] reads; empty where there is nothing to store.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let section = |tag: u8, bytes: &[u8]| if bytes.is_empty() { Vec::new() } else { [&[tag], bytes].concat() };
        let (mode, sanitize) = (section(WITH_MODE, &self.mode.emit()), section(WITH_SANITIZE, &self.sanitize.emit()));
        let kept = [mode, sanitize, self.reservations.emit()].concat();
        // Bytes that cannot be parsed after a restart would take the unit out of service.
        assert!(Self::parse(&kept).is_ok(), "what is kept is understood");
        kept
    }
}
