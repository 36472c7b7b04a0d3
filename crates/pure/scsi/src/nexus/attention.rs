//! Unit attentions: what changed that a nexus has not been told yet (SAM-5, unit attention condition).

use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::threshold::{AVAILABLE_DESCRIPTOR_AT, USED_DESCRIPTOR_AT};

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
    /// A connection ended, and tasks of the nexus with it.
    CommandsLost,
    /// The blocks may hold something else than was written, by nobody's command.
    MediumMayHaveChanged,
    /// Another nexus changed mode parameters.
    ModeParametersChanged,
    /// Through some target port group the unit is served otherwise.
    AccessStateChanged,
    /// Another nexus, or the owner of the unit, cleared reservation and registrations.
    ReservationsPreempted,
    /// A reservation that let the nexus in is no more, or has another type.
    ReservationsReleased,
    /// Another nexus took the registration away.
    RegistrationsPreempted,
    /// The unit has another number of blocks.
    CapacityChanged,
    /// A threshold that the operator set was reached.
    SoftThreshold,
    /// The threshold for what is available, set by MODE SELECT, was reached.
    AvailableThreshold,
    /// The threshold for what is used, set by MODE SELECT, was reached.
    UsedThreshold,
    /// The target has other logical units.
    LunsChanged,
    /// INQUIRY says something else than before.
    InquiryDataChanged,
}

const IN_ORDER: [UnitAttention; 16] = [
    UnitAttention::PowerOn,
    UnitAttention::Reset,
    UnitAttention::CommandsCleared,
    UnitAttention::CommandsLost,
    UnitAttention::MediumMayHaveChanged,
    UnitAttention::ModeParametersChanged,
    UnitAttention::AccessStateChanged,
    UnitAttention::ReservationsPreempted,
    UnitAttention::ReservationsReleased,
    UnitAttention::RegistrationsPreempted,
    UnitAttention::CapacityChanged,
    UnitAttention::SoftThreshold,
    UnitAttention::AvailableThreshold,
    UnitAttention::UsedThreshold,
    UnitAttention::LunsChanged,
    UnitAttention::InquiryDataChanged,
];

impl UnitAttention {
    pub(crate) fn code(self) -> AdditionalSense {
        match self {
            Self::PowerOn => AdditionalSense(0x29, 0x00),
            Self::Reset => AdditionalSense(0x29, 0x03),
            Self::CommandsCleared => AdditionalSense(0x2F, 0x00),
            Self::CommandsLost => AdditionalSense(0x47, 0x7F),
            Self::MediumMayHaveChanged => AdditionalSense(0x28, 0x00),
            Self::ModeParametersChanged => AdditionalSense(0x2A, 0x01),
            Self::AccessStateChanged => AdditionalSense(0x2A, 0x06),
            Self::ReservationsPreempted => AdditionalSense(0x2A, 0x03),
            Self::ReservationsReleased => AdditionalSense(0x2A, 0x04),
            Self::RegistrationsPreempted => AdditionalSense(0x2A, 0x05),
            Self::CapacityChanged => AdditionalSense(0x2A, 0x09),
            Self::SoftThreshold | Self::AvailableThreshold | Self::UsedThreshold => AdditionalSense(0x38, 0x07),
            Self::LunsChanged => AdditionalSense(0x3F, 0x0E),
            Self::InquiryDataChanged => AdditionalSense(0x3F, 0x03),
        }
    }

    pub(crate) fn sense(self) -> Sense {
        let sense = Sense::new(SenseKey::UnitAttention, self.code());
        match self {
            Self::AvailableThreshold => sense.with_information(AVAILABLE_DESCRIPTOR_AT as u64),
            Self::UsedThreshold => sense.with_information(USED_DESCRIPTOR_AT as u64),
            _ => sense,
        }
    }

    fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// The unit attentions that wait to be told to one nexus. Each kind waits at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending(u16);

impl Pending {
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn establish(&mut self, attention: UnitAttention) {
        self.0 |= attention.bit();
    }

    pub(super) fn clear(&mut self, attention: UnitAttention) {
        self.0 &= !attention.bit();
    }

    /// Takes the one that ranks first.
    pub(super) fn take(&mut self) -> Option<UnitAttention> {
        let first = IN_ORDER.into_iter().find(|attention| self.0 & attention.bit() != 0);
        assert!(first.is_some() || self.0 == 0, "every unit attention has its rank");
        first.inspect(|&first| self.clear(first))
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
