//! The mode pages, byte by byte.

use super::PageControl;

/// Page code 3Fh asks for every page.
pub(super) const ALL_PAGES: u8 = 0x3F;

/// What MODE SELECT can change. Nothing of it is saved: a reset brings the defaults back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModeParameters {
    /// D_SENSE: sense data comes in descriptor format.
    pub descriptor_sense: bool,
    /// SWP: writes are refused.
    pub software_write_protect: bool,
}

/// One mode page: its defaults, and the bits that may change.
#[derive(Debug)]
pub(super) struct Page {
    pub code: u8,
    default: &'static [u8],
    changeable: &'static [u8],
}

const CONTROL: u8 = 0x0A;
/// D_SENSE and SWP in the control page.
const D_SENSE: (usize, u8) = (2, 0x04);
const SWP: (usize, u8) = (4, 0x08);

/// The pages in ascending order.
pub(super) static PAGES: [Page; 4] = [
    // Read-write error recovery: the arrays below repair and retry by themselves (AWRE, ARRE).
    Page { code: 0x01, default: &[0x01, 10, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0], changeable: &[] },
    // Caching: WCE and RCD are zero. What is answered is stable; reads may come from memory.
    Page { code: 0x08, default: &[0x08, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], changeable: &[] },
    // Control: one task set (TST 0), no implicit saving of logs (GLTSD), unrestricted reordering (QUEUE
    // ALGORITHM MODIFIER 1), QERR 0, TAS 0, no limit on BUSY.
    Page {
        code: CONTROL,
        default: &[CONTROL, 10, 0x02, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0],
        changeable: &[CONTROL, 10, D_SENSE.1, 0, SWP.1, 0, 0, 0, 0, 0, 0, 0],
    },
    // Informational exceptions: none are raised (DEXCPT).
    Page { code: 0x1C, default: &[0x1C, 10, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0], changeable: &[] },
];

impl Page {
    /// The page with the values that are asked for.
    pub fn values(&self, control: PageControl, parameters: ModeParameters) -> Vec<u8> {
        let mut values = self.default.to_vec();
        match control {
            PageControl::Default => {}
            PageControl::Changeable => {
                for (at, value) in values.iter_mut().enumerate().skip(2) {
                    *value = self.changeable.get(at).copied().unwrap_or(0);
                }
            }
            PageControl::Current if self.code == CONTROL => {
                for (set, (at, bit)) in
                    [(parameters.descriptor_sense, D_SENSE), (parameters.software_write_protect, SWP)]
                {
                    values[at] |= if set { bit } else { 0 };
                }
            }
            PageControl::Current => {}
        }
        values
    }

    /// How long the page is, with its two bytes of header.
    pub fn len(&self) -> usize {
        self.default.len()
    }

    /// The parameters with what `new` changes, or the first byte and bit that may not change.
    pub fn apply(&self, new: &[u8], parameters: ModeParameters) -> Result<ModeParameters, (usize, u8)> {
        let current = self.values(PageControl::Current, parameters);
        for (at, (new, current)) in new.iter().zip(&current).enumerate().skip(2) {
            let fixed = !self.changeable.get(at).copied().unwrap_or(0);
            let changed = (new ^ current) & fixed;
            if changed != 0 {
                return Err((at, 7 - changed.leading_zeros() as u8));
            }
        }
        if self.code != CONTROL {
            return Ok(parameters);
        }
        let is_set = |(at, bit): (usize, u8)| new.get(at).is_some_and(|value| value & bit != 0);
        Ok(ModeParameters { descriptor_sense: is_set(D_SENSE), software_write_protect: is_set(SWP) })
    }
}
