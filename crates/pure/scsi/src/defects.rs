//! READ DEFECT DATA (SBC-4): both defect lists are empty, because a volume has no sectors of its own.

use crate::cdb::Cdb;
use crate::reply::Reply;
use block::Rope;

/// Returns the requested lists, both empty, in the requested format.
pub(crate) fn read_defect_data(cdb: Cdb, allocation: u64) -> Rope {
    let is_short = cdb.operation_code() == 0x37;
    let mut reply = Reply::new();
    // PLISTV and GLISTV have the positions of REQ_PLIST and REQ_GLIST in the CDB.
    reply.u8(0).u8(cdb.u8_at(if is_short { 2 } else { 1 }));
    if is_short {
        reply.u16(0);
    } else {
        // GENERATION CODE and DEFECT LIST LENGTH.
        reply.u16(0).u32(0);
    }
    reply.cut(allocation)
}

#[cfg(test)]
mod tests {
    use crate::rig::*;

    #[test]
    fn defect_lists_are_empty_and_of_the_format_asked_for() {
        let unit = unit();
        assert_eq!(ask(&unit, &[0x37, 0, 0x1D, 0, 0, 0, 0, 0, 32, 0]), [0, 0x1D, 0, 0]);
        assert_eq!(ask(&unit, &[0xB7, 0x0C, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0]), [0, 0x0C, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ask(&unit, &[0xB7, 0x0C, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0]), [0, 0x0C, 0], "as much as fits");
        assert_eq!(pointed(&unit, &[0x37, 0x20, 0, 0, 0, 0, 0, 0, 32, 0], &[]), (1, Some(5)));
    }
}
