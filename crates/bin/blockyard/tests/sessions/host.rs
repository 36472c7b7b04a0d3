//! Host with one session, which does one thing after the other.

use crate::array::{ARRAY_SECRET, HOST_SECRET, OPEN, TARGET, initiator, portal};
use block::Buf;
use iscsi::chap::{Algorithm, Credential, Secret};
use iscsi::initiator::{Command, Completion, Config, Connection, DataIn, Event};
use iscsi::login::{InitiatorAuth, InitiatorConfig};
use iscsi::pdu::{AsyncEvent, Cid, CmdSn, Isid, Lun, Residual, TaskAttribute, TaskFunction, TaskFunctionOutcome, Tsih};
use iscsi::{IscsiName, SendSlices, TaskId};
use shard::{Stream, StreamOptions, World};
use sim::{Sim, SimStream};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Additional sense code and qualifier.
pub(crate) type Attention = (u8, u8);
pub(crate) const POWER_ON: Attention = (0x29, 0x00);
pub(crate) const REPORTED_LUNS_CHANGED: Attention = (0x3f, 0x0e);

/// Identity and options of a login.
#[derive(Clone)]
pub(crate) struct Login {
    pub host: &'static str,
    pub isid: u8,
    /// Name of the target; none for discovery.
    pub target: Option<&'static str>,
    /// True if the array must authenticate.
    pub mutual: bool,
    /// True for a host that offers no credentials although they are required.
    pub unproven: bool,
    /// Session that the connection joins.
    pub joins: Option<FurtherConnection>,
    /// CHAP secrets of the host and of the array.
    pub secrets: [&'static [u8]; 2],
    /// ErrorRecoveryLevel that is offered. Our initiator is at level 0, so nothing may be lost in transit.
    pub recovery: u8,
    /// True if write data is sent as immediate and unsolicited data, as far as the target agrees; else it is solicited.
    pub unasked: bool,
}

/// Further connection of a session.
#[derive(Clone, Copy)]
pub(crate) struct FurtherConnection {
    pub tsih: Tsih,
    pub cid: u16,
    /// CmdSN of its first command.
    pub cmd_sn: u32,
}

impl Login {
    /// Returns a login with mutual CHAP, unless the host needs none.
    pub(crate) fn of(host: &'static str, isid: u8) -> Self {
        let secrets = [HOST_SECRET, ARRAY_SECRET];
        let (target, unasked) = (Some(TARGET), true);
        Self { host, isid, target, mutual: true, unproven: false, joins: None, recovery: 0, unasked, secrets }
    }

    pub(crate) fn initiator(&self) -> String {
        initiator(self.host)
    }

    fn config(&self) -> Config {
        let name = |text: &str| IscsiName::parse(text).unwrap();
        let mut login = InitiatorConfig::new(name(&self.initiator()), self.target.map(name));
        login.isid = Isid([0x80, 0, 0, 0, 0, self.isid]);
        login.offer.connections_max = 8;
        login.offer.error_recovery_level = self.recovery;
        if !self.unasked {
            (login.offer.immediate_data, login.offer.initial_r2t) = (false, true);
        }
        if let Some(joins) = self.joins {
            (login.tsih, login.cid, login.cmd_sn) = (joins.tsih, Cid(joins.cid), CmdSn(joins.cmd_sn));
        }
        let credential =
            |name: &str, secret: &[u8]| Credential { name: name.to_owned(), secret: Secret::new(secret).unwrap() };
        if self.host != OPEN && !self.unproven {
            let [own, array] = self.secrets;
            let array = self.mutual.then(|| credential("array", array));
            login.auth = InitiatorAuth::chap(credential(self.host, own), array, Algorithm::Md5).unwrap();
        }
        Config::new(login)
    }
}

/// Session that receives only while it does something.
pub(crate) struct Host {
    machine: Connection,
    stream: SimStream,
    world: Sim,
    waiting: usize,
    lun: u64,
    /// Task attribute of further commands.
    pub attribute: TaskAttribute,
    tsih: Tsih,
}

impl Host {
    /// Logs in; the login must succeed.
    pub(crate) async fn login(world: &Sim, login: &Login) -> Self {
        match Self::enter(world, login, portal()).await {
            Ok(host) => host,
            Err(other) => panic!("the login came to {other:?}"),
        }
    }

