//! Session that runs one command at a time and checks every sequence number.

pub(crate) use crate::command_result::CommandResult;
use crate::response_tracker::ResponseTracker;
use crate::wire::{Pdu, Received, Wire};
use crate::{CheckResult, Finding, TestTarget, ensure, unsolicited};
use iscsi::login::{InitiatorConfig, InitiatorLogin, InitiatorStep};
use iscsi::pdu::{
    AsyncEvent, Bhs, CmdSn, InitiatorTaskTag, Lun, NopIn, NopOut, Residual, ScsiCommand, SegmentLengths, StatSn,
    TargetPdu, TargetTransferTag, TaskAttribute,
};
use iscsi::{LoginStatus, Negotiated};
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

/// Upper bound of redirects that a login follows.
const MOVES_MAX: usize = 4;

/// Session with one connection in full feature phase.
pub(crate) struct Session {
    pub(crate) wire: Wire,
    pub(crate) agreed: Negotiated,
    pub(crate) lun: Lun,
    /// CmdSN of the next command, expected StatSN, and initiator task tag used last.
    pub(crate) cmd_sn: CmdSn,
    pub(crate) stat_sn: StatSn,
    pub(crate) tag: u32,
    /// ExpCmdSN and MaxCmdSN that the target reported last.
    pub(crate) exp_cmd_sn: CmdSn,
    pub(crate) max_cmd_sn: CmdSn,
    /// True after the target announced the end of the session, which may then be closed.
    pub(crate) leaves: bool,
    /// Omits the checks of PDU formats and residuals; set when only the unit is examined.
    pub(crate) is_lenient: bool,
    answered: ResponseTracker,
}

/// PDU or event that arrived without a request.
#[derive(Debug)]
pub(crate) enum Unsolicited {
    Ping(NopIn),
    Message(AsyncEvent),
    /// Nothing arrived in time.
    Nothing,
    /// The target closed the connection.
    End,
}

/// Outcome of a login.
pub(crate) enum LoginOutcome {
    In(Box<Session>),
    Refused(LoginStatus),
    /// The target closed the connection.
    Closed,
}

impl Session {
    /// Logs in with the default parameters, as modified by `change`; a refusal makes the check not testable.
    pub(crate) fn login(aim: &TestTarget, change: impl Fn(&mut InitiatorConfig)) -> CheckResult<Self> {
        match Self::enter(aim, change)? {
            LoginOutcome::In(session) => Ok(*session),
            LoginOutcome::Refused(status) => Err(Finding::Untried(format!("the login was refused: {status}"))),
            LoginOutcome::Closed => Err(Finding::Wrong("it closed the connection during the login".to_owned())),
        }
    }

    /// Logs in and returns the outcome, following redirects.
    pub(crate) fn enter(aim: &TestTarget, change: impl Fn(&mut InitiatorConfig)) -> CheckResult<LoginOutcome> {
        let mut config = InitiatorConfig::new(aim.initiator.clone(), Some(aim.target.clone()));
        config.auth = aim.auth.clone();
        change(&mut config);
        let mut portal = aim.portal.clone();
        for _ in 0..MOVES_MAX {
            match Self::enter_at(&portal, &config, aim)? {
                Ok(entered) => return Ok(entered),
                Err(elsewhere) => portal = first_of(&elsewhere),
            }
        }
        Err(Finding::Wrong("it sends logins from portal to portal without end".to_owned()))
    }

    /// Returns the portal to which the login is redirected, if any.
    pub(crate) fn elsewhere(aim: &TestTarget) -> CheckResult<Option<String>> {
        let mut config = InitiatorConfig::new(aim.initiator.clone(), Some(aim.target.clone()));
        config.auth = aim.auth.clone();
        let entered = Self::enter_at(&aim.portal, &config, aim)?;
        Ok(entered.err().map(|elsewhere| first_of(&elsewhere)))
    }

