//! iSCSI initiator with one session over TCP, for tests of the real daemon: one command at a time.

use crate::serve::{cell, good};
use block::Buf;
use iscsi::initiator::{Command, Config, Connection, DataIn, Event};
use iscsi::login::InitiatorConfig;
use iscsi::pdu::{Lun, TaskAttribute};
use iscsi::{IscsiName, SendSlices};
use shard::Time;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Sense key, additional sense code and qualifier.
pub(crate) type Triple = (u8, u8, u8);
/// Sense of a write to a write-protected unit.
///
/// *Source*: SBC-4 §4.12.
pub(crate) const WRITE_PROTECTED: Triple = (7, 0x27, 0);
const NAME: &str = "iqn.2026-11.io.blockyard:client";
const UNIT_ATTENTION: u8 = 6;
const BLOCK_BYTES: usize = 512;

/// Session in full feature phase with commands to LUN 0.
pub(crate) struct Initiator {
    machine: Connection,
    stream: TcpStream,
    begun: Instant,
}

/// Presents `tank/v` to the host of [`Initiator`] as LUN 0.
pub(crate) fn present(dir: &Path) {
    good(dir, &format!("host add client --initiator {NAME}"));
    good(dir, "present tank/v client --lun 0");
}

impl Initiator {
    /// Logs in to the daemon of the folder without authentication, and waits until the unit is ready.
    pub(crate) fn login(dir: &Path) -> Self {
        Self::login_at(dir, &cell(dir, "portal", 0))
    }

    /// Logs in like [`Initiator::login`], through this portal.
    pub(crate) fn login_at(dir: &Path, portal: &str) -> Self {
        let target = cell(dir, "target", 1);
        let name = |text: &str| IscsiName::parse(text).expect("an iSCSI name");
        let config = Config::new(InitiatorConfig::new(name(NAME), Some(name(&target))));
        let stream = TcpStream::connect(portal).expect("the portal is open");
        stream.set_nodelay(true).expect("an open socket");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("an open socket");
        let machine = Connection::new(Rc::new(config), [7; 32], Time(0));
        let mut session = Self { machine, stream, begun: Instant::now() };
        match session.next() {
            Event::FullFeature(_) => {}
            other => panic!("the login came to {other:?}"),
        }
        // Each new nexus has unit attentions pending.
        while let Err((key, ..)) = session.ask(&[0; 6], 0) {
            assert_eq!(key, UNIT_ATTENTION, "the unit is not ready");
        }
        session
    }

    /// Sets the timeout of further responses.
    pub(crate) fn be_patient(&mut self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("an open socket");
    }

    /// Reads blocks by READ (16).
    pub(crate) fn read(&mut self, block: u64, blocks: u32) -> Result<Vec<u8>, Triple> {
        self.ask(&transfer(0x88, block, blocks), blocks as usize * BLOCK_BYTES)
    }

    /// Writes blocks filled with `fill` by WRITE (16).
    pub(crate) fn write(&mut self, block: u64, blocks: u32, fill: u8) -> Result<(), Triple> {
        let data = Buf::copy_of(&vec![fill; blocks as usize * BLOCK_BYTES]);
        self.command(&transfer(0x8a, block, blocks), Some(data), DataIn::None).map(|_| ())
    }

    /// Returns true if MODE SENSE (6) reports WP in the device-specific parameter.
    ///
    /// *Source*: SPC-4 §7.5.5, SBC-4 §6.5.1.
    pub(crate) fn is_write_protected(&mut self) -> bool {
        let header = self.ask(&[0x1a, 0, 0x3f, 0, 192, 0], 192).expect("MODE SENSE succeeds");
        header[2] & 0x80 != 0
    }

    /// Sends a command without data out, and returns its data of at most `bytes_max` bytes.
    fn ask(&mut self, cdb: &[u8], bytes_max: usize) -> Result<Vec<u8>, Triple> {
        let data_in = if bytes_max == 0 { DataIn::None } else { DataIn::Into(Buf::zeroed(bytes_max)) };
        self.command(cdb, None, data_in)
    }

    fn command(&mut self, cdb: &[u8], data_out: Option<Buf>, data_in: DataIn) -> Result<Vec<u8>, Triple> {
        let command = Command {
            lun: Lun(0),
            cdb: cdb.iter().copied().collect(),
            attribute: TaskAttribute::Simple,
            data_out: data_out.map(Into::into),
            data_in,
        };
        let task = self.machine.submit(command).expect("the session is open");
        match self.next() {
            Event::Completed(done) if done.task == task && done.status == 0 => {
                Ok(done.data_in.map(|data| data.to_vec()).unwrap_or_default())
            }
            Event::Completed(done) if done.task == task && done.status == 2 => {
                Err(scsi::ParsedSense::parse(&done.sense).expect("a CHECK CONDITION has sense data").triple())
            }
            other => panic!("{cdb:x?} was answered with {other:?}"),
        }
    }

    fn next(&mut self) -> Event {
        loop {
            while self.machine.wants_to_send() {
                let mut slices = SendSlices::new();
                self.machine.gather(&mut slices);
                let sent = self.stream.write_vectored(&slices).expect("the target takes it");
                drop(slices);
                self.machine.handle_transmitted(sent);
            }
            if let Some(event) = self.machine.poll_event() {
                return event;
            }
            let now = Time(self.begun.elapsed().as_nanos() as u64);
            match self.stream.read(self.machine.receive_into()).expect("the target answers in time") {
                0 => self.machine.handle_peer_closed(),
                len => self.machine.handle_received(len, now),
            }
        }
    }
}

/// Builds a READ (16) or WRITE (16).
fn transfer(code: u8, block: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = code;
    cdb[2..10].copy_from_slice(&block.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
