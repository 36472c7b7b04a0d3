//! Checks of error recovery above level 0.

use super::connections::{another, leading};
use super::data::{read_cdb, send_damaged_ping};
use super::requests::{function, log_out, manage};
use crate::session::{Session, counted};
use crate::wire::Pdu;
use crate::{CheckResult, Finding, TestTarget, ensure};
use iscsi::DigestOffer;
use iscsi::pdu::{
    DataSn, InitiatorTaskTag, LogoutOutcome, LogoutReason, Lun, RejectReason, SegmentLengths, Snack, SnackType,
    TargetPdu, TargetTransferTag, TaskFunction, TaskFunctionOutcome,
};

/// Logs in a session at ErrorRecoveryLevel `level` or above, with small data segments.
fn at_level(aim: &TestTarget, level: u8) -> CheckResult<Session> {
    let mut session = Session::login(aim, |config| {
        leading(level)(config);
        // The target is asked for single Data-In PDUs again, so a read must have several.
        config.offer.data_segment_bytes_max = 8192;
        config.offer.data_digest = DigestOffer::Accepted;
    })?;
    if session.agreed.error_recovery_level < level {
        return Err(Finding::Untried(format!("ErrorRecoveryLevel is {}", session.agreed.error_recovery_level)));
    }
    session.ready()?;
    Ok(session)
}

fn snack(session: &mut Session, kind: SnackType, tag: u32, beg_run: u32, run_length: u32) {
    let header = Snack {
        kind,
        lun: Lun(0),
        initiator_task_tag: InitiatorTaskTag(tag),
        target_transfer_tag: TargetTransferTag::RESERVED,
        exp_stat_sn: session.stat_sn,
        beg_run,
        run_length,
    };
    let mut bytes = [0; 48];
    header.emit(SegmentLengths::NONE, &mut bytes);
    session.wire.send(&bytes, &[]);
}

pub(super) fn agreed(aim: &TestTarget) -> CheckResult {
    let session = Session::login(aim, leading(2))?;
    match session.agreed.error_recovery_level {
        0 => Err(Finding::Untried("ErrorRecoveryLevel is 0".to_owned())),
        _ => Ok(()),
    }
}

pub(super) fn snack_at_0(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    let next = session.stat_sn.0;
    snack(&mut session, SnackType::Status, u32::MAX, next, 0);
    match session.receive()? {
        (TargetPdu::Reject(_), _) => Ok(()),
        (other, _) => Err(Finding::Wrong(format!("a Reject was due, and it said {other:?}"))),
    }
}

/// Runs a read without acknowledging its status; returns its tag and its PDUs.
fn unacknowledged(session: &mut Session) -> CheckResult<(u32, Vec<Pdu>)> {
    let cdb = read_cdb(session)?;
    let before = session.stat_sn;
    // Not `Session::read`: the PDUs themselves are compared with those that come again.
    let command = session.read_command(&cdb, 64 << 10);
    let tag = session.send(&command);
    let mut pdus = Vec::new();
    loop {
        let (parsed, pdu) = session.receive()?;
        pdus.push(pdu);
        if counted(&parsed).is_some() {
            // ExpStatSN stays where it was, so the target must keep the PDUs for a SNACK.
            session.stat_sn = before;
            return Ok((tag, pdus));
        }
    }
}

/// Compares two PDUs, except for ExpCmdSN and MaxCmdSN (header bytes 28 to 35).
fn same(one: &Pdu, other: &Pdu) -> bool {
    one.header[..28] == other.header[..28] && one.header[36..] == other.header[36..] && one.data == other.data
}

pub(super) fn data(aim: &TestTarget) -> CheckResult {
    let mut session = at_level(aim, 1)?;
    let (tag, pdus) = unacknowledged(&mut session)?;
    // At least eight PDUs come, because the data segments are small. A read that fails has fewer.
    let sent = pdus.get(1..3).ok_or_else(|| Finding::Wrong(format!("the read ended after {} PDUs", pdus.len())))?;
    // BegRun and RunLength: two PDUs, of which the first is the second one of the read.
    snack(&mut session, SnackType::DataOrR2t, tag, 1, 2);
    for pdu in sent {
        let again = session.wire.expect()?;
        ensure(same(&again, pdu), || format!("another PDU came: {:?}", again.parse()))?;
    }
    Ok(())
}