    /// Logs in at one portal; `Err` holds the address of a redirect.
    fn enter_at(portal: &str, config: &InitiatorConfig, aim: &TestTarget) -> CheckResult<Result<LoginOutcome, String>> {
        let mut wire = Wire::connect_to(portal, aim.patience)?;
        let mut login = InitiatorLogin::new(config.clone(), random()?);
        // Until the first response, the window begins and ends with the first command.
        let (mut stat_sn, mut numbers) = (StatSn(0), (config.cmd_sn, config.cmd_sn));
        loop {
            match login.poll() {
                Some(InitiatorStep::Request { mut request, text }) => {
                    // The first response of the connection sets StatSN; the first request has nothing to acknowledge.
                    request.exp_stat_sn = stat_sn;
                    let mut header = [0; 48];
                    request.emit(SegmentLengths::data(text.len()), &mut header);
                    wire.send(&header, &text);
                }
                Some(InitiatorStep::FullFeature(agreed)) => {
                    // Digests begin with the first PDU of full feature phase.
                    (wire.header_digest, wire.data_digest) = (agreed.header_digest, agreed.data_digest);
                    let (exp_cmd_sn, max_cmd_sn) = numbers;
                    let (lun, cmd_sn) = (Lun(scsi::Lun::of(aim.lun).0), agreed.identity.cmd_sn);
                    let (agreed, tag, answered) = (*agreed, 0, ResponseTracker::default());
                    let session = Self {
                        wire,
                        agreed,
                        lun,
                        cmd_sn,
                        stat_sn,
                        tag,
                        exp_cmd_sn,
                        max_cmd_sn,
                        leaves: false,
                        is_lenient: false,
                        answered,
                    };
                    return Ok(Ok(LoginOutcome::In(Box::new(session))));
                }
                Some(InitiatorStep::Refused { redirect_address: Some(address), .. }) => return Ok(Err(address)),
                Some(InitiatorStep::Refused { status, .. }) => return Ok(Ok(LoginOutcome::Refused(status))),
                Some(InitiatorStep::Failed(violation)) => {
                    return Err(Finding::Wrong(format!("its login breaks a rule: {violation}")));
                }
                None => {
                    // Silence counts like a closed connection: the login has no outcome.
                    let Received::Pdu(pdu) = wire.listen(aim.patience)? else { return Ok(Ok(LoginOutcome::Closed)) };
                    if let TargetPdu::Login(response) = pdu.parse()? {
                        stat_sn = response.stat_sn.next();
                        numbers = (response.exp_cmd_sn, response.max_cmd_sn);
                    }
                    login.handle_pdu(&pdu.header, &pdu.data);
                }
            }
        }
    }

    /// Returns an unused initiator task tag.
    pub(crate) fn next_tag(&mut self) -> u32 {
        self.tag += 1;
        self.tag
    }

    /// Builds a command that reads `bytes`, with the next CmdSN and the next tag.
    pub(crate) fn read_command(&mut self, cdb: &[u8], bytes: u32) -> ScsiCommand {
        let mut long = [0; 16];
        long[..cdb.len()].copy_from_slice(cdb);
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.next();
        ScsiCommand {
            immediate: false,
            is_final: true,
            read: bytes > 0,
            write: false,
            attribute: TaskAttribute::Simple,
            lun: self.lun,
            initiator_task_tag: InitiatorTaskTag(self.next_tag()),
            expected_data_transfer_bytes: bytes,
            cmd_sn,
            exp_stat_sn: self.stat_sn,
            cdb: long,
        }
    }

    /// Builds a command that writes `bytes`; `unasked` announces unsolicited Data-Out, otherwise R2Ts ask for the data.
    pub(crate) fn write_command(&mut self, cdb: &[u8], bytes: u32, unasked: bool) -> ScsiCommand {
        // Without bytes to read, R is 0.
        let command = self.read_command(cdb, 0);
        // F is 0 while unsolicited Data-Out follows the command (RFC 7143 §11.3.1).
        ScsiCommand { is_final: !unasked, write: true, expected_data_transfer_bytes: bytes, ..command }
    }

