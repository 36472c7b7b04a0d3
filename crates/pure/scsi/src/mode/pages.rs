//! Mode page layouts: default values and changeable bits, byte by byte.

use super::PageControl;
use crate::threshold::{AVAILABLE_DESCRIPTOR_AT, Threshold, Thresholds, USED_DESCRIPTOR_AT};

/// Page code 3Fh: all pages.
pub(super) const ALL_PAGES: u8 = 0x3F;
/// Subpage code FFh: all subpages.
pub(super) const ALL_SUBPAGES: u8 = 0xFF;

/// Changeable mode parameters. SP saves all of them except WCE; a reset restores the saved values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeParameters {
    /// D_SENSE: sense data in descriptor format.
    pub descriptor_sense: bool,
    /// SWP: writes are refused.
    pub software_write_protect: bool,
    /// TAS: commands that another nexus aborts end with TASK ABORTED. Without it, hosts wait for them until they time
    /// out.
    pub task_aborted_status: bool,
    /// WCE: writes complete before they are stable. Set by the owner of the unit, not by MODE SELECT.
    pub write_cache: bool,
    /// Thresholds for logical block provisioning.
    pub thresholds: Thresholds,
}

impl Default for ModeParameters {
    fn default() -> Self {
        Self {
            descriptor_sense: false,
            software_write_protect: false,
            task_aborted_status: true,
            write_cache: false,
            thresholds: Thresholds::default(),
        }
    }
}

/// Mode page: default values and mask of changeable bits.
#[derive(Debug)]
pub(super) struct Page {
    pub code: u8,
    /// Subpage code; zero for a page in page_0 format, which has none.
    pub subpage: u8,
    default: &'static [u8],
    changeable: &'static [u8],
}

const CACHING: (u8, u8) = (0x08, 0);
/// WCE in the caching page.
const WCE: u8 = 0x04;
const CONTROL: (u8, u8) = (0x0A, 0);
/// D_SENSE, SWP and TAS in the control page: byte offset and bit.
const D_SENSE: (usize, u8) = (2, 0x04);
const SWP: (usize, u8) = (4, 0x08);
const TAS: (usize, u8) = (5, 0x40);
/// PS: the page can be saved.
const SAVEABLE: u8 = 0x80;

const PROVISIONING: (u8, u8) = (0x1C, 0x02);
/// ENABLED in a threshold descriptor.
const ENABLED: u8 = 0x80;
/// THRESHOLD ARMING: increasing (ARMINC) instead of decreasing.
const ARMINC: u8 = 0x01;
/// THRESHOLD RESOURCE: the parameter codes of log page 0Ch.
const AVAILABLE: u8 = 0x01;
const USED: u8 = 0x02;

#[rustfmt::skip]
const PROVISIONING_DEFAULT: [u8; 32] = [
    0x40 | PROVISIONING.0, PROVISIONING.1, 0, 28, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0,
    0, AVAILABLE, 0, 0, 0, 0, 0, 0,
    ARMINC, USED, 0, 0, 0, 0, 0, 0,
];
#[rustfmt::skip]
const PROVISIONING_CHANGEABLE: [u8; 32] = [
    0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0,
    ENABLED, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF,
    ENABLED, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF,
];

/// All pages in ascending order.
pub(super) static PAGES: [Page; 5] = [
    // Read-write error recovery: the arrays below repair and retry automatically (AWRE, ARRE).
    Page { code: 0x01, subpage: 0, default: &[0x01, 10, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0], changeable: &[] },
    // Caching: RCD is zero, reads may be served from memory. WCE is zero, acknowledged writes are stable, unless the
    // owner of the unit sets it.
    Page {
        code: CACHING.0,
        subpage: 0,
        default: &[0x08, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        changeable: &[],
    },
    // Control: one task set (TST 0), no implicit saving of logs (GLTSD), unrestricted reordering (QUEUE ALGORITHM
    // MODIFIER 1), QERR 0, TAS 1, no limit on BUSY.
    Page {
        code: CONTROL.0,
        subpage: 0,
        default: &[CONTROL.0, 10, 0x02, 0x10, 0, TAS.1, 0, 0, 0xFF, 0xFF, 0, 0],
        changeable: &[CONTROL.0, 10, D_SENSE.1, 0, SWP.1, TAS.1, 0, 0, 0, 0, 0, 0],
    },
    // Informational exceptions: disabled (DEXCPT).
    Page { code: 0x1C, subpage: 0, default: &[0x1C, 10, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0], changeable: &[] },
    // Logical block provisioning: every nexus is notified (SITUA 0). Two soft thresholds (THRESHOLD TYPE 0): available
    // space, armed decreasing, and used space, armed increasing. ENABLED and THRESHOLD COUNT are changeable.
    Page {
        code: PROVISIONING.0,
        subpage: PROVISIONING.1,
        default: &PROVISIONING_DEFAULT,
        changeable: &PROVISIONING_CHANGEABLE,
    },
];

/// Returns the pages of a unit; a device that does not report its space has no thresholds.
pub(super) fn pages(tells_space: bool) -> impl Iterator<Item = &'static Page> {
    PAGES.iter().filter(move |page| tells_space || page.name() != PROVISIONING)
}

