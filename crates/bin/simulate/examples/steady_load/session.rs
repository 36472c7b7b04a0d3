//! Session of the project's own initiator that keeps a fixed number of commands outstanding.

use crate::array::{BLOCK_BYTES, TARGET, UNIT_BYTES};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use block::{Buf, Rope};
use iscsi::initiator::{Command, Completion, Config, Connection, DataIn, Event};
use iscsi::login::InitiatorConfig;
use iscsi::pdu::{Isid, Lun, TaskAttribute};
use iscsi::{DigestOffer, IscsiName, SendSlices};
use shard::{Stream, StreamOptions, World};
use sim::{Sim, SimStream};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8A;
const CHECK_CONDITION: u8 = 2;

/// Workload of a session.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Number of commands.
    pub commands: u64,
    /// Outstanding commands.
    pub depth: u64,
    /// Length of each command in bytes.
    pub bytes: u32,
    /// Commands are writes.
    pub writes: bool,
    /// Unit of the first command.
    pub lun: u64,
    /// Distance between the units of consecutive commands.
    pub lun_step: u64,
    /// Number of units.
    pub luns: u64,
}

/// Session in full feature phase.
pub(crate) struct Session {
    machine: Connection,
    stream: SimStream,
    world: Sim,
    /// Number of the session, from 0 on.
    number: u16,
    /// Data of the writes.
    data: Rope,
    /// Commands sent so far.
    sent: u64,
    unit_attentions: u64,
}

impl Session {
    /// Logs in as session `number`, with both digests or none.
    pub(crate) async fn log_in(world: &Sim, portal: SocketAddr, number: u16, digests: bool) -> Result<Self> {
        let name = |text: &str| IscsiName::parse(text).context("this is no iSCSI name");
        let mut login = InitiatorConfig::new(name("iqn.2026-11.io.blockyard:load")?, Some(name(TARGET)?));
        let [high, low] = number.to_be_bytes();
        login.isid = Isid([0x80, 0, 0, 0, high, low]);
        let digest = if digests { DigestOffer::Required } else { DigestOffer::Never };
        (login.offer.header_digest, login.offer.data_digest) = (digest, digest);
        let mut seed = [0; 32];
        world.random(&mut seed);
        let machine = Connection::new(Rc::new(Config::new(login)), seed, world.now());
        let stream = world.connect(portal, StreamOptions::default()).await?;
        let (world, data) = (world.clone(), Rope::new());
        let mut session = Self { machine, stream, world, number, data, sent: 0, unit_attentions: 0 };
        match session.next().await? {
            Event::FullFeature(_) => Ok(session),
            other => bail!("the login came to {other:?}"),
        }
    }

    /// Runs the workload; every command must end GOOD or with a unit attention.
    pub(crate) async fn run(&mut self, work: Work) -> Result<()> {
        let (mut sent, mut ended) = (0, 0);
        if self.data.len() != work.bytes as usize {
            self.data = Rope::from(Buf::copy_of(&vec![0x5A; work.bytes as usize]));
        }
        while ended < work.commands {
            while sent < work.commands && sent - ended < work.depth {
                let lun = (work.lun + sent * work.lun_step) % work.luns;
                self.submit(lun, &work)?;
                sent += 1;
            }
            match self.next().await? {
                Event::Completed(done) => self.judge(&done)?,
                other => bail!("heard {other:?} instead of an answer"),
            }
            ended += 1;
            // All completions are processed before new commands are sent, as a host driver does.
            while let Some(event) = self.machine.poll_event() {
                match event {
                    Event::Completed(done) => self.judge(&done)?,
                    other => bail!("heard {other:?} instead of an answer"),
                }
                ended += 1;
            }
        }
        Ok(())
    }

    /// Reads or writes each block of the unit once.
    pub(crate) async fn pass_over(&mut self, lun: u64, writes: bool) -> Result<()> {
        let bytes = 128 << 10;
        // One command more, since the unit attention of a new nexus takes the place of the first one.
        let commands = UNIT_BYTES / u64::from(bytes) + 1;
        // The step is zero, and `luns` exceeds the number of the unit, so every command goes to that unit.
        self.run(Work { commands, depth: 1, bytes, writes, lun, lun_step: 0, luns: lun + 1 }).await
    }

    /// Returns the number of the session.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Returns the number of commands that ended with a unit attention.
    pub(crate) fn unit_attentions(&self) -> u64 {
        self.unit_attentions
    }

    fn judge(&mut self, done: &Completion) -> Result<()> {
        if done.status == CHECK_CONDITION && scsi::ParsedSense::parse(&done.sense).is_some_and(|sense| sense.key == 6) {
            self.unit_attentions += 1;
            return Ok(());
        }
        ensure!(done.status == 0, "a command came to status {:#04x}, sense {:02x?}", done.status, done.sense);
        Ok(())
    }

    fn submit(&mut self, lun: u64, work: &Work) -> Result<()> {
        let places = UNIT_BYTES / u64::from(work.bytes);
        let blocks = work.bytes / BLOCK_BYTES;
        // Bit-reversed order: scattered, and each place is used once before any is reused. The number of places is a
        // power of two.
        let place = (self.sent % places).reverse_bits() >> (u64::BITS - places.ilog2());
        let lba = place * u64::from(blocks);
        self.sent += 1;
        let mut cdb = [0; 16];
        cdb[0] = if work.writes { WRITE_16 } else { READ_16 };
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        let (data_out, data_in) =
            if work.writes { (Some(self.data.clone()), DataIn::None) } else { (None, DataIn::Discard(work.bytes)) };
        let lun = Lun(scsi::Lun::of(u16::try_from(lun)?).0);
        let command = Command { lun, cdb: cdb.into(), attribute: TaskAttribute::Simple, data_out, data_in };
        self.machine.submit(command).map(drop).map_err(|_| anyhow!("the session takes no command"))
    }

    async fn next(&mut self) -> Result<Event> {
        poll_fn(|cx| {
            loop {
                if let Some(event) = self.machine.poll_event() {
                    return Poll::Ready(Ok(event));
                }
                match self.turn(cx) {
                    Ok(true) => {}
                    Ok(false) => return Poll::Pending,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        })
        .await
    }

    /// Sends pending data and receives once; false when neither made progress.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        let mut progress = false;
        while self.machine.wants_to_send() {
            let mut slices = SendSlices::new();
            self.machine.gather(&mut slices);
            let sent = self.stream.poll_write(cx, &slices);
            drop(slices);
            let Poll::Ready(sent) = sent else { break };
            self.machine.handle_transmitted(sent?);
            progress = true;
        }
        match self.stream.poll_read(cx, self.machine.receive_into()) {
            Poll::Pending => return Ok(progress),
            Poll::Ready(Ok(0)) => self.machine.handle_peer_closed(),
            Poll::Ready(len) => self.machine.handle_received(len?, self.world.now()),
        }
        Ok(true)
    }
}
