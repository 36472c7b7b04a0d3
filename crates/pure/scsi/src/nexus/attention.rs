//! Unit attentions: conditions reported once to each nexus (SAM-5, unit attention condition).

use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::threshold::{AVAILABLE_DESCRIPTOR_AT, USED_DESCRIPTOR_AT};

/// Kind of unit attention; the order of the variants is the order of reporting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum UnitAttention {
    /// 29/00: the nexus is new, and all cached state of the unit may be wrong.
    PowerOn,
    /// 29/03: the unit was reset.
    Reset,
    /// 2F/00: another nexus cleared the task set, including tasks of this one.
    CommandsCleared,
    /// 47/7F: a connection was lost together with tasks of the nexus.
    CommandsLost,
    /// 28/00: blocks may differ from the data written, without a command that changed them.
    MediumMayHaveChanged,
    /// 2A/01: another nexus changed mode parameters.
    ModeParametersChanged,
    /// 2A/06: the access state of a target port group changed.
    AccessStateChanged,
    /// 2A/03: another nexus, or the owner of the unit, cleared reservation and registrations.
    ReservationsPreempted,
    /// 2A/04: a reservation that granted the nexus access was released or changed its type.
    ReservationsReleased,
    /// 2A/05: another nexus removed the registration.
    RegistrationsPreempted,
    /// 2A/09: the number of blocks changed.
    CapacityChanged,
    /// 38/07: a soft threshold of the operator was crossed.
    SoftThreshold,
    /// 38/07: the threshold for available space, set by MODE SELECT, was crossed.
    AvailableThreshold,
    /// 38/07: the threshold for used space, set by MODE SELECT, was crossed.
    UsedThreshold,
    /// 3F/0E: the set of logical units of the target changed.
    LunsChanged,
    /// 3F/03: INQUIRY data changed.
    InquiryDataChanged,
}

/// Unit attentions in order of reporting, highest precedence first.
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
            // INFORMATION is the offset of the threshold descriptor in the mode page, so that the host knows which one
            // was crossed.
            Self::AvailableThreshold => sense.with_information(AVAILABLE_DESCRIPTOR_AT as u64),
            Self::UsedThreshold => sense.with_information(USED_DESCRIPTOR_AT as u64),
            _ => sense,
        }
    }

    fn bit(self) -> u16 {
        // The sixteen kinds fill the 16 bits.
        1 << self as u8
    }
}

/// Pending unit attentions of one nexus as a bit set. Each kind is pending at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending(u16);

impl Pending {
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn establish(&mut self, attention: UnitAttention) {
        // An attention that is already pending is reported once (SAM-5).
        self.0 |= attention.bit();
    }

    pub(super) fn clear(&mut self, attention: UnitAttention) {
        self.0 &= !attention.bit();
    }

    /// Takes the pending unit attention with the highest precedence.
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
