//! Pings, both ways.

use super::full_feature::{FullFeature, Turn};
use super::link::Link;
use crate::Violation;
use crate::pdu::{InitiatorTaskTag, Lun, NopIn, NopOut, SegmentLengths, TargetTransferTag};
use crate::session::window::CmdSns;

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
        link.push_nop_in(self.cmd_sns(), request.initiator_task_tag, TargetTransferTag::RESERVED, stat_sn, data);
        Ok(())
    }

    /// Asks the initiator whether it is there.
    pub(crate) fn send_ping(&mut self, link: &mut Link) {
        link.ping.last = link.ping.last.wrapping_add(1) & 0x7fff_ffff;
        let (tag, stat_sn) = (TargetTransferTag(link.ping.last), link.stat_sn);
        link.push_nop_in(self.cmd_sns(), InitiatorTaskTag::RESERVED, tag, stat_sn, &[]);
    }

    /// Tells the initiator how far the window is open now, when nothing else does.
    pub(crate) fn send_window(&mut self, link: &mut Link) {
        let (tag, transfer_tag) = (InitiatorTaskTag::RESERVED, TargetTransferTag::RESERVED);
        let stat_sn = link.stat_sn;
        link.push_nop_in(self.cmd_sns(), tag, transfer_tag, stat_sn, &[]);
    }
}

impl Link {
    fn push_nop_in(
        &mut self,
        (exp_cmd_sn, max_cmd_sn): CmdSns,
        initiator_task_tag: InitiatorTaskTag,
        target_transfer_tag: TargetTransferTag,
        stat_sn: crate::pdu::StatSn,
        data: &[u8],
    ) {
        let nop_in = NopIn { lun: Lun(0), initiator_task_tag, target_transfer_tag, stat_sn, exp_cmd_sn, max_cmd_sn };
        let mut header = [0; 48];
        nop_in.emit(SegmentLengths::data(data.len()), &mut header);
        if stat_sn == self.stat_sn { self.transmit.push(&header, data) } else { self.push_status(&header, data) }
    }
}
