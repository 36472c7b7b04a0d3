//! Unit under test, and the pages and fields that describe it.

use crate::checks::send_whole;
use crate::session::{CommandResult, Session, random};
use crate::{CheckResult, Finding, TestTarget};
use iscsi::pdu::Isid;

/// Allocation length used for pages, in bytes.
const PAGE_BYTES: u16 = 1024;

/// Unit, accessed through one session.
pub(super) struct Unit {
    session: Session,
    aim: TestTarget,
    /// Block that may be overwritten with its own content.
    pub scratch: Option<u64>,
}

/// Parameter data; missing bytes read as zero.
pub(super) struct Answer(pub Vec<u8>);

impl Answer {
    pub(super) fn u8(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([0, 1].map(|n| self.u8(at + n)))
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes([0, 1, 2, 3].map(|n| self.u8(at + n)))
    }

    pub(super) fn bit(&self, at: usize, bit: u8) -> bool {
        self.u8(at) >> bit & 1 != 0
    }
}

impl Unit {
    pub(super) fn of(session: Session, aim: &TestTarget, scratch: Option<u64>) -> Self {
        Self { session, aim: aim.clone(), scratch }
    }

    /// Opens another session with the same unit, from another initiator port.
    pub(super) fn through_another_session(&self) -> CheckResult<Self> {
        self.through(|isid| isid.0[5] ^= 0x5A)
    }

    /// Opens a session from a port without registration: its ISID is random.
    ///
    /// *Source*: RFC 7143 §11.12.5 (qualifier 10b).
    pub(super) fn through_a_new_port(&self) -> CheckResult<Self> {
        let random = random()?;
        // The first byte keeps the type, which marks the rest as random.
        self.through(|isid| isid.0[1..].copy_from_slice(&random[..5]))
    }

    fn through(&self, change: impl Fn(&mut Isid)) -> CheckResult<Self> {
        let mut session = Session::login(&self.aim, |config| change(&mut config.isid))?;
        session.is_lenient = true;
        session.ready()?;
        Ok(Self { session, aim: self.aim.clone(), scratch: self.scratch })
    }

    /// Sends a command and returns its data.
    ///
    /// *Errors*: the command is refused.
    pub(super) fn ask(&mut self, name: &str, cdb: &[u8], bytes: u32) -> CheckResult<Answer> {
        let done = self.session.read(cdb, bytes)?;
        if done.status == 0 {
            return Ok(Answer(done.data));
        }
        let sense = done.sensed().filter(|_| done.status == 2).map_or(String::new(), |sensed| {
            let (key, code, qualifier) = sensed.triple();
            format!(", sense {key:x}/{code:02x}/{qualifier:02x}")
        });
        Err(Finding::Wrong(format!("{name} is refused: status {:#04x}{sense}", done.status)))
    }

    /// Sends a command with data for the unit.
    pub(super) fn send(&mut self, cdb: &[u8], data: &[u8]) -> CheckResult<CommandResult> {
        send_whole(&mut self.session, cdb, data)
    }

    /// Sends a command without data.
    pub(super) fn end(&mut self, cdb: &[u8]) -> CheckResult<CommandResult> {
        self.session.read(cdb, 0)
    }

    /// Reads the standard INQUIRY data.
    pub(super) fn inquiry(&mut self) -> CheckResult<Answer> {
        self.ask("INQUIRY", &[0x12, 0, 0, 0, 96, 0], 96)
    }

    /// Reads a page of vital product data.
    pub(super) fn vital(&mut self, page: u8) -> CheckResult<Answer> {
        let [high, low] = PAGE_BYTES.to_be_bytes();
        let answer = self.ask(&format!("page {page:02X}h"), &[0x12, 1, page, high, low, 0], PAGE_BYTES.into())?;
        if answer.u8(1) == page {
            return Ok(answer);
        }
        Err(Finding::Wrong(format!("page {page:02X}h was asked for, and {:02X}h came", answer.u8(1))))
    }

    /// Reads the data of READ CAPACITY (16).
    pub(super) fn capacity(&mut self) -> CheckResult<Answer> {
        self.ask("READ CAPACITY (16)", &[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32)
    }

    /// Returns the length of a logical block in bytes.
    pub(super) fn block_bytes(&mut self) -> CheckResult<u32> {
        Ok(self.capacity()?.u32(8))
    }

    /// Checks with REPORT SUPPORTED OPERATION CODES that the unit supports the operation.
    ///
    /// *Errors*: the unit says that it does not, or does not say.
    pub(super) fn supports(&mut self, name: &str, code: u8, action: Option<u8>) -> CheckResult {
        // REPORTING OPTIONS: one command by operation code, with or without a service action.
        let how = if action.is_some() { 2 } else { 1 };
        let cdb = [0xA3, 0x0C, how, code, 0, action.unwrap_or(0), 0, 0, 0, 64, 0, 0];
        let answer = self
            .ask("REPORT SUPPORTED OPERATION CODES", &cdb, 64)
            .map_err(|_| Finding::Untried("the target does not say what it supports".to_owned()))?;
        // SUPPORT: 3 is supported as in a standard, 5 in a vendor's way, 0 is not known yet (SPC-4).
        match answer.u8(1) & 0x07 {
            3 | 5 => Ok(()),
            0 => Err(Finding::Untried(format!("the target does not say yet whether it supports {name}"))),
            _ => Err(Finding::Wrong(format!("{name} is not supported"))),
        }
    }

    /// Reads a mode page, from its first byte on, and the header in front of it.
    pub(super) fn mode(&mut self, page: u8, subpage: u8) -> CheckResult<(Answer, Answer)> {
        // DBD asks for no block descriptors, but a target may send them all the same.
        let answer = self.ask("MODE SENSE (6)", &[0x1A, 0x08, page, subpage, 252, 0], 252)?;
        // Block descriptors, whose length is in byte 3, follow the header of four bytes.
        let behind = answer.0.get(4 + usize::from(answer.u8(3))..).unwrap_or_default().to_vec();
        Ok((Answer(behind), answer))
    }

    /// Reads the data of PERSISTENT RESERVE IN.
    pub(super) fn reservations(&mut self, action: u8) -> CheckResult<Answer> {
        let [high, low] = PAGE_BYTES.to_be_bytes();
        let cdb = [0x5E, action, 0, 0, 0, 0, 0, high, low, 0];
        self.ask("PERSISTENT RESERVE IN", &cdb, PAGE_BYTES.into())
    }
}
