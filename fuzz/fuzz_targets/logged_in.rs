//! Both connections in full feature phase, after a real login over their public interface.

use iscsi::login::{Grant, InitiatorConfig};
use iscsi::pdu::{Cid, Tsih};
use iscsi::target::{Event, Gate, OpenGate};
use iscsi::{SendSlices, IscsiName, Offer, initiator, target};
use shard::Time;
use std::rc::Rc;

const NOW: Time = Time(0);

/// Returns the default offer of both sides: error recovery, and a second connection.
pub fn offer() -> Offer {
    Offer { connections_max: 2, error_recovery_level: 2, ..Offer::default() }
}

pub fn pair(offer: &Offer) -> (target::Session, initiator::Connection) {
    login(offer, Tsih(0), Cid(0))
}

/// Returns a session of two connections, the second in slot 1.
pub fn session(offer: &Offer) -> target::Session {
    let (mut target, _) = pair(offer);
    assert_eq!(join(&mut target, offer, Cid(1), NOW), Some(1));
    target
}

/// Logs in another connection of the session; returns its slot.
pub fn join(target: &mut target::Session, offer: &Offer, cid: Cid, now: Time) -> Option<usize> {
    let (mut joining, _) = login(offer, Tsih(1), cid);
    let joining = joining.take_joining().expect("it logged in to a session that is there");
    target.join(&joining, now)
}

fn login(offer: &Offer, tsih: Tsih, cid: Cid) -> (target::Session, initiator::Connection) {
    let name = |text: &str| IscsiName::parse(text).expect("a name");
    let mut login = InitiatorConfig::new(name("iqn.2026-01.test:host"), Some(name("iqn.2026-01.test:disk")));
    (login.tsih, login.cid) = (tsih, cid);
    login.offer = offer.clone();
    let mut initiator = initiator::Connection::new(Rc::new(initiator::Config::new(login)), [1; 32], NOW);
    let mut config = target::Config { commands_max: 8, data_out_bytes_max: 1 << 20, ..target::Config::default() };
    config.login.offer = offer.clone();
    let mut target = target::Session::new(Rc::new(config), [2; 32], NOW);
    while initiator.wants_to_send() || target.wants_to_send(0) {
        let bytes = drain_initiator(&mut initiator);
        feed_target(&mut target, 0, &bytes);
        while let Some(event) = target.poll_event() {
            match event {
                Event::Login(_) => {
                    let auth = iscsi::chap::Auth::None;
                    target.grant(Grant { auth, portal_group_tag: 1, target_alias: None }, NOW);
                }
                Event::Authenticated => target.assign_session(Ok(Tsih(1)), NOW),
                _ => {}
            }
        }
        let bytes = drain_target(&mut target, 0);
        feed_initiator(&mut initiator, &bytes);
    }
    (target, initiator)
}

/// Takes the output of the target.
pub fn drain_target(target: &mut target::Session, slot: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while target.wants_to_send(slot) {
        let mut slices = SendSlices::new();
        target.gather(slot, &mut slices);
        let before = all.len();
        slices.iter().for_each(|slice| all.extend_from_slice(slice));
        drop(slices);
        target.handle_transmitted(slot, all.len() - before);
    }
    all
}

/// Takes the output of the initiator.
pub fn drain_initiator(initiator: &mut initiator::Connection) -> Vec<u8> {
    let mut all = Vec::new();
    while initiator.wants_to_send() {
        let mut slices = SendSlices::new();
        initiator.gather(&mut slices);
        let before = all.len();
        slices.iter().for_each(|slice| all.extend_from_slice(slice));
        drop(slices);
        initiator.handle_transmitted(all.len() - before);
    }
    all
}

pub fn feed_target(target: &mut target::Session, slot: usize, bytes: &[u8]) {
    feed_through(target, slot, bytes, NOW, &mut OpenGate);
}

pub fn feed_through(target: &mut target::Session, slot: usize, mut bytes: &[u8], now: Time, gate: &mut impl Gate) {
    while !bytes.is_empty() {
        let space = target.receive_into(slot);
        let len = space.len().min(bytes.len());
        if len == 0 {
            return;
        }
        space[..len].copy_from_slice(&bytes[..len]);
        target.handle_received(slot, len, now, gate);
        bytes = &bytes[len..];
    }
}

pub fn feed_initiator(initiator: &mut initiator::Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let space = initiator.receive_into();
        let len = space.len().min(bytes.len());
        if len == 0 {
            return;
        }
        space[..len].copy_from_slice(&bytes[..len]);
        initiator.handle_received(len, NOW);
        bytes = &bytes[len..];
    }
}
