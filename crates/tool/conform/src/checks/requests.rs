//! Checks of requests other than SCSI commands: pings, texts, task management, logouts.

use crate::session::Session;
use crate::wire::Received;
use crate::{CheckResult, Finding, TestTarget, ensure};
use iscsi::pdu::{
    Bhs, Cid, CmdSn, DataSn, InitiatorTaskTag, LogoutOutcome, LogoutReason, LogoutRequest, Lun, SegmentLengths,
    TargetPdu, TargetTransferTag, TaskFunction, TaskFunctionOutcome, TaskManagementRequest, TextRequest, TextResponse,
};

/// Upper bound of the PDUs of one text: 512 KiB in the shortest data segments.
const TEXT_PARTS_MAX: usize = 1024;

pub(super) fn ping(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    session.ping()?;
    // The answer to the second ping comes after all answers to the first.
    session.ping()
}

pub(super) fn ping_unanswered(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    session.send_nop(InitiatorTaskTag::RESERVED, b"");
    session.expect_silence()?;
    // Silence alone would also pass for a target that has stopped to work.
    session.ping()
}

/// Checks that the answer names the task of the request.
fn is_of(asked: u32, told: InitiatorTaskTag) -> CheckResult {
    ensure(told.0 == asked, || format!("the answer to task {asked:#x} names task {:#x}", told.0))
}

/// Sends a text request and returns the text of the answer, which may come in several PDUs.
///
/// *Source*: RFC 7143 §6.2, §11.10.
pub(crate) fn text(session: &mut Session, asked: &str) -> CheckResult<String> {
    let tag = session.next_tag();
    let (mut last, mut told) = exchange(session, tag, None, true, asked)?;
    // A bound, so that a target whose text never ends fails the check.
    for _ in 0..TEXT_PARTS_MAX {
        if last.is_final {
            // Decoded as a whole, because a part may end within a character.
            return Ok(String::from_utf8_lossy(&told).into_owned());
        }
        let (next, part) = exchange(session, tag, Some(&last), true, "")?;
        told.extend_from_slice(&part);
        last = next;
    }
    Err(Finding::Wrong(format!("its text has no end after {TEXT_PARTS_MAX} parts")))
}

/// Sends one request of a text exchange and returns the answer with its text. The request continues the exchange of
/// `before`, if given; `is_final` is false when the initiator has more to send.
fn exchange(
    session: &mut Session,
    tag: u32,
    before: Option<&TextResponse>,
    is_final: bool,
    asked: &str,
) -> CheckResult<(TextResponse, Vec<u8>)> {
    // The next request of an exchange copies LUN and Target Transfer Tag of the response (RFC 7143 §11.10.4).
    let (lun, target_transfer_tag) =
        before.map_or((Lun(0), TargetTransferTag::RESERVED), |before| (before.lun, before.target_transfer_tag));
    let request = TextRequest {
        immediate: true,
        is_final,
        continues: false,
        lun,
        initiator_task_tag: InitiatorTaskTag(tag),
        target_transfer_tag,
        cmd_sn: session.cmd_sn,
        exp_stat_sn: session.stat_sn,
    };
    let mut header = [0; 48];
    request.emit(SegmentLengths::data(asked.len()), &mut header);
    session.wire.send(&header, asked.as_bytes());
    match session.receive()? {
        (TargetPdu::Text(response), pdu) => {
            is_of(tag, response.initiator_task_tag)?;
            Ok((response, pdu.data))
        }
        (other, _) => Err(Finding::Wrong(format!("a Text Response was due, and it said {other:?}"))),
    }
}

pub(super) fn text_goes_on(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    let tag = session.next_tag();
    let asked = "X-io.blockyard.conform=1\0";
    let (open, _) = exchange(&mut session, tag, None, false, asked)?;
    // An open exchange is answered with F 0 and a tag for its continuation (RFC 7143 §11.11).
    ensure(!open.is_final, || "it ends an exchange that the initiator has not ended".to_owned())?;
    ensure(!open.target_transfer_tag.is_reserved(), || "it gives no tag to go on with".to_owned())?;
    let (last, _) = exchange(&mut session, tag, Some(&open), true, "")?;
    ensure(last.is_final && last.target_transfer_tag.is_reserved(), || {
        "it does not end an exchange that the initiator ends and that has no more to say".to_owned()
    })?;
    session.ping()
}

pub(super) fn send_targets(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    // Without a value, the key asks for the target of the session (RFC 7143 Appendix C).
    let told = text(&mut session, "SendTargets=\0")?;
    ensure(told.contains(aim.target.as_str()), || format!("it answered {told:?}"))
}

pub(super) fn text_key(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    let told = text(&mut session, "X-io.blockyard.conform=1\0")?;
    // A key that the receiver does not know is answered with NotUnderstood (RFC 7143 §6.2).
    ensure(told.contains("X-io.blockyard.conform=NotUnderstood"), || format!("it answered {told:?}"))
}

pub(super) fn absent_lun(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    session.ready()?;
    // REPORT LUNS: the check needs a LUN that is not in the list.
    let luns = session.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0], 4096)?.data;
    let is_there =
        |number: u16| luns.get(8..).unwrap_or_default().chunks(8).any(|lun| lun.starts_with(&number.to_be_bytes()));
    // LUNs are usually assigned from zero on, so the search starts with high ones.
    let absent = (1..256).rev().find(|&number| !is_there(number));
    let Some(absent) = absent else { return Err(Finding::Untried("every unit is there".to_owned())) };
    session.lun = Lun(scsi::Lun::of(absent).0);
    // TEST UNIT READY.
    let done = session.read(&[0; 6], 0)?;
    let told = done.sensed().map(|sensed| sensed.triple());
    // CHECK CONDITION with ILLEGAL REQUEST, LOGICAL UNIT NOT SUPPORTED.
    ensure(done.status == 2 && told == Some((5, 0x25, 0)), || {
        format!("unit {absent}: status {}, sense {:x?}", done.status, done.sense)
    })
}