    /// Logs in at this portal or where it redirects to, and returns the final portal.
    pub(crate) async fn follow(world: &Sim, login: &Login, mut portal: SocketAddr) -> (Self, SocketAddr) {
        loop {
            match Self::enter(world, login, portal).await {
                Ok(host) => return (host, portal),
                Err(Event::Moved(address)) => portal = address.parse().unwrap(),
                Err(other) => panic!("the login came to {other:?}"),
            }
        }
    }

    /// Opens a further connection of this session through `portal`, whose first command has the number `cmd_sn`; or
    /// returns the result of the login.
    pub(crate) async fn another(
        &self,
        login: &Login,
        cid: u16,
        cmd_sn: u32,
        portal: SocketAddr,
    ) -> Result<Self, Event> {
        let joins = Some(FurtherConnection { tsih: self.tsih, cid, cmd_sn });
        Self::enter(&self.world, &Login { joins, ..login.clone() }, portal).await
    }

    async fn enter(world: &Sim, login: &Login, portal: SocketAddr) -> Result<Self, Event> {
        let mut host = Self::knock(world, login, portal).await;
        match host.next().await {
            Event::FullFeature(facts) => {
                host.tsih = facts.identity.tsih;
                Ok(host)
            }
            other => Err(other),
        }
    }

    /// Returns the addresses of the targets reported to a discovery session.
    pub(crate) async fn targets(&mut self) -> Vec<String> {
        self.machine.send_targets("All").unwrap();
        match self.next().await {
            Event::Targets { targets, .. } => targets.into_iter().flat_map(|target| target.addresses).collect(),
            other => panic!("SendTargets came to {other:?}"),
        }
    }

    /// Waits for a logout request, logs out, and returns the seconds within which it was due; the host may return
    /// immediately.
    pub(crate) async fn log_out_when_asked(mut self) -> u16 {
        let within = match self.next().await {
            Event::Async { event: AsyncEvent::LogoutRequested { within_s }, .. } => within_s,
            other => panic!("heard {other:?} instead"),
        };
        self.machine.logout().unwrap();
        assert_eq!(self.until_told_and_closed().await, AsyncEvent::SessionDropped { time2wait_s: 0, time2retain_s: 0 });
        within
    }

    /// Returns the only message of the target before it closes the connection.
    pub(crate) async fn until_told_and_closed(&mut self) -> AsyncEvent {
        match self.until_closed().await[..] {
            [Event::Async { event, .. }] => event,
            ref heard => panic!("heard {heard:?} instead"),
        }
    }

    /// Returns true if the login succeeds.
    pub(crate) async fn is_let_in(world: &Sim, login: &Login) -> bool {
        matches!(Self::knock(world, login, portal()).await.next().await, Event::FullFeature(_))
    }

    /// Requires that the login is refused.
    pub(crate) async fn refused(world: &Sim, login: &Login) {
        assert!(!Self::is_let_in(world, login).await, "{} was let in", login.host);
    }

    async fn knock(world: &Sim, login: &Login, portal: SocketAddr) -> Self {
        let stream = world.connect(portal, StreamOptions::default()).await.unwrap();
        let mut seed = [0; 32];
        world.random(&mut seed);
        let machine = Connection::new(Rc::new(login.config()), seed, world.now());
        Self {
            machine,
            stream,
            world: world.clone(),
            waiting: 0,
            lun: 0,
            attribute: TaskAttribute::Simple,
            tsih: Tsih(0),
        }
    }

    /// Takes the unit attention of a new nexus.
    pub(crate) async fn take_attention(&mut self) {
        assert_eq!(self.test_unit_ready().await, Some(POWER_ON));
    }

    /// Returns the unit attention that the addressed unit reports.
    pub(crate) async fn test_unit_ready(&mut self) -> Option<Attention> {
        let done = self.command(&[0; 6], None, DataIn::None).await;
        if done.status == 0 {
            return None;
        }
        let (key, code, qualifier) = sense_of(&done.sense);
        assert_eq!((done.status, key), (2, 6), "a unit attention of LUN {}: {done:?}", self.lun);
        Some((code, qualifier))
    }

