//! Definition of a fault: the change to PDUs, and the check that must detect it.

use crate::pdu::{Digests, LOGIN_RESPONSE, Pdu};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Fault of a target that breaks a rule.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub name: &'static str,
    /// Check that must detect the fault, and a part of its message.
    pub found_by: &'static str,
    pub says_that: &'static str,
    /// Change to PDUs of the initiator before the target receives them; emulates a target that misreads requests.
    pub request: Option<PduChange>,
    /// Change to PDUs of the target.
    pub answer: Option<PduChange>,
    /// Hides from the initiator that the target closed the connection.
    pub keeps_open: bool,
    /// Unsolicited PDUs.
    pub says: Says,
}

/// Unsolicited PDUs of a target.
#[derive(Clone, Copy)]
pub(crate) enum Says {
    Nothing,
    /// Sends pings continuously.
    Pings(Pings),
    /// Requests a logout half a second after the login.
    AsksToLeave {
        /// Grace time of the request.
        within_s: u8,
        /// Time until the target closes the connection; `None` leaves it open.
        ends_after_ms: Option<u64>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pings {
    /// Pings that require no answer.
    Unanswerable,
    Answerable,
    /// Pings with data, which the standard forbids.
    WithData,
    /// Pings whose first answer ends the connection.
    EndingAllTheSame,
}

impl Fault {
    /// Returns the fault with this change to requests as well.
    pub(crate) const fn reading(self, plant: PduChange) -> Self {
        Self { request: Some(plant), ..self }
    }

    /// Returns the fault with these unsolicited PDUs.
    pub(crate) const fn saying(self, says: Says) -> Self {
        Self { says, ..self }
    }

    /// Returns the fault of a target that does not close connections.
    pub(crate) const fn keeping_open(self) -> Self {
        Self { keeps_open: true, ..self }
    }

    pub(crate) const fn says_unasked(&self) -> bool {
        !matches!(self.says, Says::Nothing | Says::Pings(Pings::Unanswerable))
    }
}

pub(crate) type PduChange = fn(&mut Pdu, &mut ProxyState) -> PduAction;

/// Treatment of a PDU.
pub(crate) enum PduAction {
    Pass,
    /// Loses the PDU; the next one takes its StatSN.
    Drop,
    /// Sends the PDU twice, each with a StatSN of its own.
    Twice,
    /// Sends these PDUs after it, each with the next StatSN.
    More(Vec<Pdu>),
    /// Sends these PDUs instead, with their own numbers.
    Instead(Vec<Pdu>),
}

impl PduAction {
    pub(crate) fn pdus(self, pdu: Pdu) -> Vec<Pdu> {
        match self {
            Self::Pass => vec![pdu],
            Self::Drop => Vec::new(),
            Self::Twice => vec![pdu.clone(), pdu],
            Self::More(more) => std::iter::once(pdu).chain(more).collect(),
            Self::Instead(pdus) => pdus,
        }
    }
}

/// State of a connection that passes the proxy.
#[derive(Default)]
pub(crate) struct ProxyState {
    /// Address at which the proxy listens.
    pub own: Option<SocketAddr>,
    pub digests: Digests,
    agreed: Digests,
    /// Connection is in full feature phase.
    pub is_in: bool,
    /// StatSN that the initiator expects next.
    pub next_stat_sn: u32,
    /// ExpCmdSN and MaxCmdSN that the initiator knows.
    pub window: [u32; 2],
    /// Statuses that the initiator received in excess of those that the target sent.
    pub shift: u32,
    /// CDBs by initiator task tag.
    cdbs: BTreeMap<u32, [u8; 16]>,
    /// Counter of the fault, for its own use.
    pub count: u32,
    pub pdus: BTreeSet<(u32, u32)>,
    pub kept: Option<Pdu>,
}

impl ProxyState {
    /// Returns the state of a proxy that listens at `own`.
    pub(crate) fn behind(own: SocketAddr) -> Self {
        Self { own: Some(own), ..Self::default() }
    }

    pub(crate) fn note(&mut self, command: &Pdu) {
        let cdb = command.header[32..].try_into().expect("16 bytes");
        self.cdbs.insert(command.tag(), cdb);
    }

    pub(crate) fn note_login(&mut self, response: &Pdu) {
        let text = response.text();
        self.agreed.header |= text.contains("HeaderDigest=CRC32C");
        self.agreed.data |= text.contains("DataDigest=CRC32C");
        // Transit to full feature phase, with success.
        self.is_in =
            response.opcode() == LOGIN_RESPONSE && response.header[1] & 0x83 == 0x83 && response.header[36] == 0;
        self.digests = if self.is_in { self.agreed } else { Digests::default() };
    }

    /// Returns the CDB of the task to which a PDU belongs.
    pub(crate) fn cdb(&self, pdu: &Pdu) -> [u8; 16] {
        self.cdbs.get(&pdu.tag()).copied().unwrap_or([0xff; 16])
    }

    /// True for a PDU of a task with this operation code.
    pub(crate) fn is_of(&self, pdu: &Pdu, operation_code: u8) -> bool {
        self.cdb(pdu)[0] == operation_code
    }

    /// Counts calls; true for the call of this number, from zero on.
    pub(crate) fn is_nth(&mut self, number: u32) -> bool {
        self.count += 1;
        self.count == number + 1
    }
}

/// Fault of a target that changes its answers.
pub(crate) const fn answer(name: &'static str, found_by: &'static str, says: &'static str, plant: PduChange) -> Fault {
    Fault {
        name,
        found_by,
        says_that: says,
        request: None,
        answer: Some(plant),
        keeps_open: false,
        says: Says::Nothing,
    }
}

/// Fault of a target that misreads requests.
pub(crate) const fn request(name: &'static str, found_by: &'static str, says: &'static str, plant: PduChange) -> Fault {
    Fault {
        name,
        found_by,
        says_that: says,
        request: Some(plant),
        answer: None,
        keeps_open: false,
        says: Says::Nothing,
    }
}

/// Fault of a target that does not close connections.
pub(crate) const fn open(name: &'static str, found_by: &'static str, says: &'static str) -> Fault {
    Fault { name, found_by, says_that: says, request: None, answer: None, keeps_open: true, says: Says::Nothing }
}

/// Fault of a target that sends an unsolicited PDU.
pub(crate) const fn unasked(name: &'static str, found_by: &'static str, says: &'static str, what: Says) -> Fault {
    Fault { found_by, says_that: says, ..allowed(name, None) }.saying(what)
}

/// Target behavior that no rule forbids.
pub(crate) const fn allowed(name: &'static str, answer: Option<PduChange>) -> Fault {
    Fault { name, found_by: "", says_that: "", request: None, answer, keeps_open: false, says: Says::Nothing }
}

/// Applies the fault where `when` is true.
pub(crate) fn only(when: bool, change: impl FnOnce()) -> PduAction {
    if when {
        change();
    }
    PduAction::Pass
}
