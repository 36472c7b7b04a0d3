//! What of a unit survives power loss beside its blocks, as bytes: reservations, saved mode parameters, and a SANITIZE that is
//! not done.
//! `docs/on-disk.md` has the byte map.

use crate::keeper::{NotKept, NotUnderstood, Reader};
use crate::mode::ModeParameters;
use crate::reservation::State as Reserved;
use crate::sanitize::State as Sanitize;
use crate::unit::LogicalUnit;
use block::BlockDevice;

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
}

fn emit(reservations: &[u8], sanitize: &[u8], mode: &[u8]) -> Vec<u8> {
    let section = |tag: u8, bytes: &[u8]| if bytes.is_empty() { Vec::new() } else { [&[tag], bytes].concat() };
    [section(WITH_MODE, mode), section(WITH_SANITIZE, sanitize), reservations.to_vec()].concat()
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// The unit is as its keeper has kept it last. Nobody has reached it yet.
    pub fn restore(&self, kept: Kept) {
        self.reservations.install(kept.reservations);
        self.sanitize.install(kept.sanitize);
        self.mode.set(kept.mode);
        self.saved_mode.set(kept.mode);
    }

    /// What is to survive power loss does. The caller has its turn (`TURN`).
    pub(crate) async fn keep(&self) -> Result<(), NotKept> {
        self.keep_as(&self.sanitize.state()).await
    }

    /// As [`LogicalUnit::keep`], with `sanitize` for the state that the unit is in.
    pub(crate) async fn keep_as(&self, sanitize: &Sanitize) -> Result<(), NotKept> {
        self.keep_all(&self.reservations.kept(), sanitize, self.saved_mode.get()).await
    }

    /// As [`LogicalUnit::keep`], with `reservations` for those that hold now.
    pub(crate) async fn keep_reservations(&self, reservations: Vec<u8>) -> Result<(), NotKept> {
        self.keep_all(&reservations, &self.sanitize.state(), self.saved_mode.get()).await
    }
}

impl<D> LogicalUnit<D> {
    /// As [`LogicalUnit::keep`], with `mode` for the mode parameters that are saved now.
    pub(crate) async fn keep_mode(&self, mode: ModeParameters) -> Result<(), NotKept> {
        self.keep_all(&self.reservations.kept(), &self.sanitize.state(), mode).await
    }

    async fn keep_all(&self, reservations: &[u8], sanitize: &Sanitize, mode: ModeParameters) -> Result<(), NotKept> {
        self.reservations.keep(emit(reservations, &sanitize.kept(), &mode.kept())).await
    }
}