    /// Sends the command without data and returns its tag.
    pub(crate) fn send(&mut self, command: &ScsiCommand) -> u32 {
        self.send_with(command, &[])
    }

    /// Sends the command with immediate data and returns its tag.
    pub(crate) fn send_with(&mut self, command: &ScsiCommand, data: &[u8]) -> u32 {
        let mut header = [0; 48];
        command.emit(SegmentLengths::data(data.len()), &mut header);
        self.wire.send(&header, data);
        command.initiator_task_tag.0
    }

    /// Runs a command that reads.
    pub(crate) fn read(&mut self, cdb: &[u8], bytes: u32) -> CheckResult<CommandResult> {
        let command = self.read_command(cdb, bytes);
        let tag = self.send(&command);
        let done = self.finish(tag)?;
        if !self.is_lenient {
            self.is_acknowledged()?;
            done.is_settled(bytes)?;
        }
        Ok(done)
    }

    /// Checks that ExpCmdSN covers every command, because the last one was answered. Connections of a session share one
    /// CmdSN, so it is not checked there.
    ///
    /// *Source*: RFC 7143 §4.2.2.1.
    fn is_acknowledged(&self) -> CheckResult {
        let due = self.cmd_sn;
        ensure(self.agreed.connections_max > 1 || self.exp_cmd_sn == due, || {
            format!("ExpCmdSN is {} behind an answer, and {} is the next command", self.exp_cmd_sn.0, due.0)
        })
    }

    /// Sends TEST UNIT READY until the unit attentions that are pending are reported.
    pub(crate) fn ready(&mut self) -> CheckResult {
        // A bound, so that a target whose unit attentions never end fails the check.
        for _ in 0..8 {
            let done = self.read(&[0; 6], 0)?;
            match done.status {
                0 => return Ok(()),
                2 if done.sense_key() == Some(6) => {}
                _ => return Err(self.unready(&done)),
            }
        }
        Err(Finding::Wrong("its unit attentions have no end".to_owned()))
    }

    /// Returns the reason for which the unit is not usable.
    fn unready(&self, done: &CommandResult) -> Finding {
        let number = scsi::Lun(self.lun.0).number().unwrap_or_default();
        let why = match done.sensed().filter(|_| done.status == 2).map(|sensed| sensed.triple()) {
            Some((5, 0x25, 0)) => {
                let (target, initiator) = (&self.agreed.identity.target_name, &self.agreed.identity.initiator_name);
                let target = target.as_ref().map_or("the target", |name| name.as_str());
                format!("{target} shows {} no unit {number}; name another one in the URL", initiator.as_str())
            }
            Some((key, code, qualifier)) => {
                format!("unit {number} is not ready: CHECK CONDITION, sense {key:x}/{code:02x}/{qualifier:02x}")
            }
            None => format!("unit {number} is not ready: status {:#04x}", done.status),
        };
        Finding::Untried(why)
    }

    /// Receives and checks the next PDU that answers a request. Pings and messages of the target do not extend the
    /// timeout.
    pub(crate) fn receive(&mut self) -> CheckResult<(TargetPdu, Pdu)> {
        let until = self.wire.patience_ends();
        loop {
            let pdu = self.wire.expect_by(until)?;
            match self.admit(&pdu)? {
                TargetPdu::NopIn(ping) if ping.initiator_task_tag.is_reserved() => self.answer_ping(&ping),
                TargetPdu::Async(message) => self.survives(message.event)?,
                parsed => return Ok((parsed, pdu)),
            }
        }
    }

    /// Receives what arrives before `until` without a request.
    pub(crate) fn unasked(&mut self, until: Instant) -> CheckResult<Unsolicited> {
        let left = until.saturating_duration_since(Instant::now());
        // A read timeout of zero is an error of the socket API.
        match self.wire.listen(left.max(Duration::from_millis(1)))? {
            Received::Silence => Ok(Unsolicited::Nothing),
            Received::Closed => Ok(Unsolicited::End),
            Received::Pdu(pdu) => match self.admit(&pdu)? {
                TargetPdu::NopIn(ping) if ping.initiator_task_tag.is_reserved() => Ok(Unsolicited::Ping(ping)),
                TargetPdu::Async(message) => Ok(Unsolicited::Message(message.event)),
                other => Err(Finding::Wrong(format!("nobody asked, and it said {other:?}"))),
            },
        }
    }

