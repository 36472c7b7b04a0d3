//! Checks of the login phase.

use crate::session::{LoginOutcome, Session};
use crate::wire::{Pdu, Received, Wire};
use crate::{CheckResult, Finding, TestTarget, ensure};
use iscsi::login::InitiatorAuth;
use iscsi::pdu::{Bhs, Isid, LoginRequest, LoginResponse, SegmentLengths, Stage, TargetPdu, Transit, Tsih};
use iscsi::text::number;
use iscsi::{DigestOffer, IscsiName, LoginStatus};

pub(super) fn plain(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |_| {})?;
    session.ready()
}

pub(super) fn redirect(aim: &TestTarget) -> CheckResult {
    let Some(portal) = Session::elsewhere(aim)? else {
        return Err(Finding::Untried("this portal sends nobody elsewhere".to_owned()));
    };
    Session::login(&TestTarget { portal, ..aim.clone() }, |_| {})?.ready()
}

pub(super) fn all_keys(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |config| {
        config.offer.header_digest = DigestOffer::Accepted;
        config.offer.data_digest = DigestOffer::Accepted;
        // The upper bounds of the keys, so that the target has to answer with limits of its own.
        config.offer.connections_max = 65_535;
        config.offer.error_recovery_level = 2;
        config.offer.outstanding_r2t_max = 65_535;
        config.offer.burst_bytes_max = 0x00ff_ffff;
        config.offer.first_burst_bytes_max = 0x00ff_ffff;
        (config.offer.time2wait_s, config.offer.time2retain_s) = (0, 3600);
    })?;
    let agreed = &session.agreed;
    let one_at_a_time =
        agreed.error_recovery_level == 0 || !agreed.data_sequence_in_order || agreed.outstanding_r2t_max == 1;
    ensure(one_at_a_time, || "MaxOutstandingR2T is not 1 above level 0 with data in order (§13.19)".to_owned())?;
    session.ready()
}

pub(super) fn unknown_key(aim: &TestTarget) -> CheckResult {
    let (response, pdu) = ask(aim, request(Stage::Operational, None), &said(aim, "X-io.blockyard.conform=1\0"))?;
    admitted(&response)?;
    let text = String::from_utf8_lossy(&pdu.data).into_owned();
    ensure(text.contains("X-io.blockyard.conform=NotUnderstood"), || format!("it answered {text:?}"))
}

/// Checks that TargetPortalGroupTag comes with the first response to a login that names a target.
pub(super) fn portal_group(aim: &TestTarget) -> CheckResult {
    let (response, pdu) = ask(aim, request(Stage::Operational, None), &said(aim, ""))?;
    admitted(&response)?;
    let text = String::from_utf8_lossy(&pdu.data).into_owned();
    let tag = text.split('\0').find_map(|pair| pair.strip_prefix("TargetPortalGroupTag="));
    // A number may also be a hexadecimal constant (RFC 7143 §6.1).
    let is_tag = tag.and_then(number).is_some_and(|tag| tag <= u64::from(u16::MAX));
    ensure(is_tag, || format!("it answered {text:?}"))
}

/// Checks that the MaxRecvDataSegmentLength that the target declares is in the range of the key.
pub(super) fn declared_length(aim: &TestTarget) -> CheckResult {
    let text = said(aim, "MaxRecvDataSegmentLength=65536\0HeaderDigest=None\0");
    let (response, pdu) = ask(aim, request(Stage::Operational, Some(Stage::FullFeature)), &text)?;
    admitted(&response)?;
    let text = String::from_utf8_lossy(&pdu.data).into_owned();
    match text.split('\0').find_map(|pair| pair.strip_prefix("MaxRecvDataSegmentLength=")) {
        None => Err(Finding::Untried("it does not declare it in its first response".to_owned())),
        Some(told) => ensure(number(told).is_some_and(|bytes| (512..1 << 24).contains(&bytes)), || {
            format!("it declares MaxRecvDataSegmentLength={told}, and 512 to 16777215 is the range")
        }),
    }
}

