//! Pings, both ways.

use super::full_feature::{FullFeature, Turn};
use super::link::Link;
use crate::Violation;
use crate::pdu::{InitiatorTaskTag, Lun, NopIn, NopOut, SegmentLengths, TargetTransferTag};

/// Our own pings.
#[derive(Debug, Default)]
pub(crate) struct Ping {
    last: u32,
}

impl FullFeature {
    /// Answers the initiator's ping with its own data. An answer to our ping needs none: that it came is enough.
    pub(crate) fn handle_nop_out(&mut self, link: &mut Link, request: &NopOut, data: &[u8]) -> Result<(), Violation> {
        if request.initiator_task_tag.is_reserved() {
            return Ok(());
        }
        if !self.in_window(request.immediate, request.cmd_sn) {
            return Ok(());
        }
        // An answer needs no turn of its own, but the number counts.
        self.take_turn(link, request.immediate, request.cmd_sn, Turn::Pass);
        let echoed = data.len().min(link.peer_data_segment_bytes_max as usize);
        let data = data.get(..echoed).unwrap_or_default();
        let stat_sn = link.take_stat_sn();
        self.push_nop_in(link, request.initiator_task_tag, TargetTransferTag::RESERVED, stat_sn, data);
        Ok(())
    }

    /// Asks the initiator whether it is there.
    pub(crate) fn send_ping(&mut self, link: &mut Link) {
        link.ping.last = link.ping.last.wrapping_add(1) & 0x7fff_ffff;
        let tag = TargetTransferTag(link.ping.last);
        self.push_nop_in(link, InitiatorTaskTag::RESERVED, tag, link.stat_sn, &[]);
    }

    /// Tells the initiator how far the window is open now, when nothing else does.
    pub(crate) fn send_window(&mut self, link: &mut Link) {
        let (tag, transfer_tag) = (InitiatorTaskTag::RESERVED, TargetTransferTag::RESERVED);
        self.push_nop_in(link, tag, transfer_tag, link.stat_sn, &[]);
    }

    fn push_nop_in(
        &self,
        link: &mut Link,
        initiator_task_tag: InitiatorTaskTag,
        target_transfer_tag: TargetTransferTag,
        stat_sn: crate::pdu::StatSn,
        data: &[u8],
    ) {
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let nop_in = NopIn { lun: Lun(0), initiator_task_tag, target_transfer_tag, stat_sn, exp_cmd_sn, max_cmd_sn };
        let mut header = [0; 48];
        nop_in.emit(SegmentLengths::data(data.len()), &mut header);
        if stat_sn == link.stat_sn { link.transmit.push(&header, data) } else { link.push_status(&header, data) }
    }
}