/// Sends a task management request and returns its outcome.
pub(super) fn manage(session: &mut Session, request: &TaskManagementRequest) -> CheckResult<TaskFunctionOutcome> {
    let mut header = [0; 48];
    request.emit(SegmentLengths::NONE, &mut header);
    session.wire.send(&header, &[]);
    match session.receive()? {
        (TargetPdu::TaskManagement(response), _) => {
            is_of(request.initiator_task_tag.0, response.initiator_task_tag)?;
            Ok(response.outcome)
        }
        (other, _) => {
            Err(Finding::Wrong(format!("a Task Management Function Response was due, and it said {other:?}")))
        }
    }
}

/// Builds an immediate task management request.
pub(super) fn function(session: &mut Session, function: TaskFunction, referenced: u32) -> TaskManagementRequest {
    TaskManagementRequest {
        immediate: true,
        function,
        lun: session.lun,
        initiator_task_tag: InitiatorTaskTag(session.next_tag()),
        referenced_task_tag: InitiatorTaskTag(referenced),
        cmd_sn: session.cmd_sn,
        exp_stat_sn: session.stat_sn,
        // The number is behind the window: the target cannot take the task for one that is still to come (RFC 7143
        // §11.6.1).
        ref_cmd_sn: CmdSn(session.cmd_sn.0.wrapping_sub(1)),
        exp_data_sn: DataSn(0),
    }
}

pub(super) fn abort_absent(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    session.ready()?;
    // No task of the session has this tag.
    let request = function(&mut session, TaskFunction::AbortTask, 0x7777);
    let outcome = manage(&mut session, &request)?;
    ensure(outcome == TaskFunctionOutcome::TaskDoesNotExist, || format!("it answered {outcome:?}"))
}

pub(super) fn unknown_function(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    let request = function(&mut session, TaskFunction::Other(0x7e), 0);
    let mut header: Bhs = [0; 48];
    request.emit(SegmentLengths::NONE, &mut header);
    session.wire.send(&header, &[]);
    match session.receive()? {
        // A target may reject the PDU or answer that it does not support the function.
        (TargetPdu::Reject(_), _) => Ok(()),
        (TargetPdu::TaskManagement(response), _) => {
            let done = matches!(response.outcome, TaskFunctionOutcome::Complete | TaskFunctionOutcome::Succeeded);
            ensure(!done, || "it says that it has done it".to_owned())
        }
        (other, _) => Err(Finding::Wrong(format!("it said {other:?}"))),
    }
}

pub(super) fn unknown_opcode(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    let mut header: Bhs = [0; 48];
    // Immediate, with a vendor-specific opcode that the target does not know (RFC 7143 §11.2.1.2).
    (header[0], header[1]) = (0x40 | 0x1e, 0x80);
    header[24..28].copy_from_slice(&session.cmd_sn.0.to_be_bytes());
    header[28..32].copy_from_slice(&session.stat_sn.0.to_be_bytes());
    session.wire.send(&header, &[]);
    match session.wire.listen(aim.patience)? {
        Received::Closed => Ok(()),
        Received::Silence => Err(Finding::Wrong("it said nothing".to_owned())),
        Received::Pdu(pdu) => match pdu.parse()? {
            TargetPdu::Reject(_) => {
                // The data segment of a Reject is the header of the rejected PDU; bytes 16 to 19 are FFFFFFFFh (RFC
                // 7143 §11.17).
                ensure(pdu.data.get(..48) == Some(&header[..]), || "its Reject lacks the header".to_owned())?;
                ensure(pdu.header[16..20] == [0xff; 4], || "its Reject names a task".to_owned())
            }
            other => Err(Finding::Wrong(format!("it said {other:?}"))),
        },
    }
}

/// Sends a logout and returns its outcome.
pub(super) fn log_out(session: &mut Session, reason: LogoutReason, cid: u16) -> CheckResult<LogoutOutcome> {
    let request = LogoutRequest {
        immediate: true,
        reason,
        initiator_task_tag: InitiatorTaskTag(session.next_tag()),
        cid: Cid(cid),
        cmd_sn: session.cmd_sn,
        exp_stat_sn: session.stat_sn,
    };
    let mut header = [0; 48];
    request.emit(SegmentLengths::NONE, &mut header);
    session.wire.send(&header, &[]);
    match session.receive()? {
        (TargetPdu::Logout(response), _) => {
            is_of(request.initiator_task_tag.0, response.initiator_task_tag)?;
            Ok(response.outcome)
        }
        (other, _) => Err(Finding::Wrong(format!("a Logout Response was due, and it said {other:?}"))),
    }
}

pub(super) fn logout(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    // The CID has no meaning when the whole session is closed (RFC 7143 §11.14).
    let outcome = log_out(&mut session, LogoutReason::CloseSession, 0)?;
    ensure(outcome == LogoutOutcome::Closed, || format!("it answered {outcome:?}"))?;
    let closed = session.wire.is_closed()?;
    ensure(closed, || "it keeps the connection".to_owned())
}

pub(super) fn logout_other(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    // No connection of the session has this CID; the logout must not end the one that it arrives on.
    let outcome = log_out(&mut session, LogoutReason::CloseConnection, 0x4321)?;
    ensure(outcome == LogoutOutcome::CidNotFound, || format!("it answered {outcome:?}"))?;
    session.ping()
}
