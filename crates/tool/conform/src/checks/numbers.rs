//! Checks of command ordering and of the command window.

use crate::session::Session;
use crate::{CheckResult, Finding, TestTarget, ensure};
use iscsi::pdu::ScsiCommand;

const TEST_UNIT_READY: [u8; 6] = [0; 6];

fn ready(aim: &TestTarget) -> CheckResult<Session> {
    let mut session = Session::login(aim, |_| {})?;
    session.ready()?;
    Ok(session)
}

pub(super) fn order(aim: &TestTarget) -> CheckResult {
    let mut session = ready(aim)?;
    // Both commands must fit the window, which ends with MaxCmdSN. A closed window ends before the next CmdSN.
    if !session.cmd_sn.precedes(session.max_cmd_sn) {
        return Err(Finding::Untried("its window is one command wide".to_owned()));
    }
    let first = session.read_command(&TEST_UNIT_READY, 0);
    let second = session.read_command(&TEST_UNIT_READY, 0);
    // In the wrong order: the second must wait for the first (RFC 7143 §4.2.2.1).
    session.send(&second);
    // A target that carries out the second command answers it within this time.
    session.expect_silence()?;
    session.send(&first);
    // Simple tasks may end in any order.
    let mut ended = [false; 2];
    for _ in 0..2 {
        let (parsed, _) = session.receive()?;
        let iscsi::pdu::TargetPdu::ScsiResponse(response) = parsed else {
            return Err(Finding::Wrong(format!("it said {parsed:?}")));
        };
        for (command, ended) in [&first, &second].into_iter().zip(&mut ended) {
            *ended |= command.initiator_task_tag == response.initiator_task_tag;
        }
    }
    ensure(ended == [true, true], || "not both commands ended".to_owned())
}

pub(super) fn outside(aim: &TestTarget) -> CheckResult {
    let mut session = ready(aim)?;
    let inside = session.read_command(&TEST_UNIT_READY, 0);
    // `inside` is built first and sent last, so its CmdSN remains the next one.
    let far = ScsiCommand { cmd_sn: session.max_cmd_sn.plus(100), ..inside };
    session.send(&far);
    session.expect_silence()?;
    let tag = session.send(&inside);
    session.finish(tag).map(drop)
}

pub(super) fn twice(aim: &TestTarget) -> CheckResult {
    let mut session = ready(aim)?;
    let command = session.read_command(&TEST_UNIT_READY, 0);
    let tag = session.send(&command);
    session.finish(tag)?;
    // ExpStatSN is up to date, so that only CmdSN is a duplicate.
    session.send(&ScsiCommand { exp_stat_sn: session.stat_sn, ..command });
    session.expect_silence()?;
    // The connection survives: a duplicate is ignored, and is no error (RFC 7143 §4.2.2.1).
    session.ping()
}

pub(super) fn immediate(aim: &TestTarget) -> CheckResult {
    let mut session = ready(aim)?;
    let before = session.exp_cmd_sn;
    let command = ScsiCommand { immediate: true, ..session.read_command(&TEST_UNIT_READY, 0) };
    // An immediate command does not consume its CmdSN: the next command uses it again.
    session.cmd_sn = command.cmd_sn;
    let tag = session.send(&command);
    session.finish(tag)?;
    ensure(session.exp_cmd_sn == before, || "ExpCmdSN went on".to_owned())?;
    session.read(&TEST_UNIT_READY, 0).map(drop)
}
