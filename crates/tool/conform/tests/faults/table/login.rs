//! Faults of logins: headers, statuses and keys.

use crate::fault::{Fault, PduAction, Pings, Says, answer, only, open, request};
use crate::pdu::{COMMAND, LOGIN_REQUEST, LOGIN_RESPONSE, Pdu, TAG};

/// True for a Login Response that lets the login continue.
fn is_success(pdu: &Pdu) -> bool {
    pdu.opcode() == LOGIN_RESPONSE && pdu.header[36] == 0
}

/// Replaces text in a Login Response.
fn said(pdu: &mut Pdu, from: &str, to: &str) -> PduAction {
    let is_said = pdu.opcode() == LOGIN_RESPONSE;
    only(is_said, || pdu.replace(from, to))
}

fn asked(pdu: &mut Pdu, from: &str, to: &str) -> PduAction {
    let is_asked = pdu.opcode() == LOGIN_REQUEST;
    only(is_asked, || pdu.replace(from, to))
}

/// Replaces the status of a refused login.
fn refused_with(pdu: &mut Pdu, [class, detail]: [u8; 2]) -> PduAction {
    let is_refused = pdu.opcode() == LOGIN_RESPONSE && pdu.header[36] != 0;
    only(is_refused, || (pdu.header[36], pdu.header[37]) = (class, detail))
}

