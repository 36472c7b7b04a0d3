//! Texts that come in several PDUs.

use crate::fault::{PduAction, ProxyState, allowed};
use crate::pdu::{CONTINUE, Pdu, TEXT_REQUEST, TEXT_RESPONSE, TRANSFER_TAG};
use crate::{portal, proxy, target};
use conform::{Discovered, discover};
use iscsi::IscsiName;

/// Target Transfer Tag of a text of which a part is still to come.
pub(crate) const PART: u32 = 0x70_61_72_74;

/// Replaces the request for the next part by the first request once more, because the target knows no parts.
pub(crate) fn ask_again(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    if pdu.opcode() != TEXT_REQUEST {
        return PduAction::Pass;
    }
    if pdu.word(TRANSFER_TAG) != PART {
        seen.kept = Some(pdu.clone());
    } else if let Some(first) = &seen.kept {
        pdu.put(TRANSFER_TAG, u32::MAX);
        pdu.data.clone_from(&first.data);
    }
    PduAction::Pass
}

/// Sends the first half of a text, and the second half when the initiator asks for it.
fn in_halves(pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    if pdu.opcode() != TEXT_RESPONSE {
        return PduAction::Pass;
    }
    let half = pdu.data.len() / 2;
    if seen.is_nth(0) {
        pdu.data.truncate(half);
        pdu.header[1] = CONTINUE;
        pdu.put(TRANSFER_TAG, PART);
    } else {
        pdu.data.drain(..half);
    }
    PduAction::Pass
}

#[test]
fn list_of_targets_that_comes_in_parts_is_read_to_its_end() {
    let initiator = IscsiName::parse("iqn.2026-11.io.blockyard:discovers").expect("a name");
    let whole = discover(&portal().to_string(), &initiator);
    let expected = Discovered { name: target::IQN.to_owned(), addresses: vec![portal().to_string()] };
    assert_eq!(whole, Ok(vec![expected]));
    let parts = allowed("a list in two parts", Some(in_halves)).reading(ask_again);
    assert_eq!(discover(&proxy::start(portal(), parts).to_string(), &initiator), whole);
}
