//! Unit attentions: what changed that a nexus has not been told yet (SAM-5, unit attention condition).

use crate::sense::{AdditionalSense, Sense, SenseKey};

/// A change that is told to a nexus once, in this order when there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum UnitAttention {
    /// The nexus is new: whatever it believes of the unit may be wrong.
    PowerOn,
    /// The unit was reset.
    Reset,
    /// Another nexus cleared the task set, and tasks of this one with it.
    CommandsCleared,
    /// Another nexus changed mode parameters.
    ModeParametersChanged,
    /// The unit has another number of blocks.
    CapacityChanged,
    /// The target has other logical units.
    LunsChanged,
}

const IN_ORDER: [UnitAttention; 6] = [
    UnitAttention::PowerOn,
    UnitAttention::Reset,
    UnitAttention::CommandsCleared,
    UnitAttention::ModeParametersChanged,
    UnitAttention::CapacityChanged,
    UnitAttention::LunsChanged,
];

impl UnitAttention {
    pub fn code(self) -> AdditionalSense {
        match self {
            Self::PowerOn => AdditionalSense(0x29, 0x00),
            Self::Reset => AdditionalSense(0x29, 0x03),
            Self::CommandsCleared => AdditionalSense(0x2F, 0x00),
            Self::ModeParametersChanged => AdditionalSense(0x2A, 0x01),
            Self::CapacityChanged => AdditionalSense(0x2A, 0x09),
            Self::LunsChanged => AdditionalSense(0x3F, 0x0E),
        }
    }

    pub fn sense(self) -> Sense {
        Sense::new(SenseKey::UnitAttention, self.code())
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The unit attentions that wait to be told to one nexus. Each kind waits at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending(u8);

impl Pending {
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn establish(&mut self, attention: UnitAttention) {
        self.0 |= attention.bit();
    }

    pub fn clear(&mut self, attention: UnitAttention) {
        self.0 &= !attention.bit();
    }

    /// Takes the one that ranks first.
    pub fn take(&mut self) -> Option<UnitAttention> {
        let first = IN_ORDER.into_iter().find(|attention| self.0 & attention.bit() != 0)?;
        self.clear(first);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attentions_are_taken_in_order_and_once_each() {
        let mut pending = Pending::default();
        for attention in IN_ORDER.into_iter().rev().chain(IN_ORDER) {
            pending.establish(attention);
        }
        for attention in IN_ORDER {
            assert_eq!(pending.take(), Some(attention));
        }
        assert!(pending.is_empty() && pending.take().is_none());
    }
}
