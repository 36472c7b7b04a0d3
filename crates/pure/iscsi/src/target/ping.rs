//! NOP-Out and NOP-In: pings in both directions, and window updates.

use super::full_feature::{FullFeature, OrderedAction};
use super::link::Link;
use crate::Violation;
use crate::pdu::{InitiatorTaskTag, Lun, NopIn, NopOut, SegmentLengths, TargetTransferTag};
use crate::session::window::CmdSns;

/// State of pings that the target sends.
#[derive(Debug, Default)]
pub(crate) struct Ping {
    last: u32,
}

impl FullFeature {
    /// Answers a ping of the initiator with its data. An answer to a ping of the target needs no action: its arrival is
    /// enough.
    ///
    /// Source: RFC 7143 §11.18, §11.19.
    pub(crate) fn handle_nop_out(&mut self, link: &mut Link, request: &NopOut, data: &[u8]) -> Result<(), Violation> {
        // Answer to a ping of the target: it has reset the idle timer already.
        if request.initiator_task_tag.is_reserved() {
            return Ok(());
        }
        if !self.in_window(request.immediate, request.cmd_sn) {
            return Ok(());
        }
        // The answer does not wait for its turn, but its CmdSN is consumed in order.
        self.run_in_cmdsn_order(link, request.immediate, request.cmd_sn, OrderedAction::Pass);
        // The echo is truncated to the initiator's MaxRecvDataSegmentLength.
        let echoed = data.len().min(link.peer_data_segment_bytes_max as usize);
        let data = data.get(..echoed).unwrap_or_default();
        let stat_sn = link.take_stat_sn();
        link.push_nop_in(self.cmd_sns(), request.initiator_task_tag, TargetTransferTag::RESERVED, stat_sn, data);
        Ok(())
    }

    /// Pings the initiator.
    pub(crate) fn send_ping(&mut self, link: &mut Link) {
        // The most significant bit stays clear, so the tag is never the reserved one.
        link.ping.last = link.ping.last.wrapping_add(1) & 0x7fff_ffff;
        // A valid target transfer tag requests an answer; without it a NOP-In only reports the window (RFC 7143
        // §11.19.3).
        let (tag, stat_sn) = (TargetTransferTag(link.ping.last), link.stat_sn);
        link.push_nop_in(self.cmd_sns(), InitiatorTaskTag::RESERVED, tag, stat_sn, &[]);
    }

    /// Sends the current MaxCmdSN when no other PDU does.
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
        // A NOP-In without an Initiator Task Tag carries the next StatSN without consuming it (RFC 7143 §11.19.2), so
        // it is not kept for retransmission.
        if stat_sn == self.stat_sn { self.transmit.push(&header, data) } else { self.push_status(&header, data) }
    }
}
