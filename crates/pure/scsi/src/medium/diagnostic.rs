//! SEND DIAGNOSTIC (SPC-4): the default self-test, without diagnostic pages.

use super::Medium;
use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::{BlockDevice, Blocks, Extent, Lba, Rope};

/// Refuses every self-test code but the default self-test, and diagnostic pages.
pub(crate) fn check_self_test(cdb: Cdb) -> Result<(), Sense> {
    if cdb.u8_at(1) >> 5 != 0 {
        return Err(Sense::cdb_bit(1, 7));
    }
    if cdb.u16_at(3) != 0 { Err(Sense::cdb_byte(3)) } else { Ok(()) }
}

/// Default self-test: reads the first and the last block and flushes the device.
///
/// *Errors*: 3E/03 when a block cannot be read.
pub(crate) async fn send_diagnostic<D: BlockDevice>(medium: &Medium<D>, cdb: Cdb) -> Result<Rope, Failure> {
    // With SELFTEST zero the command sends diagnostic pages, and an empty list of them requests nothing (SPC-4).
    if cdb.bit(1, 2) {
        let blocks = medium.geometry().blocks;
        for start in [Lba(0), Lba(blocks.0.saturating_sub(1))] {
            // The counters are not updated: a self-test is no host I/O.
            let read = medium.device().read(Extent { start, len: Blocks(1) }).await;
            read.map_err(|_| Sense::new(SenseKey::HardwareError, AdditionalSense::SELF_TEST_FAILED))?;
        }
        medium.synchronize_cache().await?;
    }
    Ok(Rope::new())
}

#[cfg(test)]
mod tests {
    use crate::rig::*;
    use block::IoErrorKind;

    const SELF_TEST: [u8; 6] = [0x1D, 4, 0, 0, 0, 0];

    #[test]
    fn self_test_reads_both_ends_and_makes_stable() {
        let unit = unit();
        tell(&unit, &SELF_TEST, &[]);
        assert_eq!(ops(&unit).last(), Some(&Op::Flush));
        unit.device().failure.set(Some(IoErrorKind::Gone));
        assert_eq!(refused(&unit, &SELF_TEST, &[]), (4, 0x3E, 3));
        tell(&unit, &[0x1D, 0, 0, 0, 0, 0], &[]);
    }

    #[test]
    fn self_tests_in_the_background_and_diagnostic_pages_are_refused() {
        let unit = unit();
        for code in 1..8 {
            assert_eq!(pointed(&unit, &[0x1D, code << 5, 0, 0, 0, 0], &[]), (1, Some(7)));
        }
        assert_eq!(pointed(&unit, &[0x1D, 0x10, 0, 0, 4, 0], &[0; 4]), (3, None));
    }
}
