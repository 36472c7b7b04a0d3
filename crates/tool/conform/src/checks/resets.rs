//! Checks of task management: commands that the session itself or another nexus aborts.

use super::requests::{function, manage};
use super::writes::{cdb, give};
use crate::session::{CommandResult, Session};
use crate::{CheckResult, Finding, TestTarget, ensure};
use iscsi::pdu::{Isid, R2t, TargetPdu, TaskFunction, TaskFunctionOutcome};

/// Logs in two sessions from different initiator ports; both units are ready.
pub(super) fn pair(aim: &TestTarget) -> CheckResult<[Session; 2]> {
    Ok([port(aim, 1)?, port(aim, 2)?])
}

/// Logs in a session from an initiator port of its own. Its ISID differs near its beginning and at its end, because
/// some targets compare only a part.
pub(super) fn port(aim: &TestTarget, number: u8) -> CheckResult<Session> {
    let mut session = Session::login(aim, |config| config.isid = Isid([0x80, 0, 0, number, 0x70, number]))?;
    session.ready()?;
    Ok(session)
}

/// Starts a write and returns the R2T that asks for its data.
fn waiting_write(session: &mut Session) -> CheckResult<R2t> {
    let cdb = cdb(session, 0x2a, 4096)?;
    // Neither immediate nor unsolicited data, so the write waits for the data of its R2T.
    let command = session.write_command(&cdb, 4096, false);
    let tag = session.send(&command);
    match session.receive()? {
        (TargetPdu::R2t(r2t), _) if r2t.initiator_task_tag.0 == tag => Ok(r2t),
        (other, _) => Err(Finding::Wrong(format!("an R2T was due, and it said {other:?}"))),
    }
}

fn complete(session: &mut Session, task_function: TaskFunction, referenced: u32) -> CheckResult {
    let request = function(session, task_function, referenced);
    match manage(session, &request)? {
        TaskFunctionOutcome::Complete => Ok(()),
        TaskFunctionOutcome::FunctionNotSupported => Err(Finding::Untried("it does not know the function".to_owned())),
        outcome => Err(Finding::Wrong(format!("it answered {outcome:?}"))),
    }
}

/// Checks that the next command ends with a unit attention of this additional sense code, and of this qualifier if
/// given.
pub(super) fn told(session: &mut Session, code: u8, qualifier: Option<u8>) -> CheckResult {
    let done = session.read(&[0; 6], 0)?;
    let is_due = |(key, asc, ascq)| key == 6 && asc == code && qualifier.is_none_or(|due| ascq == due);
    let is_it = done.status == 2 && done.sensed().is_some_and(|sensed| is_due(sensed.triple()));
    ensure(is_it, || format!("06/{code:02x} was due, and it said status {}, sense {:x?}", done.status, done.sense))
}

pub(super) fn abort_task(aim: &TestTarget) -> CheckResult {
    let [mut session, _] = pair(aim)?;
    let asked = waiting_write(&mut session)?;
    complete(&mut session, TaskFunction::AbortTask, asked.initiator_task_tag.0)?;
    session.expect_silence()?;
    session.ready()
}

pub(super) fn abort_task_set(aim: &TestTarget) -> CheckResult {
    let [mut session, mut other] = pair(aim)?;
    waiting_write(&mut session)?;
    // Functions for a whole task set reference no task: the tag is the reserved one.
    complete(&mut session, TaskFunction::AbortTaskSet, u32::MAX)?;
    session.expect_silence()?;
    // The function concerns one nexus, so the other session has no unit attention.
    let done = other.read(&[0; 6], 0)?;
    ensure(done.status == 0, || format!("another session was told status {}, sense {:x?}", done.status, done.sense))
}

pub(super) fn unit(aim: &TestTarget) -> CheckResult {
    let [mut session, mut other] = pair(aim)?;
    complete(&mut session, TaskFunction::LogicalUnitReset, u32::MAX)?;
    // The nexus that requested the reset gets the unit attention as well.
    told(&mut session, 0x29, None)?;
    told(&mut other, 0x29, None)?;
    other.ready()
}

pub(super) fn clear_task_set(aim: &TestTarget) -> CheckResult {
    ends_a_write_of_another(aim, TaskFunction::ClearTaskSet, [0x2f, 0x2f])
}

