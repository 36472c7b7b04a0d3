//! Project's own initiator on a plain socket, single-threaded: one gathered send and one receive per turn.

use anyhow::{Context, Result, bail, ensure};
use block::Rope;
use iscsi::initiator::{Command, Completion, Config, Connection, DataIn, Event};
use iscsi::login::{InitiatorAuth, InitiatorConfig};
use iscsi::pdu::{Isid, Lun, TaskAttribute};
use iscsi::{IscsiName, SendSlices, TaskId};
use lab::target::Unit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shard::Time;
use smallvec::SmallVec;
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const UNIT_ATTENTION: u8 = 6;
/// Timeout of a command.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Session with one logical unit.
#[derive(Debug)]
pub(crate) struct Client {
    socket: TcpStream,
    connection: Connection,
    begin: Instant,
    lun: Lun,
    /// Portal to which it is connected.
    pub portal: SocketAddr,
    /// Length of a logical block in bytes.
    pub block_bytes: u32,
    /// Number of blocks of the unit.
    pub blocks: u64,
}

/// Identity of an initiator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    /// Number that makes the initiator name and the ISID unique.
    pub number: u16,
    /// Source address; `None` lets the system choose.
    pub from: Option<Ipv4Addr>,
    /// Credentials that it presents.
    pub auth: InitiatorAuth,
}

impl Caller {
    /// Returns the iSCSI name of the initiator.
    pub(crate) fn name(&self) -> String {
        format!("iqn.2026-11.io.blockyard:xtask.client{}", self.number)
    }

    /// Connects to the portal with a non-blocking socket.
    pub(crate) fn connect(&self, portal: SocketAddr) -> Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(portal), Type::STREAM, None)?;
        if let Some(from) = self.from {
            socket.bind(&SocketAddr::from((from, 0)).into())?;
        }
        socket.connect_timeout(&portal.into(), Duration::from_secs(10))?;
        let socket = TcpStream::from(socket);
        // Otherwise a small command could wait for the acknowledgement of the one before (Nagle's algorithm).
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

impl Client {
    /// Logs in at the portal of the unit, follows redirects, and reads the capacity. `number` makes the initiator
    /// unique.
    pub(crate) fn log_in(unit: &Unit, number: u16) -> Result<Self> {
        Self::log_in_as(unit, &Caller { number, ..Caller::default() })
    }

    /// Logs in with the identity `caller`.
    pub(crate) fn log_in_as(unit: &Unit, caller: &Caller) -> Result<Self> {
        let mut portal = unit.portal;
        // Bounds the chain of redirects: two portals could refer to each other.
        for _ in 0..4 {
            let mut client = Self::start_login(unit, portal, caller)?;
            match client.await_full_feature()? {
                None => {
                    client.read_capacity()?;
                    return Ok(client);
                }
                Some(elsewhere) => portal = elsewhere.parse().with_context(|| format!("sent to \"{elsewhere}\""))?,
            }
        }
        bail!("we are sent from portal to portal")
    }

    /// Connects and starts a login, which continues with each [`Client::turn`].
    pub(crate) fn start_login(unit: &Unit, portal: SocketAddr, caller: &Caller) -> Result<Self> {
        let name = |text: &str| IscsiName::parse(text).with_context(|| format!("\"{text}\" is no iSCSI name"));
        let mut login = InitiatorConfig::new(name(&caller.name())?, Some(name(&unit.iqn)?));
        let [high, low] = caller.number.to_be_bytes();
        // ISID type 10b, random: the qualifier is the initiator's to choose (RFC 7143 §11.12.5).
        login.isid = Isid([0x80, 0, 0, 0, high, low]);
        login.auth = caller.auth.clone();
        let socket = caller.connect(portal)?;
        // The default of the machine may be tuned for long-distance links; without the module for cubic it stays in
        // effect.
        let _ = socket2::SockRef::from(&socket).set_tcp_congestion(b"cubic");
        // Protocol time of the connection starts at zero.
        let begin = Instant::now();
        let connection = Connection::new(Rc::new(Config::new(login)), random()?, Time(0));
        let lun = Lun(scsi::Lun::of(unit.lun).0);
        Ok(Self { socket, connection, begin, lun, portal, block_bytes: 0, blocks: 0 })
    }