    pub(crate) async fn read(&mut self, block: u64) -> Vec<u8> {
        let done = self.command(&cdb(0x28, block), None, DataIn::Into(Buf::zeroed(512))).await;
        assert_eq!(done.status, 0, "{done:?}");
        done.data_in.unwrap().to_vec()
    }

    pub(crate) async fn write(&mut self, block: u64, fill: u8) {
        let done = self.command(&cdb(0x2a, block), Some(fill), DataIn::None).await;
        assert_eq!(done.status, 0, "{done:?}");
    }

    /// Addresses further commands to this unit.
    pub(crate) fn address(&mut self, lun: u64) {
        self.lun = lun;
    }

    /// Reads the block, or returns sense key, code and qualifier.
    pub(crate) async fn try_read(&mut self, block: u64) -> Result<Vec<u8>, (u8, u8, u8)> {
        self.ask(&cdb(0x28, block)).await
    }

    /// Writes the block, or returns sense key, code and qualifier.
    pub(crate) async fn try_write(&mut self, block: u64, fill: u8) -> Result<(), (u8, u8, u8)> {
        judge(&self.command(&cdb(0x2a, block), Some(fill), DataIn::None).await)
    }

    /// Sends a command without data out, and returns its data of at most 512 bytes.
    pub(crate) async fn ask(&mut self, cdb: &[u8]) -> Result<Vec<u8>, (u8, u8, u8)> {
        self.ask_long(cdb, 512).await
    }

    /// Sends a command without data out, and returns its data of at most `bytes_max` bytes.
    pub(crate) async fn ask_long(&mut self, cdb: &[u8], bytes_max: usize) -> Result<Vec<u8>, (u8, u8, u8)> {
        let done = self.command(cdb, None, DataIn::Into(Buf::zeroed(bytes_max))).await;
        judge(&done)?;
        Ok(done.data_in.unwrap().to_vec())
    }

    /// Sends a command with `data`, and returns its status with sense key, code and qualifier.
    pub(crate) async fn status_of(&mut self, cdb: &[u8], data: &[u8]) -> (u8, Option<(u8, u8, u8)>) {
        let data = Some(data).filter(|data| !data.is_empty()).map(Buf::copy_of);
        let data_in = if data.is_none() { DataIn::Into(Buf::zeroed(512)) } else { DataIn::None };
        let task = self.submit_data(cdb, data, data_in);
        let done = self.completion(task, cdb).await;
        (done.status, if done.status == 2 { judge(&done).err() } else { None })
    }

    /// Sends a command with this data or buffer, and returns its status and residual.
    pub(crate) async fn residual_of(&mut self, cdb: &[u8], fill: Option<u8>, data_in: DataIn) -> (u8, Residual) {
        let done = self.command(cdb, fill, data_in).await;
        (done.status, done.residual)
    }

    /// Sends a command with all of `data`, and returns its status and residual.
    pub(crate) async fn residual_of_data(&mut self, cdb: &[u8], data: &[u8]) -> (u8, Residual) {
        let task = self.submit_data(cdb, Some(Buf::copy_of(data)), DataIn::None);
        let done = self.completion(task, cdb).await;
        (done.status, done.residual)
    }

    /// Sends a task management function for the addressed unit, and returns its outcome.
    pub(crate) async fn manage(&mut self, function: TaskFunction) -> TaskFunctionOutcome {
        let task = self.machine.manage(function, Lun(self.lun << 48), None).unwrap();
        match self.next().await {
            Event::TaskManagement { task: answered, outcome } if answered == task => outcome,
            other => panic!("{function:?} was answered with {other:?}"),
        }
    }

    /// Unmaps `blocks` from `block` on by WRITE SAME (16) of zeros: a command with one block of data.
    pub(crate) async fn write_same_unmap(&mut self, block: u64, blocks: u32) -> Result<(), (u8, u8, u8)> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (0x93, 0x08);
        cdb[2..10].copy_from_slice(&block.to_be_bytes());
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        judge(&self.command(&cdb, Some(0), DataIn::None).await)
    }

