//! iSCSI session of our own initiator.

mod play;

use super::bundle::{Line, carry};
use super::wire::{Carrier, Machine, turn};
use crate::load::{Content, Op, Source};
use ::iscsi::initiator::{Command, Completion, Connection, DataIn, Event, TASKS_MAX};
use ::iscsi::login::InitiatorAuth;
use ::iscsi::pdu::{Cid, Isid, Lun, Residual, TaskAttribute};
use ::iscsi::{DigestOffer, IscsiName, SendSlices, TaskId};
use anyhow::{Context, Result, bail, ensure};
use block::{Buf, Rope};
use initiator::LoggedIn;
use shard::{Stream as _, StreamOptions, Time, World};
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::time::Duration;

const GOOD: u8 = 0;
const UNIT_ATTENTION: u8 = 6;
const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8a;
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Spare tasks of a session beyond its depth, for the few commands of a login.
const TASKS_SPARE: u32 = 8;

/// Login to a unit.
#[derive(Clone, Debug)]
pub struct Login {
    /// First portal; a redirect may lead to another one.
    pub portal: SocketAddr,
    /// Name of the target.
    pub target: IscsiName,
    /// LUN of the unit.
    pub lun: u16,
    /// Name of the initiator.
    pub initiator: IscsiName,
    /// Qualifier of the ISID, which distinguishes the sessions of one initiator.
    pub session: u16,
    /// Credentials.
    pub auth: InitiatorAuth,
    /// Require both digests, or use none.
    pub digests: bool,
    /// Connections of the session.
    pub connections: u32,
    /// Queue depth.
    pub depth: u32,
}

impl Login {
    /// Returns the login of the session's first connection.
    ///
    /// *Errors*: a depth beyond the number of tags of a session.
    fn of_session(&self) -> Result<initiator::Login> {
        let depth_max = TASKS_MAX - TASKS_SPARE;
        ensure!(self.depth <= depth_max, "a session has tags for a depth of {depth_max}, and not of {}", self.depth);
        let mut login = initiator::Login::new(self.portal, self.target.clone(), self.initiator.clone());
        let [high, low] = self.session.to_be_bytes();
        // ISID type 10b, random: the qualifier alone is ours to choose (RFC 7143 §11.12.5).
        login.isid = Isid([0x80, 0, 0, 0, high, low]);
        login.auth = self.auth.clone();
        // Required and not preferred: a target that declines would be measured without digests.
        login.digests = if self.digests { DigestOffer::Required } else { DigestOffer::Never };
        login.connections_max = u16::try_from(self.connections).unwrap_or(u16::MAX);
        // The connections of a session share its tags.
        login.tasks_max = (self.depth + TASKS_SPARE).min(TASKS_MAX / self.connections.max(1)).max(1);
        login.time_limit = ANSWER_LIMIT;
        Ok(login)
    }
}

/// Session in full feature phase with a unit of known capacity.
pub(super) struct Session<W: World> {
    stream: W::Stream,
    speaker: Speaker,
    blocks: u64,
    /// Negotiated maximum of connections.
    connections_max: u16,
    /// Further connections of the session.
    others: Vec<Line<W::Stream, Speaker>>,
}

/// Protocol machine, and the command of each task.
pub(super) struct Speaker {
    machine: Connection,
    lun: Lun,
    block_bytes: u32,
    under_way: Vec<Option<(TaskId, Op)>>,
}

impl<W: World> Session<W> {
    /// Logs in, following redirects.
    pub(super) async fn log_in(world: &W, login: &Login) -> Result<Self> {
        let LoggedIn { stream, machine, negotiated, portal } = initiator::log_in(world, &login.of_session()?).await?;
        let lun = Lun(scsi::Lun::of(login.lun).0);
        let speaker = Speaker { machine, lun, block_bytes: 0, under_way: Vec::new() };
        let connections_max = negotiated.connections_max;
        let mut session = Self { stream, speaker, blocks: 0, connections_max, others: Vec::new() };
        // Before the other connections join: they copy the block length of the first one.
        session.read_capacity(world).await?;
        session.join(world, login, portal).await?;
        Ok(session)
    }