    /// Checks that the session survives the event.
    pub(crate) fn survives(&self, event: AsyncEvent) -> CheckResult {
        match event {
            AsyncEvent::ConnectionDropped { .. } | AsyncEvent::SessionDropped { .. } if !self.leaves => {
                Err(Finding::Wrong(format!("it says {event:?}")))
            }
            AsyncEvent::LogoutRequested { .. } => {
                Err(Finding::Untried("somebody has the target send sessions away just now".to_owned()))
            }
            AsyncEvent::NegotiationRequested { .. } => Err(Finding::Untried("it wants to negotiate anew".to_owned())),
            _ => Ok(()),
        }
    }

    /// Checks that nothing but pings and messages arrives for [`SILENCE`](crate::wire::SILENCE).
    pub(crate) fn expect_silence(&mut self) -> CheckResult {
        let until = Instant::now() + crate::wire::SILENCE;
        loop {
            match self.unasked(until)? {
                Unsolicited::Ping(ping) => self.answer_ping(&ping),
                Unsolicited::Message(event) => self.survives(event)?,
                Unsolicited::Nothing => return Ok(()),
                Unsolicited::End => return Err(Finding::Wrong("it closed the connection".to_owned())),
            }
        }
    }

    /// Receives the answer to the command with this tag.
    pub(crate) fn finish(&mut self, tag: u32) -> CheckResult<CommandResult> {
        let mut done = CommandResult {
            status: 0,
            data: Vec::new(),
            residual: Residual::None,
            sense: Vec::new(),
            pieces: Vec::new(),
        };
        loop {
            let (parsed, pdu) = self.receive()?;
            match parsed {
                TargetPdu::DataIn(data_in) if data_in.initiator_task_tag.0 == tag => {
                    done.data.extend_from_slice(&pdu.data);
                    done.pieces.push((data_in, pdu.data.len()));
                    // Phase collapse: the last Data-In carries the status, and no SCSI Response follows (RFC 7143
                    // §11.7.1).
                    if let Some(status) = data_in.status {
                        return Ok(CommandResult { status: status.status, residual: status.residual, ..done });
                    }
                }
                TargetPdu::ScsiResponse(response) if response.initiator_task_tag.0 == tag => {
                    return Ok(CommandResult {
                        data: done.data,
                        pieces: done.pieces,
                        ..CommandResult::of(&response, &pdu)
                    });
                }
                other => return Err(Finding::Wrong(format!("task {tag} was due, and it said {other:?}"))),
            }
        }
    }