pub(super) fn status(aim: &TestTarget) -> CheckResult {
    let mut session = at_level(aim, 1)?;
    let (_, pdus) = unacknowledged(&mut session)?;
    let last = pdus.last().expect("a read ends with a status");
    let stat_sn = counted(&last.parse()?).map_or(0, |stat_sn| stat_sn.0);
    // A Status SNACK names a StatSN and no task, so its tag is the reserved one (RFC 7143 §11.16).
    snack(&mut session, SnackType::Status, u32::MAX, stat_sn, 1);
    let again = session.wire.expect()?;
    ensure(same(&again, last), || format!("another PDU came: {:?}", again.parse()))
}

pub(super) fn acknowledged(aim: &TestTarget) -> CheckResult {
    let mut session = at_level(aim, 1)?;
    // The next ExpStatSN acknowledges the status, and with it all data of the command.
    let (tag, _) = unacknowledged(&mut session)?;
    session.stat_sn = session.stat_sn.next();
    session.ping()?;
    // RunLength 0 requests everything from BegRun on.
    snack(&mut session, SnackType::DataOrR2t, tag, 0, 0);
    match session.receive()? {
        (TargetPdu::Reject(_), _) => Ok(()),
        (other, _) => Err(Finding::Wrong(format!("a Reject was due, and it said {other:?}"))),
    }
}

pub(super) fn wrong_digest(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |config| {
        leading(1)(config);
        config.offer.data_digest = DigestOffer::Preferred;
    })?;
    if session.agreed.error_recovery_level == 0 || !session.wire.data_digest {
        return Err(Finding::Untried("level 1 and data digests were not agreed".to_owned()));
    }
    send_damaged_ping(&mut session);
    match session.receive()? {
        // Above level 0 the connection survives the error, and the Reject says which one it was (RFC 7143 §7.8).
        (TargetPdu::Reject(reject), _) => {
            ensure(reject.reason == RejectReason::DataDigestError, || format!("its reason is {:?}", reject.reason))?;
        }
        (other, _) => return Err(Finding::Wrong(format!("a Reject was due, and it said {other:?}"))),
    }
    session.ping()
}

pub(super) fn task_reassign(aim: &TestTarget) -> CheckResult {
    let mut first = at_level(aim, 2)?;
    if first.agreed.connections_max < 2 {
        return Err(Finding::Untried("MaxConnections is 1".to_owned()));
    }
    let (tag, pdus) = unacknowledged(&mut first)?;
    let mut second = another(aim, &first, 1)?;
    // Tags are unique in the session, and both connections share the CmdSN.
    (second.tag, second.cmd_sn) = (0x100, first.cmd_sn);
    // Only after this logout may another connection take over the task.
    let outcome = log_out(&mut second, LogoutReason::RemoveForRecovery, first.agreed.identity.cid.0)?;
    ensure(outcome == LogoutOutcome::Closed, || format!("the logout for recovery came to {outcome:?}"))?;
    let mut request = function(&mut second, TaskFunction::TaskReassign, tag);
    // Nothing is acknowledged: the target sends all data again.
    request.exp_data_sn = DataSn(0);
    let outcome = manage(&mut second, &request)?;
    ensure(outcome == TaskFunctionOutcome::Complete, || format!("TASK REASSIGN came to {outcome:?}"))?;
    let done = second.finish(tag)?;
    // Compared as a whole: the new connection may divide the data into other PDUs.
    let before: Vec<u8> = pdus.into_iter().flat_map(|pdu| pdu.data).collect();
    ensure(done.status == 0 && done.data == before, || "the answer is another one".to_owned())
}