pub(super) fn key_twice(aim: &TestTarget) -> CheckResult {
    let text = said(aim, "MaxBurstLength=65536\0MaxBurstLength=32768\0");
    refused(aim, request(Stage::Operational, None), &text, &[LoginStatus::InitiatorError])
}

pub(super) fn stage_skipped(aim: &TestTarget) -> CheckResult {
    let mut wire = Wire::connect(aim)?;
    let text = said(aim, "");
    let mut header = emitted(&request(Stage::Operational, None), text.len());
    // CSG 3 is full feature phase, which is not a stage of a login.
    header[1] = header[1] & !0x0c | 0x0c;
    wire.send(&header, &text);
    match wire.listen(aim.patience)? {
        // Closing the connection without a response is a refusal as well.
        Received::Closed => Ok(()),
        Received::Silence => Err(Finding::Wrong("it says nothing and keeps the connection".to_owned())),
        Received::Pdu(pdu) => match pdu.parse()? {
            TargetPdu::Login(response) => ensure(response.status != LoginStatus::Success, || "it let us in".to_owned()),
            other => Err(Finding::Wrong(format!("it said {other:?}"))),
        },
    }
}

pub(super) fn version(aim: &TestTarget) -> CheckResult {
    let newer = LoginRequest { version_min: 0x7f, version_max: 0x7f, ..request(Stage::Operational, None) };
    refused(aim, newer, &said(aim, ""), &[LoginStatus::UnsupportedVersion])
}

pub(super) fn unknown_target(aim: &TestTarget) -> CheckResult {
    let nobody = IscsiName::parse("iqn.2026-11.io.blockyard:there-is-no-such-target").expect("a name");
    let entered = Session::enter(&TestTarget { target: nobody, ..aim.clone() }, |_| {})?;
    // A target may hide from an unauthorized initiator whether the name exists.
    met(entered, &[LoginStatus::NotFound, LoginStatus::AuthorizationFailure])
}

pub(super) fn unknown_session(aim: &TestTarget) -> CheckResult {
    let entered = Session::enter(aim, |config| config.tsih = Tsih(0xfffe))?;
    met(entered, &[LoginStatus::SessionDoesNotExist])
}

pub(super) fn command_first(aim: &TestTarget) -> CheckResult {
    let mut wire = Wire::connect(aim)?;
    // A SCSI Command with F and R: an INQUIRY of 36 bytes.
    let mut inquiry: Bhs = [0; 48];
    (inquiry[0], inquiry[1], inquiry[23]) = (0x01, 0xc0, 36);
    (inquiry[32], inquiry[36]) = (0x12, 36);
    wire.send(&inquiry, &[]);
    // A response that refuses the command may precede the end of the connection.
    loop {
        match wire.listen(aim.patience)? {
            Received::Closed => return Ok(()),
            Received::Silence => return Err(Finding::Wrong("it keeps the connection".to_owned())),
            Received::Pdu(pdu) => match pdu.parse()? {
                TargetPdu::DataIn(_) | TargetPdu::ScsiResponse(_) => {
                    return Err(Finding::Wrong("it carried out a command of nobody".to_owned()));
                }
                _ => {}
            },
        }
    }
}

pub(super) fn long_segment(aim: &TestTarget) -> CheckResult {
    let mut wire = Wire::connect(aim)?;
    // The header announces 16 MiB, and no data follows.
    wire.send_bytes(&emitted(&request(Stage::Operational, None), 0x00ff_fffc));
    let closed = wire.is_closed()?;
    ensure(closed, || "it waits for 16 MiB of somebody that has proven nothing".to_owned())
}