    /// True once the connection has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.completion().is_err()
    }

    /// Submits a READ (16), which the next turn sends.
    pub(crate) fn read(&mut self, lba: u64, blocks: u32, data_in: DataIn) -> Result<TaskId> {
        self.submit(transfer_cdb(0x88, lba, blocks), None, data_in)
    }

    /// Submits a WRITE (16), which the next turn sends.
    pub(crate) fn write(&mut self, lba: u64, data: Rope) -> Result<TaskId> {
        let blocks = u32::try_from(data.len())? / self.block_bytes;
        self.submit(transfer_cdb(0x8a, lba, blocks), Some(data), DataIn::None)
    }

    /// Answers the requests of the target on all sessions, at this interval, until `is_over`.
    pub(crate) fn attend(
        clients: &mut [Self],
        every: Duration,
        mut is_over: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        while !is_over()? {
            Self::turn_due(clients)?;
            std::thread::sleep(every);
        }
        Ok(())
    }

    /// Runs a turn on every session with work to do.
    pub(crate) fn turn_due(clients: &mut [Self]) -> Result<()> {
        let due = Self::which_are_due(clients)?;
        clients.iter_mut().zip(due).filter(|(_, due)| *due).try_for_each(|(client, _)| client.turn(Duration::ZERO))
    }

    /// Returns for each session whether it has data to receive or to send; one system call covers all of them.
    pub(crate) fn which_are_due(clients: &[Self]) -> Result<Vec<bool>> {
        let wants_to_send = clients.iter().map(|client| client.connection.wants_to_send());
        let mut looks: Vec<_> = clients.iter().map(|client| PollFd::new(&client.socket, PollFlags::IN)).collect();
        look(&mut looks, Duration::ZERO)?;
        Ok(wants_to_send.zip(&looks).map(|(wants, look)| wants || !look.revents().is_empty()).collect())
    }

    /// Sends pending data and receives once; waits for data for at most `limit`.
    pub(crate) fn turn(&mut self, limit: Duration) -> Result<()> {
        self.send()?;
        // Tried before a wait: under load most turns find data and save the call of `poll`.
        if self.receive()? {
            return Ok(());
        }
        // With data left to send, space in the socket is awaited as well.
        let interest = if self.connection.wants_to_send() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        look(&mut [PollFd::new(&self.socket, interest)], limit)?;
        self.receive()?;
        Ok(())
    }

    /// Returns the next completed command, if there is one.
    pub(crate) fn completion(&mut self) -> Result<Option<Completion>> {
        loop {
            match self.connection.poll_event() {
                Some(Event::Completed(completion)) => return Ok(Some(completion)),
                Some(Event::Closed(reason)) => bail!("the connection is over: {reason:?}"),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Runs turns until a command has completed.
    pub(crate) fn await_completion(&mut self) -> Result<Completion> {
        let until = Instant::now() + ANSWER_LIMIT;
        loop {
            if let Some(completion) = self.completion()? {
                return Ok(completion);
            }
            ensure!(Instant::now() < until, "no command ended within {ANSWER_LIMIT:?}");
            self.turn(Duration::from_secs(1))?;
        }
    }

    /// Executes a single command; `lun` selects another unit than that of the session.
    pub(crate) fn execute(
        &mut self,
        lun: Option<u16>,
        cdb: &[u8],
        data_out: Option<Rope>,
        data_in: DataIn,
    ) -> Result<Completion> {
        let lun = lun.map_or(self.lun, |lun| Lun(scsi::Lun::of(lun).0));
        let (cdb, attribute) = (SmallVec::from_slice(cdb), TaskAttribute::Simple);
        self.submit_command(Command { lun, cdb, attribute, data_out, data_in })?;
        self.await_completion()
    }

    fn submit(&mut self, cdb: [u8; 16], data_out: Option<Rope>, data_in: DataIn) -> Result<TaskId> {
        let (cdb, attribute) = (SmallVec::from_buf(cdb), TaskAttribute::Simple);
        self.submit_command(Command { lun: self.lun, cdb, attribute, data_out, data_in })
    }

    fn submit_command(&mut self, command: Command) -> Result<TaskId> {
        self.connection.submit(command).ok().context("the session takes no command")
    }

    /// Waits for the end of the login; returns the address of a redirect, or `None` on success.
    fn await_full_feature(&mut self) -> Result<Option<String>> {
        let until = Instant::now() + ANSWER_LIMIT;
        while Instant::now() < until {
            match self.connection.poll_event() {
                Some(Event::FullFeature(_)) => return Ok(None),
                Some(Event::Moved(elsewhere)) => return Ok(Some(elsewhere)),
                Some(Event::Closed(reason)) => bail!("no login: {reason:?}"),
                Some(_) => {}
                None => self.turn(Duration::from_secs(1))?,
            }
        }
        bail!("no login within {ANSWER_LIMIT:?}")
    }

    /// Reads the capacity, ignoring the unit attentions that are pending for a new nexus.
    fn read_capacity(&mut self) -> Result<()> {
        let mut cdb = [0; 16];
        // READ CAPACITY (16): service action 10h, allocation length 32.
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        // Each command reports one unit attention, and a new nexus may have several (SAM-5).
        for _ in 0..8 {
            self.submit(cdb, None, DataIn::Into(block::Buf::zeroed(32)))?;
            let completion = self.await_completion()?;
            if completion.status == CHECK_CONDITION && sense_key(&completion) == Some(UNIT_ATTENTION) {
                continue;
            }
            ensure_good(&completion)?;
            let data = completion.data_in.as_deref().unwrap_or_default();
            let last = data.first_chunk().context("READ CAPACITY (16) is short")?;
            let block_bytes =
                data.get(8..12).and_then(|bytes| bytes.first_chunk()).context("READ CAPACITY (16) is short")?;
            // The response has the address of the last block, not the number of blocks.
            (self.blocks, self.block_bytes) = (u64::from_be_bytes(*last) + 1, u32::from_be_bytes(*block_bytes));
            return Ok(());
        }
        bail!("the unit has endless unit attentions")
    }

    fn send(&mut self) -> Result<()> {
        while self.connection.wants_to_send() {
            let mut slices = SendSlices::new();
            self.connection.gather(&mut slices);
            let sent = self.socket.write_vectored(&slices);
            // The slices borrow the connection, which the outcome of the send changes.
            drop(slices);
            match sent {
                Ok(sent) => self.connection.handle_transmitted(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the connection broke while we sent"),
            }
        }
        Ok(())
    }

    /// Receives once; true when data arrived.
    fn receive(&mut self) -> Result<bool> {
        let into = self.connection.receive_into();
        if into.is_empty() {
            // The buffer is empty once the connection has ended, which the next event reports.
            return Ok(true);
        }
        match self.socket.read(into) {
            Ok(0) => self.connection.handle_peer_closed(),
            Ok(len) => {
                let now = Time(u64::try_from(self.begin.elapsed().as_nanos())?);
                self.connection.handle_received(len, now);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(error) => return Err(error).context("the connection broke while we received"),
        }
        Ok(true)
    }
}

/// Waits until one of the sockets is ready, for at most `limit`.
fn look(sockets: &mut [PollFd<'_>], limit: Duration) -> Result<()> {
    let limit = Timespec { tv_sec: i64::try_from(limit.as_secs())?, tv_nsec: limit.subsec_nanos().into() };
    match poll(sockets, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for the sockets"),
    }
}

/// Checks that the command ended GOOD.
///
/// *Errors*: a sentence with status and sense otherwise.
pub(crate) fn ensure_good(completion: &Completion) -> Result<()> {
    ensure!(
        completion.status == GOOD,
        "a command ended with status {:#04x}, sense {:02x?}",
        completion.status,
        completion.sense
    );
    Ok(())
}

fn sense_key(completion: &Completion) -> Option<u8> {
    scsi::ParsedSense::parse(&completion.sense).map(|sensed| sensed.key)
}

fn transfer_cdb(opcode: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    // READ (16) and WRITE (16) have the same layout (SBC-4).
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
