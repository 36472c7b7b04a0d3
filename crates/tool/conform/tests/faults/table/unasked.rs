//! Faults of what a target does on its own: pings, logout requests, redirected logins.

use crate::fault::{Fault, PduAction, Pings, ProxyState, Says, answer, only, unasked};
use crate::pdu::{FINAL, LOGIN_RESPONSE, LOGOUT_RESPONSE, Pdu};
use crate::portal;
use std::net::SocketAddr;

const ASKS_TO_LEAVE: Says = Says::AsksToLeave { within_s: 9, ends_after_ms: None };

/// Redirects a login to `to`.
fn elsewhere(pdu: &mut Pdu, to: SocketAddr) -> PduAction {
    let is_login = pdu.opcode() == LOGIN_RESPONSE;
    only(is_login, || {
        // Neither transit nor continue, and TSIH zero.
        pdu.header[1] &= !(FINAL | 0x43);
        pdu.header[14..16].fill(0);
        // Status TARGET MOVED TEMPORARILY.
        (pdu.header[36], pdu.header[37]) = (1, 1);
        pdu.data = format!("TargetAddress={to},1\0").into_bytes();
    })
}

/// Behavior that no rule forbids, and the check that must not report it.
pub(crate) const SOUND: &[Fault] = &[
    unasked("pings", "messages.ping", "", Says::Pings(Pings::Answerable)),
    unasked("a logout that is asked for", "messages.logout-asked", "", ASKS_TO_LEAVE),
    unasked(
        "a logout that is asked for and overdue",
        "messages.logout-overdue",
        "",
        Says::AsksToLeave { within_s: 2, ends_after_ms: Some(2_500) },
    ),
    answer("a login that is sent elsewhere", "login.redirect", "", |pdu, _| elsewhere(pdu, portal())),
];

pub(super) const FAULTS: &[Fault] = &[
    answer(
        "logins are sent back",
        "login.redirect",
        "from portal to portal without end",
        |pdu, seen: &mut ProxyState| {
            let own = seen.own.expect("it listens");
            elsewhere(pdu, own)
        },
    ),
    unasked("a ping with data", "messages.ping", "has data", Says::Pings(Pings::WithData)),
    unasked(
        "a ping that is answered and ends the connection",
        "messages.ping",
        "it closed the connection after 1 answered pings",
        Says::Pings(Pings::EndingAllTheSame),
    ),
    answer("a logout that was asked for fails", "messages.logout-asked", "it answered", |pdu, _| {
        let is_logout = pdu.opcode() == LOGOUT_RESPONSE;
        only(is_logout, || pdu.header[2] = 3)
    })
    .saying(ASKS_TO_LEAVE),
    unasked(
        "a connection outlives the logout that it asked for",
        "messages.logout-asked",
        "it keeps the connection",
        ASKS_TO_LEAVE,
    )
    .keeping_open(),
    unasked(
        "a logout that is overdue is waited for",
        "messages.logout-overdue",
        "it keeps the connection",
        Says::AsksToLeave { within_s: 1, ends_after_ms: None },
    ),
    unasked(
        "a logout that is asked for is not waited for",
        "messages.logout-overdue",
        "and it closed after",
        Says::AsksToLeave { within_s: 9, ends_after_ms: Some(100) },
    ),
];
