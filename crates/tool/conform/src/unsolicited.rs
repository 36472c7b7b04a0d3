//! Format rules of PDUs that a target sends without a request.

use crate::wire::Pdu;
use crate::{CheckResult, ensure};
use iscsi::pdu::{AsyncEvent, Lun, NopIn, StatSn, TargetPdu};

/// Byte ranges in the header of an Asynchronous Message: AsyncVCode, Parameter1 to Parameter3, and reserved bytes.
const VENDOR_CODE: (usize, usize) = (37, 38);
const FIRST: (usize, usize) = (38, 40);
const SECOND: (usize, usize) = (40, 42);
const THIRD: (usize, usize) = (42, 44);
const RESERVED: [(usize, usize); 2] = [(20, 24), (44, 48)];
/// AsyncEvent code of vendor-specific events.
const VENDOR_EVENT: u8 = 255;

/// Checks the format of a ping or an Asynchronous Message; `next` is the expected StatSN.
///
/// *Source*: RFC 7143 §11.9, §11.19.
pub(crate) fn check_format(parsed: &TargetPdu, pdu: &Pdu, next: StatSn) -> CheckResult {
    match parsed {
        TargetPdu::NopIn(nop_in) => nop_in_is_well_made(nop_in, pdu, next),
        TargetPdu::Async(message) => async_is_well_made(message.event, message.lun, pdu),
        _ => Ok(()),
    }
}

fn nop_in_is_well_made(nop_in: &NopIn, pdu: &Pdu, next: StatSn) -> CheckResult {
    if !nop_in.initiator_task_tag.is_reserved() {
        // The answer to a ping must not ask for an answer itself.
        return ensure(nop_in.target_transfer_tag.is_reserved(), || {
            "the answer to a ping has a Target Transfer Tag".to_owned()
        });
    }
    ensure(pdu.data.is_empty(), || "a ping of its own has data".to_owned())?;
    ensure(nop_in.stat_sn == next, || {
        format!("a ping of its own has the StatSN {}, and {} is the next", nop_in.stat_sn.0, next.0)
    })
}

fn async_is_well_made(event: AsyncEvent, lun: Lun, pdu: &Pdu) -> CheckResult {
    let number = pdu.header[36];
    ensure(pdu.header[16..20] == [0xff; 4], || "an Asynchronous Message has an Initiator Task Tag".to_owned())?;
    let unused: &[_] = match event {
        AsyncEvent::Scsi | AsyncEvent::TasksTerminated => &[VENDOR_CODE, FIRST, SECOND, THIRD],
        AsyncEvent::LogoutRequested { .. } | AsyncEvent::NegotiationRequested { .. } => &[VENDOR_CODE, FIRST, SECOND],
        AsyncEvent::ConnectionDropped { .. } => &[VENDOR_CODE],
        AsyncEvent::SessionDropped { .. } => &[VENDOR_CODE, FIRST],
        AsyncEvent::Other { event: VENDOR_EVENT, .. } => &[],
        AsyncEvent::Other { .. } => return ensure(false, || format!("AsyncEvent {number} means nothing")),
    };
    for &(from, to) in RESERVED.iter().chain(unused) {
        ensure(pdu.header[from..to].iter().all(|byte| *byte == 0), || {
            format!("AsyncEvent {number} has something in its reserved bytes {from} to {}", to - 1)
        })?;
    }
    match event {
        AsyncEvent::Scsi => sense_is_whole(&pdu.data),
        AsyncEvent::TasksTerminated | AsyncEvent::Other { .. } => Ok(()),
        _ => ensure(lun == Lun(0), || format!("AsyncEvent {number} names a unit")),
    }
}