    /// Adds connections to the same portal, up to the number in `login`.
    async fn join(&mut self, world: &W, login: &Login, portal: SocketAddr) -> Result<()> {
        let (allowed, asked) = (self.connections_max, login.connections);
        // The load needs exactly this number of connections; fewer would measure something else.
        let target = &login.target;
        ensure!(
            asked <= u32::from(allowed),
            "{target} allows {allowed} connections to a session, and {asked} were asked for (connections = {asked})"
        );
        // The first connection has the CID 0.
        for cid in 1..asked as u16 {
            let stream = world.connect(portal, StreamOptions::default()).await;
            let stream = stream.with_context(|| format!("no connection to {portal}"))?;
            let mut random = [0; 32];
            world.random(&mut random);
            let machine = self.speaker.machine.join(Cid(cid), random, world.now());
            let machine = machine.context("the session is over before it has all of its connections")?;
            // Redirecting a single connection of a session is not supported here.
            let limit = (world.now() + ANSWER_LIMIT, ANSWER_LIMIT);
            let entered = initiator::login::enter(world, stream, machine, portal, limit).await;
            let entered = entered.with_context(|| format!("connection {} of the session", cid + 1))?;
            let entered = entered
                .ok()
                .with_context(|| format!("{portal} sends connections of one session to several portals"))?;
            let LoggedIn { stream, machine, .. } = entered;
            let carrier = Speaker { machine, under_way: Vec::new(), ..self.speaker };
            self.others.push(Line { stream, carrier });
        }
        Ok(())
    }

    /// Reads the capacity, after clearing the unit attentions of a new nexus.
    async fn read_capacity(&mut self, world: &W) -> Result<()> {
        // READ CAPACITY (16): service action 10h, allocation length 32.
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        // A new nexus has several unit attentions pending, but not endlessly many.
        for _ in 0..8 {
            let done = self.execute(world, cdb, DataIn::Into(Buf::zeroed(32))).await?;
            if scsi::ParsedSense::parse(&done.sense).is_some_and(|sensed| sensed.key == UNIT_ATTENTION) {
                continue;
            }
            ensure_good(&done)?;
            let data = done.data_in.as_deref().unwrap_or_default();
            let last = data.first_chunk().context("READ CAPACITY (16) is short")?;
            let block = data.get(8..12).and_then(|bytes| bytes.first_chunk()).context("READ CAPACITY (16) is short")?;
            (self.blocks, self.speaker.block_bytes) = (u64::from_be_bytes(*last) + 1, u32::from_be_bytes(*block));
            return Ok(());
        }
        bail!("the unit has endless unit attentions")
    }

    /// Executes a single command.
    pub(super) async fn execute(&mut self, world: &W, cdb: [u8; 16], data_in: DataIn) -> Result<Completion> {
        let (cdb, attribute) = (SmallVec::from_buf(cdb), TaskAttribute::Simple);
        let command = Command { lun: self.speaker.lun, cdb, attribute, data_out: None, data_in };
        self.speaker.machine.submit(command).ok().context("the session takes no command")?;
        let until = world.now() + ANSWER_LIMIT;
        loop {
            if let Some(done) = self.speaker.completion()? {
                return Ok(done);
            }
            ensure!(world.now() < until, "no answer within {ANSWER_LIMIT:?}");
            turn(world, &self.stream, &mut self.speaker, Some(until)).await?;
        }
    }

    /// Returns the block size in bytes.
    pub(super) fn block_bytes(&self) -> u32 {
        self.speaker.block_bytes
    }

    /// Returns the size of the unit in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.speaker.block_bytes)
    }

    /// Reads `len` bytes from `from` on, in pieces that every target accepts.
    pub(super) async fn read(&mut self, world: &W, from: u64, len: u64) -> Result<Vec<u8>> {
        const PIECE_BYTES: u64 = 64 << 10;
        let mut all = Vec::new();
        while (all.len() as u64) < len {
            let piece = PIECE_BYTES.min(len - all.len() as u64);
            let block_bytes = self.speaker.block_bytes;
            let lba = (from + all.len() as u64) / u64::from(block_bytes);
            let cdb = transfer(READ_16, lba, piece as u32 / block_bytes);
            let done = self.execute(world, cdb, DataIn::Into(Buf::zeroed(piece as usize))).await?;
            ensure_good(&done)?;
            let data = done.data_in.filter(|data| data.len() as u64 == piece).context("a read brought too little")?;
            all.extend_from_slice(&data);
        }
        Ok(all)
    }

    /// Carries the commands of `source`.
    pub(super) async fn drive(&mut self, world: &W, source: &mut Source) -> Result<u64> {
        let first = Line { stream: &self.stream, carrier: &mut self.speaker };
        let others = self.others.iter_mut().map(|line| Line { stream: &line.stream, carrier: &mut line.carrier });
        carry::<W, _>(world, &mut std::iter::once(first).chain(others).collect::<Vec<_>>(), source).await
    }

    /// Logs out and closes the connection.
    pub(super) async fn log_out(mut self, world: &W) -> Result<()> {
        // A target that does not answer delays the end by this limit only. The measurement is over by now.
        self.speaker.machine.logout();
        let until = world.now() + ANSWER_LIMIT;
        while !self.speaker.machine.is_closed() && world.now() < until {
            turn(world, &self.stream, &mut self.speaker, Some(until)).await?;
        }
        Ok(self.stream.close_write()?)
    }
}

