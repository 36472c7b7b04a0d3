//! Both connections in full feature phase, by a real login over their public interface.

use iscsi::login::{Grant, InitiatorConfig};
use iscsi::pdu::Tsih;
use iscsi::target::{Event, OpenGate};
use iscsi::{Gathered, IscsiName, initiator, target};
use shard::Time;
use std::rc::Rc;

const NOW: Time = Time(0);

pub fn pair() -> (target::Connection, initiator::Connection) {
    let name = |text: &str| IscsiName::parse(text).expect("a name");
    let login = InitiatorConfig::new(name("iqn.2026-01.test:host"), Some(name("iqn.2026-01.test:disk")));
    let mut initiator = initiator::Connection::new(Rc::new(initiator::Config::new(login)), [1; 32], NOW);
    let config = target::Config { commands_max: 8, data_out_bytes_max: 1 << 20, ..target::Config::default() };
    let mut target = target::Connection::new(Rc::new(config), [2; 32], NOW);
    while initiator.wants_to_send() || target.wants_to_send() {
        let bytes = drain_initiator(&mut initiator);
        feed_target(&mut target, &bytes);
        while let Some(event) = target.poll_event() {
            if let Event::Login(_) = event {
                let grant = Grant {
                    auth: iscsi::chap::Auth::None,
                    session: Ok(Tsih(1)),
                    portal_group_tag: 1,
                    target_alias: None,
                };
                target.grant(grant, NOW);
            }
        }
        let bytes = drain_target(&mut target);
        feed_initiator(&mut initiator, &bytes);
    }
    assert!(matches!(initiator.poll_event(), Some(initiator::Event::FullFeature(_))), "the login succeeds");
    (target, initiator)
}

/// What the target has to say; it has left.
pub fn drain_target(target: &mut target::Connection) -> Vec<u8> {
    let mut all = Vec::new();
    while target.wants_to_send() {
        let mut slices = Gathered::new();
        target.gather(&mut slices);
        let before = all.len();
        slices.iter().for_each(|slice| all.extend_from_slice(slice));
        drop(slices);
        target.handle_transmitted(all.len() - before);
    }
    all
}

/// What the initiator has to say; it has left.
pub fn drain_initiator(initiator: &mut initiator::Connection) -> Vec<u8> {
    let mut all = Vec::new();
    while initiator.wants_to_send() {
        let mut slices = Gathered::new();
        initiator.gather(&mut slices);
        let before = all.len();
        slices.iter().for_each(|slice| all.extend_from_slice(slice));
        drop(slices);
        initiator.handle_transmitted(all.len() - before);
    }
    all
}

pub fn feed_target(target: &mut target::Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let space = target.receive_into();
        let len = space.len().min(bytes.len());
        if len == 0 {
            return;
        }
        space[..len].copy_from_slice(&bytes[..len]);
        target.handle_received(len, NOW, &mut OpenGate);
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