    /// Checks the sequence numbers of a PDU: a status has the next StatSN, and the command window never shrinks. Also
    /// checks the format of unsolicited PDUs.
    ///
    /// *Source*: RFC 7143 §4.2.2.1, §4.2.2.2.
    fn admit(&mut self, pdu: &Pdu) -> CheckResult<TargetPdu> {
        let parsed = pdu.parse()?;
        unsolicited::check_format(&parsed, pdu, self.stat_sn)?;
        if !self.is_lenient {
            self.answered.judge(&parsed, pdu, self.stat_sn, self.agreed.error_recovery_level)?;
        }
        if let Some(stat_sn) = counted(&parsed) {
            ensure(stat_sn == self.stat_sn, || {
                format!("a status has the StatSN {}, and {} was due", stat_sn.0, self.stat_sn.0)
            })?;
            self.stat_sn = stat_sn.next();
        }
        // ExpCmdSN and MaxCmdSN are in the same place of all PDUs of a target.
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| pdu.header[at + n]));
        let (exp_cmd_sn, max_cmd_sn) = (CmdSn(word(28)), CmdSn(word(32)));
        ensure(!exp_cmd_sn.precedes(self.exp_cmd_sn), || "ExpCmdSN goes back".to_owned())?;
        ensure(!max_cmd_sn.precedes(self.max_cmd_sn), || "MaxCmdSN goes back".to_owned())?;
        // MaxCmdSN may be ExpCmdSN - 1: the window is closed.
        ensure(!max_cmd_sn.next().precedes(exp_cmd_sn), || {
            format!("MaxCmdSN is {} and ExpCmdSN {}: less than none is no window", max_cmd_sn.0, exp_cmd_sn.0)
        })?;
        (self.exp_cmd_sn, self.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
        Ok(parsed)
    }

    /// Answers a ping of the target with its Target Transfer Tag and LUN, unless it wants no answer.
    pub(crate) fn answer_ping(&mut self, ping: &NopIn) {
        if !ping.target_transfer_tag.is_reserved() {
            self.send_nop_out(ping.lun, InitiatorTaskTag::RESERVED, ping.target_transfer_tag, &[]);
        }
    }

    /// Sends an immediate NOP-Out.
    pub(crate) fn send_nop(&mut self, initiator_task_tag: InitiatorTaskTag, data: &[u8]) {
        self.send_nop_out(Lun(0), initiator_task_tag, TargetTransferTag::RESERVED, data);
    }

    fn send_nop_out(
        &mut self,
        lun: Lun,
        initiator_task_tag: InitiatorTaskTag,
        target_transfer_tag: TargetTransferTag,
        data: &[u8],
    ) {
        // An immediate PDU carries the next CmdSN without consuming it.
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.stat_sn);
        let nop_out = NopOut { immediate: true, lun, initiator_task_tag, target_transfer_tag, cmd_sn, exp_stat_sn };
        let mut header: Bhs = [0; 48];
        nop_out.emit(SegmentLengths::data(data.len()), &mut header);
        self.wire.send(&header, data);
    }

    /// Pings the target; the answer comes after all earlier answers.
    pub(crate) fn ping(&mut self) -> CheckResult {
        let tag = self.next_tag();
        self.send_nop(InitiatorTaskTag(tag), b"conform");
        match self.receive()? {
            (TargetPdu::NopIn(nop_in), pdu) if nop_in.initiator_task_tag.0 == tag => {
                ensure(pdu.data == b"conform", || "a ping came back with other data".to_owned())
            }
            (other, _) => Err(Finding::Wrong(format!("a ping was due, and it said {other:?}"))),
        }
    }
}

/// Returns the portal of a TargetAddress without its group tag.
fn first_of(address: &str) -> String {
    address.split(',').next().unwrap_or_default().to_owned()
}

/// Returns the StatSN that the PDU consumes, if any.
pub(crate) fn counted(pdu: &TargetPdu) -> Option<StatSn> {
    match pdu {
        TargetPdu::DataIn(p) => p.status.map(|status| status.stat_sn),
        // An R2T and a ping of the target carry StatSN without consuming it.
        TargetPdu::R2t(_) => None,
        TargetPdu::NopIn(p) => (!p.initiator_task_tag.is_reserved()).then_some(p.stat_sn),
        TargetPdu::ScsiResponse(p) => Some(p.stat_sn),
        TargetPdu::TaskManagement(p) => Some(p.stat_sn),
        TargetPdu::Text(p) => Some(p.stat_sn),
        TargetPdu::Logout(p) => Some(p.stat_sn),
        TargetPdu::Async(p) => Some(p.stat_sn),
        TargetPdu::Reject(p) => Some(p.stat_sn),
        TargetPdu::Login(p) => Some(p.stat_sn),
    }
}

/// Returns unpredictable bytes from the operating system.
pub(crate) fn random() -> CheckResult<[u8; 32]> {
    let mut bytes = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| bytes).map_err(|why| Finding::Untried(format!("this machine gives no random bytes: {why}")))
}