impl Speaker {
    /// Returns the next completed command.
    fn completion(&mut self) -> Result<Option<Completion>> {
        loop {
            match self.machine.poll_event() {
                Some(Event::Completed(completion)) => return Ok(Some(completion)),
                Some(Event::Closed(reason)) => bail!("the connection is over: {reason:?}"),
                Some(Event::Rejected { reason, .. }) => bail!("the target rejected a PDU: {reason:?}"),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

impl Machine for Speaker {
    fn gather<'a>(&'a self, into: &mut SendSlices<'a>) {
        self.machine.gather(into);
    }

    fn handle_transmitted(&mut self, len: usize) {
        self.machine.handle_transmitted(len);
    }

    fn wants_to_send(&self) -> bool {
        self.machine.wants_to_send()
    }

    fn receive_into(&mut self) -> &mut [u8] {
        self.machine.receive_into()
    }

    fn handle_received(&mut self, len: usize, now: Time) {
        self.machine.handle_received(len, now);
    }

    fn handle_peer_closed(&mut self) {
        self.machine.handle_peer_closed();
    }
}

impl Carrier for Speaker {
    fn submit(&mut self, op: Op, content: Content) -> Result<()> {
        let operation = if op.write { WRITE_16 } else { READ_16 };
        // `takes` has checked that the load's commands are whole blocks.
        let lba = op.offset / u64::from(self.block_bytes);
        let cdb = transfer(operation, lba, op.bytes / self.block_bytes);
        let (data_out, data_in) = match content {
            Content::Write(data) => (Some(Rope::from(data)), DataIn::None),
            Content::Keep => (None, DataIn::Into(Buf::zeroed(op.bytes as usize))),
            Content::Discard => (None, DataIn::Discard(op.bytes)),
        };
        let (cdb, attribute) = (SmallVec::from_buf(cdb), TaskAttribute::Simple);
        let task = self.machine.submit(Command { lun: self.lun, cdb, attribute, data_out, data_in });
        let task = task.ok().context("the session takes no command")?;
        // The low bits of a task tag index this table; the whole tag is compared on completion.
        let place = (task.bits() & 0xffff) as usize;
        if self.under_way.len() <= place {
            self.under_way.resize(place + 1, None);
        }
        self.under_way[place] = Some((task, op));
        Ok(())
    }

    fn is_held(&self) -> bool {
        self.machine.is_held()
    }

    fn handle_window_moved(&mut self) {
        self.machine.handle_window_moved();
    }

    fn poll_end(&mut self) -> Result<Option<(Op, bool, Option<Buf>)>> {
        let Some(done) = self.completion()? else { return Ok(None) };
        let place = (done.task.bits() & 0xffff) as usize;
        let (task, op) =
            self.under_way.get_mut(place).and_then(Option::take).context("a task ended that nobody began")?;
        ensure!(task == done.task, "another task ended than the one that was begun");
        // A short transfer with GOOD status would be counted as success otherwise.
        let moved = if op.write { done.residual == Residual::None } else { done.data_in_bytes == op.bytes };
        Ok(Some((op, done.status == GOOD && moved, done.data_in)))
    }
}

/// Builds a 16-byte CDB with an address and a number of blocks.
fn transfer(operation: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = operation;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// *Errors*: status and sense of a command that did not end with GOOD.
fn ensure_good(done: &Completion) -> Result<()> {
    ensure!(done.status == GOOD, "a command ended with status {:#04x}, sense {:02x?}", done.status, done.sense);
    Ok(())
}
