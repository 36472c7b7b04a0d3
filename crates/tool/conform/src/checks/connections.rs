//! Checks of sessions with several connections, and of session and connection reinstatement.

use super::data::read;
use crate::session::{LoginOutcome, Session};
use crate::{CheckResult, Finding, TestTarget, ensure};
use iscsi::LoginStatus;
use iscsi::login::InitiatorConfig;
use iscsi::pdu::{Cid, Isid};

/// Returns the login parameters of the leading connection; connections that join later offer the same.
pub(super) fn leading(level: u8) -> impl Fn(&mut InitiatorConfig) {
    move |config| {
        config.offer.connections_max = 2;
        config.offer.error_recovery_level = level;
        config.offer.outstanding_r2t_max = 1;
        // A lost connection can be recovered at once, and for 20 seconds.
        (config.offer.time2wait_s, config.offer.time2retain_s) = (0, 20);
        // Connections of a session share the ISID, and a login with it reinstates the session.
        config.isid = Isid([0x80, 0, 0, 0, 0, 0x55]);
    }
}

/// Logs in a session that may have two connections.
fn first(aim: &TestTarget) -> CheckResult<Session> {
    let mut session = Session::login(aim, leading(0))?;
    if session.agreed.connections_max < 2 {
        return Err(Finding::Untried("MaxConnections is 1".to_owned()));
    }
    session.ready()?;
    Ok(session)
}

/// Adds a connection to the session; it continues with the CmdSN of the first one.
pub(super) fn another(aim: &TestTarget, of: &Session, cid: u16) -> CheckResult<Session> {
    match enter(aim, of, cid, |_| {})? {
        LoginOutcome::In(session) => Ok(*session),
        LoginOutcome::Refused(status) => Err(Finding::Wrong(format!("it refuses the connection: {status}"))),
        LoginOutcome::Closed => Err(Finding::Wrong("it closed the connection".to_owned())),
    }
}

fn enter(aim: &TestTarget, of: &Session, cid: u16, change: impl Fn(&mut InitiatorConfig)) -> CheckResult<LoginOutcome> {
    let (tsih, cmd_sn) = (of.agreed.identity.tsih, of.cmd_sn);
    Session::enter(aim, |config| {
        leading(0)(config);
        (config.tsih, config.cid, config.cmd_sn) = (tsih, Cid(cid), cmd_sn);
        change(config);
    })
}

pub(super) fn join(aim: &TestTarget) -> CheckResult {
    let first = first(aim)?;
    let mut second = another(aim, &first, 1)?;
    // Unit attentions belong to the nexus, which the first connection already cleared: the first command must succeed.
    read(&mut second).map(drop)
}

pub(super) fn order(aim: &TestTarget) -> CheckResult {
    let mut first = first(aim)?;
    let mut second = another(aim, &first, 1)?;
    let ahead = first.read_command(&[0; 6], 0);
    let mut behind = second.read_command(&[0; 6], 0);
    // A tag far above those of the first connection: initiator task tags are unique in the session.
    (behind.cmd_sn, behind.initiator_task_tag.0) = (ahead.cmd_sn.next(), 0x100);
    // The connection itself has no gap: the order is that of the session.
    second.send(&behind);
    second.expect_silence()?;
    let tag = first.send(&ahead);
    first.finish(tag)?;
    second.finish(0x100).map(drop)
}

pub(super) fn stranger(aim: &TestTarget) -> CheckResult {
    let first = first(aim)?;
    match enter(aim, &first, 1, |config| config.isid = Isid([0x80, 0, 0, 0, 0, 0x66]))? {
        LoginOutcome::In(_) => Err(Finding::Wrong("it let another ISID into the session".to_owned())),
        LoginOutcome::Refused(status) => {
            ensure(status == LoginStatus::SessionDoesNotExist, || format!("its status is {status}"))
        }
        // Closing the connection without a status is a refusal as well.
        LoginOutcome::Closed => Ok(()),
    }
}

pub(super) fn reinstated(aim: &TestTarget) -> CheckResult {
    let mut first = first(aim)?;
    // A login with the CID of a live connection reinstates that connection (RFC 7143 §6.3.4).
    let cid = first.agreed.identity.cid.0;
    let mut again = another(aim, &first, cid)?;
    read(&mut again)?;
    let closed = first.wire.is_closed()?;
    ensure(closed, || "the connection whose place was taken lives on".to_owned())
}

pub(super) fn session_reinstated(aim: &TestTarget) -> CheckResult {
    let mut old = Session::login(aim, leading(0))?;
    // The same name and ISID without a TSIH reinstate the session (RFC 7143 §6.3.5).
    let mut new = Session::login(aim, leading(0))?;
    new.ready()?;
    let closed = old.wire.is_closed()?;
    ensure(closed, || "the session whose place was taken lives on".to_owned())
}