pub(super) const FAULTS: &[Fault] = &[
    answer("a session without a TSIH", "login.plain", "its login breaks a rule", |pdu, seen| {
        let is_last = is_success(pdu) && seen.is_in;
        only(is_last, || pdu.header[14..16].fill(0))
    }),
    answer("a Login Response with another ISID", "login.plain", "its login breaks a rule", |pdu, _| {
        let is_response = is_success(pdu);
        only(is_response, || pdu.header[13] ^= 1)
    }),
    answer("a Login Response with another tag", "login.plain", "its login breaks a rule", |pdu, _| {
        let is_response = is_success(pdu);
        only(is_response, || pdu.add(TAG, 1))
    }),
    answer("a version that nobody offered", "login.plain", "its login breaks a rule", |pdu, _| {
        let is_response = is_success(pdu);
        only(is_response, || pdu.header[3] = 1)
    }),
    answer("a stage that nobody asked for", "login.plain", "its", |pdu, seen| {
        let is_first = is_success(pdu) && !seen.is_in;
        only(is_first, || pdu.header[1] |= 0x83)
    }),
    answer("a digest that nobody offered", "login.all-keys", "its login breaks a rule", |pdu, _| {
        said(pdu, "HeaderDigest=None", "HeaderDigest=CRC64")
    }),
    answer("several R2Ts at once above level 0", "login.all-keys", "MaxOutstandingR2T is not 1", |pdu, _| {
        said(pdu, "MaxOutstandingR2T=1\0", "MaxOutstandingR2T=8\0")
    }),
    answer("MaxBurstLength above the offer", "data.bursts", "its login breaks a rule", |pdu, _| {
        said(pdu, "MaxBurstLength=16384", "MaxBurstLength=32768")
    }),
    answer(
        "a MaxRecvDataSegmentLength that there is not",
        "login.declared-length",
        "MaxRecvDataSegmentLength",
        |pdu, _| said(pdu, "MaxRecvDataSegmentLength=", "MaxRecvDataSegmentLength=9999"),
    ),
    answer("a key answered twice", "login.plain", "its login breaks a rule", |pdu, _| {
        said(pdu, "ErrorRecoveryLevel=0", "ErrorRecoveryLevel=0\0ErrorRecoveryLevel=0")
    }),
    answer("an ErrorRecoveryLevel that there is not", "recovery.agreed", "its login breaks a rule", |pdu, _| {
        said(pdu, "ErrorRecoveryLevel=2", "ErrorRecoveryLevel=3")
    }),
    answer("an unknown key that is rejected", "login.unknown-key", "conform=Reject", |pdu, _| {
        said(pdu, "NotUnderstood", "Reject")
    }),
    answer("no portal group", "login.portal-group", "it answered", |pdu, _| {
        said(pdu, "TargetPortalGroupTag=", "X-TargetPortalGroupTag=")
    }),
    request("a key that comes twice is taken", "login.key-twice", "its status is success", |pdu, _| {
        asked(pdu, "MaxBurstLength=32768\0", "")
    }),
    request("full feature phase for who skips the login", "login.stage-skipped", "it let us in", |pdu, _| {
        let skips = pdu.opcode() == LOGIN_REQUEST && pdu.header[1] & 0x0c == 0x0c;
        only(skips, || pdu.header[1] = pdu.header[1] & !0x0c | 0x04)
    }),
    request("a version that nobody speaks is taken", "login.version", "its status is success", |pdu, _| {
        let is_login = pdu.opcode() == LOGIN_REQUEST;
        only(is_login, || pdu.header[2..4].fill(0))
    }),
    answer("an unknown target is a target error", "login.unknown-target", "its status is", |pdu, _| {
        refused_with(pdu, [3, 0])
    }),
    answer("an unknown session is no such session type", "login.unknown-session", "its status is", |pdu, _| {
        refused_with(pdu, [2, 9])
    }),
    open("a command before the login keeps the connection", "login.command-first", "it keeps the connection"),
    open("a login PDU of 16 MiB is waited for", "login.long-segment", "it waits for 16 MiB"),
    answer("a part of a text is answered", "login.text-in-parts", "before the text was whole", |pdu, _| {
        let is_empty = is_success(pdu) && pdu.data.is_empty();
        only(is_empty, || pdu.data = b"MaxBurstLength=65536\0".to_vec())
    }),
    answer("no command is answered", "login.plain", "it said nothing", |pdu, _| {
        if pdu.ends() { PduAction::Drop } else { PduAction::Pass }
    }),
    answer("pings instead of answers", "login.plain", "it said nothing", |pdu, _| {
        if pdu.ends() { PduAction::Drop } else { PduAction::Pass }
    })
    .saying(Says::Pings(Pings::Unanswerable)),
    answer("a command is answered twice", "login.plain", "was due, and it said", |pdu, _| {
        if pdu.ends() { PduAction::Twice } else { PduAction::Pass }
    }),
    answer("a second connection is refused", "connections.join", "it refuses the connection", |pdu, seen| {
        let joins = is_success(pdu) && seen.pdus.contains(&(0, 0));
        only(joins, || (pdu.header[36], pdu.header[37]) = (3, 0))
    })
    .reading(|pdu, seen| {
        let joins = pdu.opcode() == LOGIN_REQUEST && pdu.header[14..16] != [0, 0];
        only(joins, || {
            seen.pdus.insert((0, 0));
        })
    }),
    answer("a session is joined under another ISID", "connections.stranger", "another ISID", |pdu, seen| {
        let is_strange = pdu.opcode() == LOGIN_RESPONSE && seen.count > 0;
        only(is_strange, || pdu.header[13] = 0x66)
    })
    .reading(|pdu, seen| {
        let is_strange = pdu.opcode() == LOGIN_REQUEST && pdu.header[13] == 0x66;
        only(is_strange, || {
            seen.count += 1;
            pdu.header[13] = 0x55;
        })
    }),
    open("a connection lives beside the one that took its place", "connections.reinstated", "lives on"),
    open("a session lives beside the one that took its place", "connections.session-reinstated", "lives on"),
    open("a connection outlives its logout", "requests.logout", "it keeps the connection"),
    request("a read is cut to a length of our own", "data.in-order", "8192 are taken", |pdu, _| {
        asked(pdu, "MaxRecvDataSegmentLength=8192", "MaxRecvDataSegmentLength=16384")
    }),
    request("commands of a joined connection do not wait", "connections.order", "nobody asked", |pdu, seen| {
        if pdu.opcode() == LOGIN_REQUEST && pdu.header[14..16] != [0, 0] {
            seen.count = 1;
        }
        let is_early = pdu.opcode() == COMMAND && seen.count == 1;
        only(is_early, || pdu.add(crate::pdu::CMD_SN, u32::MAX))
    }),
];