    /// Sends a write without waiting for its end.
    pub(crate) async fn submit_write(&mut self, block: u64, fill: u8) -> TaskId {
        let task = self.submit(&cdb(0x2a, block), Some(fill), DataIn::None);
        poll_fn(|cx| {
            self.turn(cx);
            if self.machine.wants_to_send() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        task
    }

    /// Returns the final status of a submitted command.
    pub(crate) async fn status_of_task(&mut self, task: TaskId) -> u8 {
        self.completion(task, &[]).await.status
    }

    /// Sends reads of `blocks` blocks together, and waits for all of them.
    pub(crate) async fn read_together(&mut self, blocks: u64) {
        for block in 0..blocks {
            self.submit(&cdb(0x28, block), None, DataIn::Into(Buf::zeroed(512)));
        }
        self.wait_for_answers().await;
    }

    /// Waits until everything submitted is answered.
    pub(crate) async fn wait_for_answers(&mut self) {
        while self.waiting > 0 {
            self.next().await;
        }
    }

    /// Waits until the target has closed the connection, and returns the events before that.
    pub(crate) async fn until_closed(&mut self) -> Vec<Event> {
        let mut heard = Vec::new();
        loop {
            match self.next().await {
                Event::Closed(_) => return heard,
                other => heard.push(other),
            }
        }
    }

    async fn command(&mut self, cdb: &[u8], fill: Option<u8>, data_in: DataIn) -> Completion {
        let task = self.submit(cdb, fill, data_in);
        self.completion(task, cdb).await
    }

    async fn completion(&mut self, task: TaskId, cdb: &[u8]) -> Completion {
        match self.next().await {
            Event::Completed(done) if done.task == task => done,
            other => panic!("{cdb:x?} was answered with {other:?}"),
        }
    }

    fn submit(&mut self, cdb: &[u8], fill: Option<u8>, data_in: DataIn) -> TaskId {
        self.submit_data(cdb, fill.map(|fill| Buf::copy_of(&[fill; 512])), data_in)
    }

    fn submit_data(&mut self, cdb: &[u8], data_out: Option<Buf>, data_in: DataIn) -> TaskId {
        self.waiting += 1;
        let command = Command {
            lun: Lun(self.lun << 48),
            cdb: cdb.iter().copied().collect(),
            attribute: self.attribute,
            data_out: data_out.map(Into::into),
            data_in,
        };
        self.machine.submit(command).unwrap()
    }

    async fn next(&mut self) -> Event {
        let event = poll_fn(|cx| {
            loop {
                let progress = self.turn(cx);
                match self.machine.poll_event() {
                    Some(event) => return Poll::Ready(event),
                    None if !progress => return Poll::Pending,
                    None => {}
                }
            }
        });
        let event = event.await;
        self.waiting -= usize::from(matches!(event, Event::Completed(_)));
        event
    }

    /// Sends and receives without waiting; returns true if there was progress.
    fn turn(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.machine.wants_to_send() {
            let mut slices = SendSlices::new();
            self.machine.gather(&mut slices);
            let sent = self.stream.poll_write(cx, &slices);
            drop(slices);
            match sent {
                Poll::Pending => break,
                Poll::Ready(Ok(len)) => self.machine.handle_transmitted(len),
                Poll::Ready(Err(_)) => self.machine.handle_peer_closed(),
            }
            progress = true;
        }
        let space = self.machine.receive_into();
        if space.is_empty() {
            return progress;
        }
        match self.stream.poll_read(cx, space) {
            Poll::Pending => return progress,
            Poll::Ready(Ok(len)) if len > 0 => self.machine.handle_received(len, self.world.now()),
            Poll::Ready(_) => self.machine.handle_peer_closed(),
        }
        true
    }
}

fn judge(done: &Completion) -> Result<(), (u8, u8, u8)> {
    match done.status {
        0 => Ok(()),
        2 => Err(sense_of(&done.sense)),
        // RESERVATION CONFLICT carries no sense data.
        0x18 => Err((0, 0, 0)),
        other => panic!("status {other}"),
    }
}

/// Returns sense key, code and qualifier.
fn sense_of(sense: &[u8]) -> (u8, u8, u8) {
    scsi::ParsedSense::parse(sense).expect("a CHECK CONDITION has sense data").triple()
}

/// Builds a READ (10) or WRITE (10) of one block.
fn cdb(code: u8, block: u64) -> [u8; 10] {
    let [a, b, c, d] = u32::try_from(block).unwrap().to_be_bytes();
    [code, 0, a, b, c, d, 0, 0, 1, 0]
}
