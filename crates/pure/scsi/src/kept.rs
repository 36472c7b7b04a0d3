//! What of a unit survives power loss beside its blocks, as bytes: reservations, saved mode parameters, and a SANITIZE that is
//! not done.
//! `docs/on-disk.md` has the byte map.

use crate::keeper::{NotUnderstood, Reader};
use crate::mode::ModeParameters;
use crate::reservation::State as Reserved;
use crate::sanitize::State as Sanitize;

/// Reservations alone begin with 1; what else there is comes before them, behind this.
const WITH_SANITIZE: u8 = 2;
/// And this comes first of all.
const WITH_MODE: u8 = 3;

/// What a keeper has kept, understood.
#[derive(Debug, Default)]
pub struct Kept {
    pub(crate) reservations: Reserved,
    pub(crate) sanitize: Sanitize,
    pub(crate) mode: ModeParameters,
}

impl Kept {
    /// What is in `kept`; nothing in no bytes.
    pub fn parse(kept: &[u8]) -> Result<Self, NotUnderstood> {
        let mut rest = Reader(kept);
        let mode = match rest.0.first() {
            Some(&WITH_MODE) => {
                rest.u8()?;
                ModeParameters::restored(&mut rest)?
            }
            _ => ModeParameters::default(),
        };
        let sanitize = match rest.0.first() {
            Some(&WITH_SANITIZE) => {
                rest.u8()?;
                Sanitize::restored(&mut rest)?
            }
            _ => Sanitize::Idle,
        };
        let reservations = if rest.0.is_empty() { Reserved::default() } else { Reserved::restored(rest.0)? };
        Ok(Self { reservations, sanitize, mode })
    }

    /// True when `bytes` are what survives power loss of it.
    #[must_use]
    pub fn is_kept_as(&self, bytes: &[u8]) -> bool {
        self.emit() == bytes
    }

    /// What [`Kept::parse`] reads; no bytes where there is nothing to keep.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let section = |tag: u8, bytes: &[u8]| if bytes.is_empty() { Vec::new() } else { [&[tag], bytes].concat() };
        let (mode, sanitize) = (section(WITH_MODE, &self.mode.kept()), section(WITH_SANITIZE, &self.sanitize.kept()));
        let kept = [mode, sanitize, self.reservations.kept()].concat();
        // Bytes that a restart refuses would keep the unit from serving.
        assert!(Self::parse(&kept).is_ok(), "what is kept is understood");
        kept
    }
}
