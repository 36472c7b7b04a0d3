//! On-disk format of the saved mode parameters (MODE SELECT with SP). `docs/on-disk.md` has the byte map.

use super::ModeParameters;
use crate::persistence::{ParseError, Reader};
use crate::threshold::{Threshold, Thresholds};

const DESCRIPTOR_SENSE: u8 = 1;
const SOFTWARE_WRITE_PROTECT: u8 = 2;
const TASK_ABORTED_STATUS: u8 = 4;
const AVAILABLE_ENABLED: u8 = 8;
const USED_ENABLED: u8 = 16;
const ALL_FLAGS: u8 = 31;

impl ModeParameters {
    /// Emits the stored form; empty for default values.
    pub(crate) fn emit(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        // The count of a disabled threshold is stored as well, because MODE SENSE returns it.
        let Thresholds { available, used } = self.thresholds;
        let flags = flag(self.descriptor_sense, DESCRIPTOR_SENSE)
            | flag(self.software_write_protect, SOFTWARE_WRITE_PROTECT)
            | flag(self.task_aborted_status, TASK_ABORTED_STATUS)
            | flag(available.enabled, AVAILABLE_ENABLED)
            | flag(used.enabled, USED_ENABLED);
        [&[flags][..], &available.count.to_le_bytes(), &used.count.to_le_bytes()].concat()
    }

    /// Parses what [`ModeParameters::emit`] emitted.
    pub(crate) fn parse(rest: &mut Reader<'_>) -> Result<Self, ParseError> {
        let flags = rest.u8()?;
        // An unknown flag belongs to another version of the format and cannot be interpreted.
        if flags & !ALL_FLAGS != 0 {
            return Err(ParseError);
        }
        let mut threshold = |flag| Ok(Threshold { enabled: flags & flag != 0, count: rest.u32()? });
        Ok(Self {
            descriptor_sense: flags & DESCRIPTOR_SENSE != 0,
            software_write_protect: flags & SOFTWARE_WRITE_PROTECT != 0,
            task_aborted_status: flags & TASK_ABORTED_STATUS != 0,
            // WCE belongs to the owner of the unit and is never stored.
            write_cache: false,
            // Read in the order in which `emit` writes them.
            thresholds: Thresholds { available: threshold(AVAILABLE_ENABLED)?, used: threshold(USED_ENABLED)? },
        })
    }
}
