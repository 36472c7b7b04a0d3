//! Units used by other hosts are not written to without permission.

use crate::{Stage, brief, means};
use block::{Buf, Rope};
use iscsi::initiator::{Command, Config, Connection, DataIn, Event};
use iscsi::login::InitiatorConfig;
use iscsi::pdu::{Lun, TaskAttribute};
use iscsi::{IscsiName, SendSlices};
use lab::drive::Transport;
use lab::measure::once;
use lab::peer::{Given, TestResources};
use lab::point::{Peer, Point};
use lab::target::Unit;
use shard::Time;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;

const REGISTER_AND_IGNORE: u8 = 6;
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
const KEY: u64 = 0x6b65_7900;

/// Another host that is logged in to the unit.
struct Host {
    socket: TcpStream,
    machine: Connection,
}

impl Host {
    fn log_in(unit: &Unit) -> Self {
        let name = |text: &str| IscsiName::parse(text).expect("a name");
        let login = InitiatorConfig::new(name("iqn.2026-11.io.blockyard:another"), Some(name(&unit.iqn)));
        let machine = Connection::new(Rc::new(Config::new(login)), [7; 32], Time(0));
        let mut host = Self { socket: TcpStream::connect(unit.portal).expect("it listens"), machine };
        assert!(matches!(host.next(), Event::FullFeature(_)));
        host
    }

    fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return event;
            }
            let mut slices = SendSlices::new();
            self.machine.gather(&mut slices);
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            drop(slices);
            self.socket.write_all(&bytes).expect("it listens");
            self.machine.handle_transmitted(bytes.len());
            if !self.machine.wants_to_send() {
                let len = self.socket.read(self.machine.receive_into()).expect("it answers");
                self.machine.handle_received(len, Time(0));
            }
        }
    }

    /// Sends PERSISTENT RESERVE OUT, after clearing unit attentions.
    fn reserve(&mut self, action: u8, kind: u8, key: u64, action_key: u64) {
        let list = [&key.to_be_bytes()[..], &action_key.to_be_bytes(), &[0; 8]].concat();
        let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
        for _ in 0..4 {
            let data_out = Some(Rope::from(Buf::copy_of(&list)));
            let (attribute, data_in) = (TaskAttribute::Simple, DataIn::None);
            let command = Command { lun: Lun(0), cdb: cdb.into_iter().collect(), attribute, data_out, data_in };
            self.machine.submit(command).expect("there is room");
            match self.next() {
                Event::Completed(done) if done.status == 0 => return,
                Event::Completed(_) => {}
                other => panic!("heard {other:?}"),
            }
        }
        panic!("the reservation is refused");
    }
}

/// Returns the result of writes to the unit.
fn written(unit: &Unit, overwrite: bool) -> Result<u64, String> {
    let initiator = IscsiName::parse("iqn.2026-11.io.blockyard:lab").expect("a name");
    let given = Given { unit: unit.clone(), initiator, auth: iscsi::login::InitiatorAuth::None };
    let means = TestResources { given: vec![given], overwrite, ..means() };
    let point = Point { peer: Peer::Given, reads: 0, ..brief() };
    once(&point, &means, 1).map(|sample| sample.writes.commands).map_err(|error| format!("{error:#}"))
}

#[test]
fn unit_that_hosts_have_registered_with_is_not_written_to_unless_told() {
    let stage = Stage::of(brief());
    let Transport::Iscsi(logins) = &stage.serving.way else { panic!("it is a target") };
    let (login, lun) = (&logins[0], 0);
    let unit = Unit { portal: login.portal, iqn: login.target.as_str().to_owned(), lun };
    let mut host = Host::log_in(&unit);
    host.reserve(REGISTER_AND_IGNORE, 0, 0, KEY);
    let said = written(&unit, false).expect_err("it is in use");
    let told = "unit 0 has 1 registered key, 0x000000006b657900; with --overwrite it is written over";
    assert_eq!(said, told);
    // No other host may read the data, but every host may query the reservation.
    host.reserve(RESERVE, 3, KEY, 0);
    let said = written(&unit, false).expect_err("it is in use");
    assert!(said.contains("is reserved for 0x000000006b657900 (Exclusive Access)"), "{said}");
    host.reserve(CLEAR, 0, KEY, 0);
    assert!(written(&unit, false).is_ok_and(|commands| commands > 0), "nobody uses it, and it is empty");
    host.reserve(REGISTER_AND_IGNORE, 0, 0, KEY);
    assert!(written(&unit, true).is_ok_and(|commands| commands > 0), "it was told to");
}