impl Page {
    /// Returns page code and subpage code.
    pub(super) fn name(&self) -> (u8, u8) {
        (self.code, self.subpage)
    }

    /// Emits the page with the requested values, and PS where `can_save` is set and the page has changeable bits.
    pub(super) fn reported(&self, control: PageControl, parameters: ModeParameters, can_save: bool) -> Vec<u8> {
        let mut values = self.values(control, parameters);
        values[0] |= if can_save && !self.changeable.is_empty() { SAVEABLE } else { 0 };
        values
    }

    fn values(&self, control: PageControl, parameters: ModeParameters) -> Vec<u8> {
        let mut values = self.default.to_vec();
        match control {
            PageControl::Default => {}
            PageControl::Changeable => {
                // The page header is never changeable.
                for (at, value) in values.iter_mut().enumerate().skip(self.header_bytes()) {
                    // A page that cannot be changed has an empty mask.
                    *value = self.changeable.get(at).copied().unwrap_or(0);
                }
            }
            PageControl::Current | PageControl::Saved => self.set_current(&mut values, parameters),
        }
        values
    }

    fn set_current(&self, values: &mut [u8], parameters: ModeParameters) {
        let ModeParameters { descriptor_sense, software_write_protect, task_aborted_status, write_cache, thresholds } =
            parameters;
        if self.name() == CACHING {
            values[2] |= if write_cache { WCE } else { 0 };
        }
        if self.name() == CONTROL {
            let flags = [(descriptor_sense, D_SENSE), (software_write_protect, SWP), (task_aborted_status, TAS)];
            for (set, (at, bit)) in flags {
                values[at] = values[at] & !bit | if set { bit } else { 0 };
            }
        }
        if self.name() == PROVISIONING {
            for (at, threshold) in
                [(AVAILABLE_DESCRIPTOR_AT, thresholds.available), (USED_DESCRIPTOR_AT, thresholds.used)]
            {
                values[at] |= if threshold.enabled { ENABLED } else { 0 };
                values[at + 4..at + 8].copy_from_slice(&threshold.count.to_be_bytes());
            }
        }
    }

    /// Length of the page in bytes, with its header.
    pub(super) fn len(&self) -> usize {
        self.default.len()
    }

    fn header_bytes(&self) -> usize {
        if self.subpage == 0 { 2 } else { 4 }
    }

    /// Applies the page `new` to the parameters.
    ///
    /// *Errors*: byte and bit of the first change to a bit that is not changeable.
    pub(super) fn apply(&self, new: &[u8], parameters: ModeParameters) -> Result<ModeParameters, (usize, u8)> {
        assert_eq!(new.len(), self.len(), "a page is selected as a whole");
        // A page may repeat values that are not changeable, as hosts write back what they have read.
        let current = self.values(PageControl::Current, parameters);
        for (at, (new, current)) in new.iter().zip(&current).enumerate().skip(self.header_bytes()) {
            let fixed = !self.changeable.get(at).copied().unwrap_or(0);
            let changed = (new ^ current) & fixed;
            if changed != 0 {
                // The bit number of the most significant difference.
                // No underflow: at least one bit of `changed` is set.
                return Err((at, 7 - changed.leading_zeros() as u8));
            }
        }
        let is_set = |(at, bit): (usize, u8)| new.get(at).is_some_and(|value| value & bit != 0);
        let threshold = |at: usize| {
            let count = new.get(at + 4..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_be_bytes);
            Threshold { enabled: is_set((at, ENABLED)), count }
        };
        Ok(match self.name() {
            CONTROL => ModeParameters {
                descriptor_sense: is_set(D_SENSE),
                software_write_protect: is_set(SWP),
                task_aborted_status: is_set(TAS),
                ..parameters
            },
            PROVISIONING => {
                let (available, used) = (threshold(AVAILABLE_DESCRIPTOR_AT), threshold(USED_DESCRIPTOR_AT));
                ModeParameters { thresholds: Thresholds { available, used }, ..parameters }
            }
            _ => parameters,
        })
    }
}
