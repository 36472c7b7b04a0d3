//! A fault: what it changes on the way, and which check finds it.

use crate::pdu::{Digests, LOGIN_RESPONSE, Pdu};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// A rule that a target breaks.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub name: &'static str,
    /// The check that must find it, and a part of what it must say.
    pub found_by: &'static str,
    pub says_that: &'static str,
    /// What is done to PDUs of the initiator before the target has them, as a target would that reads them so.
    pub request: Option<Plant>,
    /// What is done to PDUs of the target.
    pub answer: Option<Plant>,
    /// The target's end of a connection is kept from the initiator.
    pub keeps_open: bool,
    /// What comes unasked.
    pub says: Says,
}

/// What a target says unasked.
#[derive(Clone, Copy)]
pub(crate) enum Says {
    Nothing,
    /// Pings all the time.
    Pings(Pings),
    /// Half a second after a login it asks for a logout.
    AsksToLeave {
        /// How long it gives.
        within_s: u8,
        /// How long it waits then.
        ends_after_ms: Option<u64>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pings {
    /// Nobody has to answer.
    Unanswerable,
    Answerable,
    /// They are not made as they must be.
    WithData,
    /// The connection ends with the first answer.
    EndingAllTheSame,
}

impl Fault {
    /// The same, of a target that reads requests so, too.
    pub(crate) const fn reading(self, plant: Plant) -> Self {
        Self { request: Some(plant), ..self }
    }

    /// The same, of a target that says this unasked.
    pub(crate) const fn saying(self, says: Says) -> Self {
        Self { says, ..self }
    }

    /// The same, of a target that does not close connections.
    pub(crate) const fn keeping_open(self) -> Self {
        Self { keeps_open: true, ..self }
    }

    pub(crate) const fn says_unasked(&self) -> bool {
        !matches!(self.says, Says::Nothing | Says::Pings(Pings::Unanswerable))
    }
}

pub(crate) type Plant = fn(&mut Pdu, &mut Seen) -> Deed;

/// What becomes of a PDU.
pub(crate) enum Deed {
    Pass,
    /// It is lost, and its StatSN is given to the next one.
    Drop,
    /// It comes twice, each with a StatSN of its own.
    Twice,
    /// Behind it come these, each with the next StatSN.
    More(Vec<Pdu>),
    /// These come, numbered as they are.
    Instead(Vec<Pdu>),
}

impl Deed {
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

/// What went over a connection so far.
#[derive(Default)]
pub(crate) struct Seen {
    /// Where the proxy listens.
    pub own: Option<SocketAddr>,
    pub digests: Digests,
    agreed: Digests,
    /// In full feature phase.
    pub is_in: bool,
    /// The StatSN that the initiator waits for.
    pub next_stat_sn: u32,
    /// ExpCmdSN and MaxCmdSN that it has.
    pub window: [u32; 2],
    /// How many more statuses the initiator has than the target sent.
    pub shift: u32,
    /// CDBs by task tag.
    cdbs: BTreeMap<u32, [u8; 16]>,
    /// What a fault counts or remembers.
    pub count: u32,
    pub pdus: BTreeSet<(u32, u32)>,
    pub kept: Option<Pdu>,
}

impl Seen {
    /// Of a proxy that listens there.
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

    /// The CDB of the task that a PDU is about.
    pub(crate) fn cdb(&self, pdu: &Pdu) -> [u8; 16] {
        self.cdbs.get(&pdu.tag()).copied().unwrap_or([0xff; 16])
    }

    /// True for a PDU of a task whose operation code this is.
    pub(crate) fn is_of(&self, pdu: &Pdu, operation_code: u8) -> bool {
        self.cdb(pdu)[0] == operation_code
    }

    /// Counts what is asked about: true for the one of this number, from zero on.
    pub(crate) fn is_nth(&mut self, number: u32) -> bool {
        self.count += 1;
        self.count == number + 1
    }
}

/// A target that answers so.
pub(crate) const fn answer(name: &'static str, found_by: &'static str, says: &'static str, plant: Plant) -> Fault {
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

/// A target that reads requests so.
pub(crate) const fn request(name: &'static str, found_by: &'static str, says: &'static str, plant: Plant) -> Fault {
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

/// A target that does not close connections.
pub(crate) const fn open(name: &'static str, found_by: &'static str, says: &'static str) -> Fault {
    Fault { name, found_by, says_that: says, request: None, answer: None, keeps_open: true, says: Says::Nothing }
}

/// A target that says something unasked.
pub(crate) const fn unasked(name: &'static str, found_by: &'static str, says: &'static str, what: Says) -> Fault {
    Fault { found_by, says_that: says, ..allowed(name, None) }.saying(what)
}

/// A target without fault, and one that does what no rule forbids.
pub(crate) const fn allowed(name: &'static str, answer: Option<Plant>) -> Fault {
    Fault { name, found_by: "", says_that: "", request: None, answer, keeps_open: false, says: Says::Nothing }
}

/// The fault, where `when` holds of a PDU.
pub(crate) fn only(when: bool, change: impl FnOnce()) -> Deed {
    if when {
        change();
    }
    Deed::Pass
}
