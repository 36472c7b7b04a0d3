//! Targets with unusual declarations: they are tested within what they declare, or not at all.

use crate::fault::{Fault, PduAction, allowed, only};
use crate::pdu::{COMMAND, DATA_IN, DATA_OUT, EXP_CMD_SN, LOGIN_REQUEST, LOGIN_RESPONSE, MAX_CMD_SN, Pdu};
use crate::{LUNS, LUNS_OF_HEXADECIMAL, LUNS_OF_LIMITS, LUNS_OF_UNTRIED, check_named, verdicts};
use conform::Verdict;
use std::ops::Range;
use std::time::Duration;

/// Lower bound of FirstBurstLength and MaxRecvDataSegmentLength (RFC 7143 §13.12, §13.14).
const SHORTEST: usize = 512;

/// Target that agrees to the shortest lengths and loses longer data segments.
const SHORT: Fault = allowed(
    "the shortest data segments",
    Some(|pdu, _| {
        if pdu.opcode() == LOGIN_RESPONSE {
            shorten(pdu, "MaxRecvDataSegmentLength");
        }
        PduAction::Pass
    }),
)
.reading(|pdu, _| {
    if pdu.opcode() == LOGIN_REQUEST {
        // In the request, so that the target itself agrees to it.
        shorten(pdu, "FirstBurstLength");
    }
    let is_long = matches!(pdu.opcode(), COMMAND | DATA_OUT) && pdu.data.len() > SHORTEST;
    if is_long { PduAction::Drop } else { PduAction::Pass }
});

/// Replaces the value of `key` in a login text, if it is there.
fn shorten(pdu: &mut Pdu, key: &str) {
    let shorter = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if name == key => format!("{key}={SHORTEST}"),
        _ => pair.to_owned(),
    };
    pdu.data = pdu.text().split('\0').map(shorter).collect::<Vec<_>>().join("\0").into_bytes();
}

/// Target that writes numbers as hexadecimal constants. Other numbers than before, but still in their ranges.
const HEXADECIMAL: Fault = allowed(
    "hexadecimal constants",
    Some(|pdu, _| {
        let is_login = pdu.opcode() == LOGIN_RESPONSE;
        only(is_login, || {
            for key in ["TargetPortalGroupTag=", "MaxRecvDataSegmentLength="] {
                pdu.replace(key, &format!("{key}0x"));
            }
        })
    }),
);

/// Unit whose blocks have 2 GiB, in both forms of READ CAPACITY.
const LONG_BLOCKS: Fault = allowed(
    "blocks of 2 GiB",
    Some(|pdu, seen| {
        let at = match seen.cdb(pdu) {
            [0x25, ..] => 4,
            [0x9e, 0x10, ..] => 8,
            _ => return PduAction::Pass,
        };
        let is_data = pdu.opcode() == DATA_IN;
        only(is_data, || pdu.data[at..at + 4].copy_from_slice(&0x8000_0000_u32.to_be_bytes()))
    }),
);

/// Target whose command window is closed whenever it answers.
const CLOSED_WINDOW: Fault = allowed(
    "a closed window",
    Some(|pdu, _| {
        let before = pdu.word(EXP_CMD_SN).wrapping_sub(1);
        pdu.put(MAX_CMD_SN, before);
        PduAction::Pass
    }),
);

/// Runs these checks against a target, and returns their verdicts.
fn judged(fault: &Fault, checks: &[&str], luns: Range<u16>) -> Vec<Verdict> {
    let tries: Vec<_> = checks.iter().map(|name| (fault, check_named(name))).collect();
    verdicts(&tries, Duration::from_secs(20), luns)
}

#[test]
fn target_with_the_shortest_lengths_gets_no_more_than_them() {
    let checks = ["writes.immediate", "writes.unsolicited", "writes.solicited"];
    let told = judged(&SHORT, &checks, LUNS_OF_LIMITS..LUNS_OF_UNTRIED);
    assert!(told.iter().all(|verdict| *verdict == Verdict::Passed), "{told:?}");
}

#[test]
fn number_in_hexadecimal_form_is_a_number() {
    let checks = ["login.portal-group", "login.declared-length"];
    let told = judged(&HEXADECIMAL, &checks, LUNS_OF_HEXADECIMAL..LUNS_OF_LIMITS);
    assert!(told.iter().all(|verdict| *verdict == Verdict::Passed), "{told:?}");
}

#[test]
fn target_outside_what_the_checks_can_use_is_not_blamed() {
    let untried = |fault: &Fault, checks: &[&str]| {
        let told = judged(fault, checks, LUNS_OF_UNTRIED..LUNS);
        assert!(told.iter().all(|verdict| matches!(verdict, Verdict::Skipped(_))), "{}: {told:?}", fault.name);
    };
    untried(&LONG_BLOCKS, &["writes.underflow", "blocks.read-beyond"]);
    untried(&CLOSED_WINDOW, &["numbers.order"]);
}