pub(super) fn text_in_parts(aim: &TestTarget) -> CheckResult {
    needs_no_proof(aim)?;
    let mut wire = Wire::connect(aim)?;
    let text = said(aim, "MaxBurstLength=65536\0HeaderDigest=None\0");
    // The cut may be anywhere, also within a key: only the joined text is to be parsed.
    let (first, second) = text.split_at(text.len() / 2);
    let begun = request(Stage::Operational, None);
    let continued = LoginRequest { transit: Transit { continues: true, ..begun.transit }, ..begun };
    wire.send(&emitted(&continued, first.len()), first);
    let empty = wire.expect()?;
    let TargetPdu::Login(response) = empty.parse()? else { return Err(Finding::Wrong("no Login Response".to_owned())) };
    admitted(&response)?;
    // RFC 7143 §6.2: while C is set, the target answers with an empty PDU and does not transit.
    ensure(empty.data.is_empty() && response.transit.next.is_none(), || {
        "it answered before the text was whole".to_owned()
    })?;
    let rest = LoginRequest { exp_stat_sn: response.stat_sn.next(), ..begun };
    wire.send(&emitted(&rest, second.len()), second);
    let whole = wire.expect()?;
    let text = String::from_utf8_lossy(&whole.data).into_owned();
    ensure(text.contains("MaxBurstLength=65536"), || format!("it answered {text:?}"))
}

/// Builds a login request in stage `current` that asks for a transit to `next`.
fn request(current: Stage, next: Option<Stage>) -> LoginRequest {
    LoginRequest::leading(Isid([0x80, 0, 0, 0, 0, 0x77]), Transit { current, next, continues: false })
}

fn emitted(request: &LoginRequest, text_bytes: usize) -> Bhs {
    let mut header = [0; 48];
    request.emit(SegmentLengths::data(text_bytes), &mut header);
    header
}

/// Builds the login text: names and session type, followed by `more`.
fn said(aim: &TestTarget, more: &str) -> Vec<u8> {
    let (initiator, target) = (aim.initiator.as_str(), aim.target.as_str());
    format!("InitiatorName={initiator}\0SessionType=Normal\0TargetName={target}\0{more}").into_bytes()
}

fn needs_no_proof(aim: &TestTarget) -> CheckResult {
    // The fixed requests have no security stage, which a target with CHAP requires.
    match aim.auth {
        InitiatorAuth::None => Ok(()),
        _ => Err(Finding::Untried("it is tried without CHAP only".to_owned())),
    }
}

/// Sends the first request of a login and returns the response.
fn ask(aim: &TestTarget, request: LoginRequest, text: &[u8]) -> CheckResult<(LoginResponse, Pdu)> {
    needs_no_proof(aim)?;
    let mut wire = Wire::connect(aim)?;
    wire.send(&emitted(&request, text.len()), text);
    let pdu = wire.expect()?;
    match pdu.parse()? {
        TargetPdu::Login(response) => Ok((response, pdu)),
        other => Err(Finding::Wrong(format!("a Login Response was due, and it said {other:?}"))),
    }
}

fn admitted(response: &LoginResponse) -> CheckResult {
    match response.status {
        LoginStatus::Success => Ok(()),
        status => Err(Finding::Untried(format!("the login was refused: {status}"))),
    }
}

/// Checks that the target refuses the request with one of these statuses.
fn refused(aim: &TestTarget, request: LoginRequest, text: &[u8], with: &[LoginStatus]) -> CheckResult {
    let (response, _) = ask(aim, request, text)?;
    ensure(with.contains(&response.status), || format!("its status is {}", response.status))
}

fn met(entered: LoginOutcome, with: &[LoginStatus]) -> CheckResult {
    match entered {
        LoginOutcome::In(_) => Err(Finding::Wrong("it let us in".to_owned())),
        LoginOutcome::Closed => Err(Finding::Wrong("it closed the connection without a word".to_owned())),
        LoginOutcome::Refused(status) => ensure(with.contains(&status), || format!("its status is {status}")),
    }
}
