//! Checks of unsolicited messages of the target, and of their consequences.

use super::connections::{another, leading};
use super::requests::log_out;
use crate::session::{Session, Unsolicited};
use crate::wire::SILENCE;
use crate::{CheckResult, Finding, TestTarget, ensure};
use iscsi::pdu::{AsyncEvent, LogoutOutcome, LogoutReason};
use std::time::{Duration, Instant};

/// Logs in a session that listens for unsolicited messages, and returns the end of the listening time.
fn listening(aim: &TestTarget) -> CheckResult<(Session, Instant)> {
    if aim.listen.is_zero() {
        return Err(Finding::Untried("it needs time to listen: --listen SECONDS".to_owned()));
    }
    let mut session = Session::login(aim, |_| {})?;
    session.ready()?;
    Ok((session, Instant::now() + aim.listen))
}

pub(super) fn ping(aim: &TestTarget) -> CheckResult {
    let (mut session, until) = listening(aim)?;
    let mut pings = 0;
    loop {
        match session.unasked(until)? {
            Unsolicited::Ping(ping) => {
                session.answer_ping(&ping);
                // Only a ping with a Target Transfer Tag wants an answer.
                pings += usize::from(!ping.target_transfer_tag.is_reserved());
            }
            Unsolicited::Message(event) => session.survives(event)?,
            Unsolicited::Nothing => break,
            Unsolicited::End => {
                return Err(Finding::Wrong(format!("it closed the connection after {pings} answered pings")));
            }
        }
    }
    // The session must also work after a time without commands.
    session.ready()?;
    match pings {
        0 => Err(Finding::Untried(format!("it sent no ping in {} s", aim.listen.as_secs()))),
        _ => Ok(()),
    }
}

/// Waits for a logout request; returns the session and the time that the target grants.
fn asked_to_leave(aim: &TestTarget) -> CheckResult<(Session, Duration)> {
    let (mut session, until) = listening(aim)?;
    loop {
        match session.unasked(until)? {
            Unsolicited::Ping(ping) => session.answer_ping(&ping),
            Unsolicited::Message(AsyncEvent::LogoutRequested { within_s }) => {
                return Ok((session, Duration::from_secs(within_s.into())));
            }
            Unsolicited::Message(event) => session.survives(event)?,
            Unsolicited::Nothing => {
                return Err(Finding::Untried(format!("nobody asked for a logout in {} s", aim.listen.as_secs())));
            }
            Unsolicited::End => return Err(Finding::Wrong("it closed the connection without a word".to_owned())),
        }
    }
}

pub(super) fn logout_asked(aim: &TestTarget) -> CheckResult {
    let (mut session, _) = asked_to_leave(aim)?;
    // The session may finish its work before it logs out.
    session.read(&[0; 6], 0)?;
    // From here on, the end of the session is expected.
    session.leaves = true;
    let outcome = log_out(&mut session, LogoutReason::CloseSession, 0)?;
    ensure(outcome == LogoutOutcome::Closed, || format!("it answered {outcome:?}"))?;
    ensure(session.wire.is_closed()?, || "it keeps the connection".to_owned())?;
    // A logout on request does not keep the initiator away.
    Session::login(aim, |_| {})?.ready()
}

pub(super) fn logout_overdue(aim: &TestTarget) -> CheckResult {
    let (mut session, within) = asked_to_leave(aim)?;
    let asked = Instant::now();
    session.leaves = true;
    loop {
        // The grace time, and the response timeout on top, because closing the connection counts as an answer.
        match session.unasked(asked + within + aim.patience)? {
            Unsolicited::Ping(ping) => session.answer_ping(&ping),
            Unsolicited::Message(_) => {}
            Unsolicited::Nothing => {
                return Err(Finding::Wrong(format!(
                    "{within:?} were given, and after {:?} it keeps the connection",
                    asked.elapsed()
                )));
            }
            Unsolicited::End => break,
        }
    }
    let gone = asked.elapsed();
    // One second of tolerance, because the grace time has whole seconds.
    ensure(gone + Duration::from_secs(1) >= within, || format!("{within:?} were given, and it closed after {gone:?}"))
}

pub(super) fn connection_lost(aim: &TestTarget) -> CheckResult {
    let mut first = Session::login(aim, leading(2))?;
    if first.agreed.error_recovery_level < 2 || first.agreed.connections_max < 2 {
        return Err(Finding::Untried("ErrorRecoveryLevel 2 and two connections were not agreed".to_owned()));
    }
    first.ready()?;
    let second = another(aim, &first, 1)?;
    let lost = second.agreed.identity.cid;
    // Closes the TCP connection without a logout.
    drop(second);
    // The message about the lost connection is optional; the check is about the survival of the session.
    let until = Instant::now() + 3 * SILENCE;
    loop {
        match first.unasked(until)? {
            Unsolicited::Ping(ping) => first.answer_ping(&ping),
            Unsolicited::Message(AsyncEvent::ConnectionDropped { cid, .. }) => {
                ensure(cid == lost.0, || format!("it says that connection {cid} is lost, and it is {}", lost.0))?;
            }
            Unsolicited::Message(event) => first.survives(event)?,
            Unsolicited::Nothing => break,
            Unsolicited::End => return Err(Finding::Wrong("it closed the other connection".to_owned())),
        }
    }
    first.ready()
}
