//! Network between an initiator and the session of a target, with the rules of RFC 7143 for the output of the target.

use iscsi::Offer;
use iscsi::pdu::{BHS_BYTES, Bhs, InitiatorTaskTag, R2t, SegmentLengths, StatSn, TargetPdu, TargetTransferTag, padded};
use simd::crc32c::crc32c;
use std::collections::{HashMap, VecDeque};

/// Returns the byte at this offset of every command's data.
pub fn pattern(at: usize) -> u8 {
    (at ^ ((at >> 8) * 31)) as u8
}

/// PDU of the initiator.
pub struct Pdu<'a> {
    header: Bhs,
    data: &'a [u8],
}

impl<'a> Pdu<'a> {
    pub fn new(emit: impl FnOnce(SegmentLengths, &mut Bhs), data: &'a [u8]) -> Self {
        let mut header = [0; BHS_BYTES];
        emit(SegmentLengths::data(data.len()), &mut header);
        Self { header, data }
    }
}

#[derive(Default)]
struct Side {
    /// Expected StatSN; `None` before the first one was received.
    stat_sn: Option<StatSn>,
    r2ts: VecDeque<R2t>,
    is_deaf: bool,
}

pub struct Wire {
    header_digest: bool,
    data_digest: bool,
    sides: [Side; 2],
    /// Largest length that was expected under a tag.
    expected: HashMap<InitiatorTaskTag, u32>,
    data_tag: Option<TargetTransferTag>,
    next_damage: Option<(u16, u8)>,
    next_is_lost: bool,
    is_damaged: bool,
    asked_again: bool,
}

impl Wire {
    pub fn new(offer: &Offer) -> Self {
        let speaks = |digest| digest == iscsi::DigestOffer::Preferred;
        Self {
            header_digest: speaks(offer.header_digest),
            data_digest: speaks(offer.data_digest),
            sides: <[Side; 2]>::default(),
            expected: HashMap::new(),
            data_tag: None,
            next_damage: None,
            next_is_lost: false,
            is_damaged: false,
            asked_again: false,
        }
    }

    pub fn damage_next(&mut self, at: u16, with: u8) {
        self.next_damage = Some((at, with));
    }

    pub fn lose_next(&mut self) {
        self.next_is_lost = true;
    }

    /// True when a PDU was not received as its sender sent it.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Permits repeated PDUs of the target from now on.
    pub fn asks_again(&mut self) {
        self.asked_again = true;
    }

    pub fn expects(&mut self, tag: InitiatorTaskTag, bytes: u32) {
        let most = self.expected.entry(tag).or_default();
        *most = bytes.max(*most);
    }

    /// Returns a tag by which data can be acknowledged.
    pub fn data_tag(&self) -> Option<TargetTransferTag> {
        self.data_tag
    }

    /// Returns the expected StatSN of this connection.
    pub fn heard(&self, slot: bool) -> StatSn {
        self.sides[usize::from(slot)].stat_sn.unwrap_or_default()
    }

    pub fn take_r2t(&mut self, slot: bool) -> Option<R2t> {
        self.sides[usize::from(slot)].r2ts.pop_front()
    }

    pub fn cut(&mut self, slot: usize) {
        self.sides[slot].is_deaf = true;
    }

    pub fn join(&mut self, slot: usize) {
        if let Some(side) = self.sides.get_mut(slot) {
            *side = Side::default();
        }
    }

    /// Returns the bytes of the PDU as they arrive; `None` when it is lost.
    pub fn carry(&mut self, pdu: &Pdu<'_>) -> Option<Vec<u8>> {
        if std::mem::take(&mut self.next_is_lost) {
            return None;
        }
        let mut bytes = pdu.header.to_vec();
        if self.header_digest {
            bytes.extend_from_slice(&crc32c(&pdu.header).to_le_bytes());
        }
        if !pdu.data.is_empty() {
            let start = bytes.len();
            bytes.extend_from_slice(pdu.data);
            bytes.resize(start + padded(pdu.data.len()), 0);
            if self.data_digest {
                let digest = crc32c(&bytes[start..]);
                bytes.extend_from_slice(&digest.to_le_bytes());
            }
        }
        if let Some((at, with)) = self.next_damage.take() {
            self.is_damaged = true;
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= with;
        }
        Some(bytes)
    }