/// Checks that the data holds SenseLength and that many bytes of sense (RFC 7143 §11.9.4, §11.4.7.2).
fn sense_is_whole(data: &[u8]) -> CheckResult {
    let told = data.first_chunk().map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
    ensure(told > 0 && data.len() >= told + 2, || {
        format!("a SCSI event says that it has {told} bytes of sense in a data segment of {}", data.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Finding;
    use iscsi::pdu::{AsyncMessage, CmdSn, InitiatorTaskTag, SegmentLengths, TargetTransferTag};

    const NEXT: StatSn = StatSn(7);

    fn judged(header: [u8; 48], data: &[u8]) -> Result<(), String> {
        let pdu = Pdu { header, data: data.to_vec() };
        check_format(&pdu.parse().expect("a PDU"), &pdu, NEXT).map_err(|finding| match finding {
            Finding::Wrong(how) => how,
            Finding::Untried(why) => panic!("untried: {why}"),
        })
    }

    fn message(event: AsyncEvent) -> [u8; 48] {
        let (lun, exp_cmd_sn, max_cmd_sn) = (Lun(0), CmdSn(1), CmdSn(9));
        let mut header = [0; 48];
        AsyncMessage { lun, stat_sn: NEXT, exp_cmd_sn, max_cmd_sn, event }.emit(SegmentLengths::NONE, &mut header);
        header
    }

    fn nop_in(tag: u32, transfer_tag: u32, stat_sn: StatSn) -> [u8; 48] {
        let (lun, exp_cmd_sn, max_cmd_sn) = (Lun(0), CmdSn(1), CmdSn(9));
        let (initiator_task_tag, target_transfer_tag) = (InitiatorTaskTag(tag), TargetTransferTag(transfer_tag));
        let mut header = [0; 48];
        NopIn { lun, initiator_task_tag, target_transfer_tag, stat_sn, exp_cmd_sn, max_cmd_sn }
            .emit(SegmentLengths::NONE, &mut header);
        header
    }

    #[test]
    fn asynchronous_message_has_what_its_event_has_and_nothing_else() {
        let dropped = AsyncEvent::ConnectionDropped { cid: 1, time2wait_s: 2, time2retain_s: 3 };
        let session_dropped = AsyncEvent::SessionDropped { time2wait_s: 2, time2retain_s: 3 };
        let asked = [AsyncEvent::LogoutRequested { within_s: 9 }, AsyncEvent::NegotiationRequested { within_s: 9 }];
        let vendor = AsyncEvent::Other { event: 255, vendor_code: 1, parameters: [1, 2, 3] };
        for event in asked.into_iter().chain([dropped, session_dropped, AsyncEvent::TasksTerminated, vendor]) {
            assert_eq!(judged(message(event), &[]), Ok(()), "{event:?}");
            // The tag, and the reserved bytes after it and at the end.
            for at in [16, 20, 47] {
                let mut header = message(event);
                header[at] ^= 1;
                assert!(judged(header, &[]).is_err(), "{event:?}, byte {at}");
            }
        }
        for (event, reserved) in [
            (asked[0], &[8, 37, 38, 41][..]),
            (asked[1], &[8, 37, 39, 40]),
            (dropped, &[8, 37]),
            (session_dropped, &[8, 37, 39]),
            (AsyncEvent::TasksTerminated, &[37, 38, 40, 43]),
        ] {
            for &at in reserved {
                let mut header = message(event);
                header[at] = 1;
                assert!(judged(header, &[]).is_err(), "{event:?}, byte {at}");
            }
        }
        let unknown = AsyncEvent::Other { event: 6, vendor_code: 0, parameters: [0; 3] };
        assert_eq!(judged(message(unknown), &[]), Err("AsyncEvent 6 means nothing".to_owned()));
    }

    #[test]
    fn scsi_event_has_its_sense() {
        let mut with_lun = message(AsyncEvent::Scsi);
        with_lun[9] = 3;
        assert_eq!(judged(with_lun, &[0, 2, 0x70, 0]), Ok(()));
        for data in [&[][..], &[0, 0], &[0, 3, 0x70, 0]] {
            assert!(judged(with_lun, data).is_err(), "{data:?}");
        }
    }

    #[test]
    fn ping_tells_the_next_stat_sn_and_has_no_data() {
        assert_eq!(judged(nop_in(u32::MAX, 5, NEXT), &[]), Ok(()));
        assert_eq!(judged(nop_in(u32::MAX, u32::MAX, NEXT), &[]), Ok(()));
        assert_eq!(judged(nop_in(4, u32::MAX, NEXT), b"echo"), Ok(()));
        assert!(judged(nop_in(u32::MAX, 5, NEXT), b"data").is_err());
        assert!(judged(nop_in(u32::MAX, 5, StatSn(8)), &[]).is_err());
        assert!(judged(nop_in(4, 5, NEXT), b"echo").is_err());
    }
}