pub(super) fn unit_ends_tasks(aim: &TestTarget) -> CheckResult {
    ends_a_write_of_another(aim, TaskFunction::LogicalUnitReset, [0x29, 0x2f])
}

/// Checks that a task management function of one session ends a write of another that waits for its data: nothing is
/// written, and the other session is informed. Without TAS this is a unit attention with one of `codes`.
fn ends_a_write_of_another(aim: &TestTarget, task_function: TaskFunction, codes: [u8; 2]) -> CheckResult {
    let [mut session, mut other] = pair(aim)?;
    let is_answered = task_aborted_status(&mut session)?;
    let cdb = cdb(&mut session, 0x28, 4096)?;
    let before = session.read(&cdb, 4096)?.data;
    let asked = waiting_write(&mut other)?;
    complete(&mut session, task_function, u32::MAX)?;
    // Every byte differs from the stored one, so a write that takes place after all is detected.
    let data: Vec<u8> = before.iter().map(|byte| !byte).collect();
    is_told_of_its_end(&mut other, &asked, &data, is_answered, codes)?;
    session.expect_silence()?;
    session.ready()?;
    let after = session.read(&cdb, 4096)?.data;
    ensure(before == after, || "the data of a write that was cleared is written".to_owned())
}

/// Reads TAS of the control mode page: with TAS, commands that another nexus ends are answered with TASK ABORTED.
/// `None` when the unit does not have the page.
///
/// *Source*: SPC-4, control mode page.
fn task_aborted_status(session: &mut Session) -> CheckResult<Option<bool>> {
    let done = session.read(&[0x1a, 0x08, 0x0a, 0, 252, 0], 252)?;
    // Block descriptors precede the page, even though DBD asks for none: a target may ignore it.
    let behind = done.data.get(3).and_then(|&descriptors| done.data.get(4 + usize::from(descriptors)..));
    let page = behind.filter(|page| done.status == 0 && page.first().is_some_and(|code| code & 0x7f == 0x0a));
    Ok(page.and_then(|page| page.get(5)).map(|byte| byte & 0x40 != 0))
}

/// Checks that the end of the command is reported: with TAS by TASK ABORTED, without TAS by a unit attention for the
/// next command and no answer.
///
/// *Source*: SPC-4 7.5.8, SAM-5 5.6.
fn is_told_of_its_end(
    session: &mut Session,
    asked: &R2t,
    data: &[u8],
    is_answered: Option<bool>,
    codes: [u8; 2],
) -> CheckResult {
    let ended = asked.initiator_task_tag.0;
    // The unit attention, if there is one, is reported to this further command.
    let command = session.read_command(&[0; 6], 0);
    let tag = session.send(&command);
    let mut status = None;
    let next = loop {
        match session.receive()? {
            (TargetPdu::ScsiResponse(response), pdu) if response.initiator_task_tag.0 == ended => {
                status = Some(CommandResult::of(&response, &pdu).status);
            }
            (TargetPdu::ScsiResponse(response), pdu) if response.initiator_task_tag.0 == tag => {
                break CommandResult::of(&response, &pdu);
            }
            (other, _) => return Err(Finding::Wrong(format!("task {tag} was due, and it said {other:?}"))),
        }
    };
    let sensed = next.sensed().filter(|_| next.status == 2).map(|sensed| sensed.triple());
    let is_cleared = sensed.is_some_and(|(key, code, _)| key == 6 && codes.contains(&code));
    if status.is_none() {
        // The target may delay the end of the command until the data of the R2T has come (RFC 7143 §4.2.3.3).
        give(session, asked, data);
    }
    if is_cleared && status.is_none() && is_answered != Some(true) {
        return session.expect_silence();
    }
    let status = status.map_or_else(|| session.finish(ended).map(|done| done.status), Ok).map_err(|why| match why {
        Finding::Wrong(why) => Finding::Wrong(format!("TAS is one, and a command that was ended has no answer: {why}")),
        untried => untried,
    })?;
    // A reset establishes a unit attention even when TAS is set.
    ensure(status == 0x40 && (next.status == 0 || is_cleared), || {
        format!("TASK ABORTED or a unit attention was due, and it said status {status:#04x}, then {}", next.status)
    })?;
    ensure(is_answered != Some(false), || "TAS is zero, and TASK ABORTED came".to_owned())
}