    /// Checks the output of the target on a connection; unless it is lost, the initiator processes it.
    pub fn hear(&mut self, slot: usize, mut said: &[u8], loses: bool) {
        while !said.is_empty() {
            let (header, behind) = said.split_first_chunk::<BHS_BYTES>().expect("whole PDUs");
            let data_bytes = SegmentLengths::parse(header).data_bytes;
            let digest = |yes| if yes { 4 } else { 0 };
            let data_digest = if data_bytes > 0 { digest(self.data_digest) } else { 0 };
            let rest = digest(self.header_digest) + padded(data_bytes) + data_digest;
            said = behind.get(rest..).expect("whole PDUs");
            let pdu = TargetPdu::parse(header).expect("a target sends what a target may send");
            self.judge(slot, &pdu, data_bytes as u32);
            if !loses {
                self.learn(slot, pdu);
            }
        }
    }

    fn judge(&mut self, slot: usize, pdu: &TargetPdu, data_bytes: u32) {
        let (exp_cmd_sn, max_cmd_sn) = window(pdu);
        // MaxCmdSN equal to ExpCmdSN - 1 closes the window (RFC 7143 §4.2.2.1).
        assert!(!max_cmd_sn.precedes(exp_cmd_sn.minus(1)), "MaxCmdSN is at least ExpCmdSN - 1: {pdu:?}");
        if let Some(stat_sn) = status(pdu) {
            let expected = self.sides[slot].stat_sn.unwrap_or(stat_sn);
            if stat_sn == expected {
                self.sides[slot].stat_sn = Some(expected.next());
            } else {
                assert!(self.asked_again && stat_sn.precedes(expected), "StatSN is {expected:?}: {pdu:?}");
            }
        }
        // A damaged header without a digest is a different command, about which nothing is known.
        if self.is_damaged {
            return;
        }
        let expected = |tag| *self.expected.get(&tag).unwrap_or_else(|| panic!("no command has this tag: {pdu:?}"));
        match pdu {
            TargetPdu::DataIn(data) => {
                let expected = expected(data.initiator_task_tag);
                assert!(data.buffer_offset_bytes + data_bytes <= expected, "{expected} bytes are expected: {data:?}");
            }
            TargetPdu::R2t(r2t) => {
                let expected = expected(r2t.initiator_task_tag);
                assert!(r2t.desired_data_transfer_bytes > 0);
                assert!(
                    r2t.buffer_offset_bytes + r2t.desired_data_transfer_bytes <= expected,
                    "{expected} bytes: {r2t:?}"
                );
            }
            TargetPdu::ScsiResponse(response) => _ = expected(response.initiator_task_tag),
            _ => {}
        }
    }

    fn learn(&mut self, slot: usize, pdu: TargetPdu) {
        match pdu {
            TargetPdu::R2t(r2t) if !self.sides[slot].is_deaf => self.sides[slot].r2ts.push_back(r2t),
            TargetPdu::DataIn(data) if !data.target_transfer_tag.is_reserved() => {
                self.data_tag = Some(data.target_transfer_tag)
            }
            _ => {}
        }
    }
}

/// Returns ExpCmdSN and MaxCmdSN.
fn window(pdu: &TargetPdu) -> (iscsi::pdu::CmdSn, iscsi::pdu::CmdSn) {
    match pdu {
        TargetPdu::NopIn(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::ScsiResponse(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::TaskManagement(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::Login(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::Text(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::DataIn(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::Logout(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::R2t(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::Async(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::Reject(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
    }
}

/// Returns the StatSN that the PDU consumes as a status (RFC 7143 §4.2.2.2).
fn status(pdu: &TargetPdu) -> Option<StatSn> {
    match pdu {
        TargetPdu::NopIn(pdu) => (!pdu.initiator_task_tag.is_reserved()).then_some(pdu.stat_sn),
        TargetPdu::ScsiResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::TaskManagement(pdu) => Some(pdu.stat_sn),
        TargetPdu::Login(pdu) => Some(pdu.stat_sn),
        TargetPdu::Text(pdu) => Some(pdu.stat_sn),
        TargetPdu::DataIn(pdu) => pdu.status.map(|status| status.stat_sn),
        TargetPdu::Logout(pdu) => Some(pdu.stat_sn),
        TargetPdu::R2t(_) => None,
        TargetPdu::Async(pdu) => Some(pdu.stat_sn),
        TargetPdu::Reject(pdu) => Some(pdu.stat_sn),
    }
}
