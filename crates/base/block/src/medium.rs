//! How long disks take: models of what is in them, for a simulated world and for the real one alike. They have no clock; the
//! time is an argument, in nanoseconds of any clock that does not go back.
//!
//! An operation is told to [`Timing::submit`]; [`Timing::poll`] says whether it has ended, or when to ask again.

mod flash;
mod spindle;

use flash::Flash;
use spindle::Spindle;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What a disk is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A SAS disk at 15,000 turns a minute.
    Sas15k,
    /// A SATA disk at 7,200.
    Sata,
    /// A SATA SSD.
    Ssd,
    /// An NVMe SSD.
    Nvme,
}

/// Data that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Motion {
    /// Its first byte on the disk.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// True towards the disk.
    pub write: bool,
}

/// An operation that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has ended.
    Ended,
    /// It has not; ask again at this time.
    Until(u64),
}

/// One disk, and what it has to do.
///
/// *Shape*: the arm's stroke is so many bytes, whatever they are, so that a small disk seeks like a full one of its kind.
#[derive(Clone, Debug)]
pub struct Timing {
    works: Works,
    /// When each ends, once that is known; those that nobody asks for any more are not here.
    ends: BTreeMap<Ticket, Option<u64>>,
    submitted: u64,
}

#[derive(Clone, Debug)]
enum Works {
    Spindle(Spindle),
    Flash(Flash),
}

impl Medium {
    /// All of them, slowest first.
    pub const ALL: [Self; 4] = [Self::Sata, Self::Sas15k, Self::Ssd, Self::Nvme];

    /// Its name in scenarios and arguments.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sas15k => "sas15k",
            Self::Sata => "sata",
            Self::Ssd => "ssd",
            Self::Nvme => "nvme",
        }
    }
}

impl FromStr for Medium {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|medium| medium.as_str() == text);
        found.ok_or_else(|| format!("there is no medium \"{text}\"; write sas15k, sata, ssd or nvme"))
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Timing {
    /// An idle disk whose arm, where it has one, goes from end to end over `stroke_bytes`.
    #[must_use]
    pub fn new(medium: Medium, stroke_bytes: u64) -> Self {
        let works = match medium {
            Medium::Sas15k => Works::Spindle(Spindle::new(spindle::SAS_15K, stroke_bytes)),
            Medium::Sata => Works::Spindle(Spindle::new(spindle::SATA, stroke_bytes)),
            Medium::Ssd => Works::Flash(Flash::new(flash::SATA)),
            Medium::Nvme => Works::Flash(Flash::new(flash::NVME)),
        };
        Self { works, ends: BTreeMap::new(), submitted: 0 }
    }

    /// The disk has one thing more to do from `now` on.
    pub fn submit(&mut self, now: u64, motion: Motion) -> Ticket {
        self.advance(now);
        self.submitted += 1;
        let ticket = Ticket(self.submitted);
        let end = match &mut self.works {
            Works::Spindle(spindle) => {
                spindle.submit(now, ticket, motion);
                None
            }
            Works::Flash(flash) => Some(flash.submit(now, motion)),
        };
        self.ends.insert(ticket, end);
        ticket
    }

    /// How the operation stands at `now`. Of one that has ended this is told once.
    ///
    /// *Panics*: when that was told before.
    pub fn poll(&mut self, now: u64, ticket: Ticket) -> Progress {
        self.advance(now);
        match *self.ends.get(&ticket).expect("an end is told once") {
            Some(end) if end <= now => {
                self.ends.remove(&ticket);
                Progress::Ended
            }
            Some(end) => Progress::Until(end),
            None => Progress::Until(self.free_at().max(now + 1)),
        }
    }

    /// Nobody asks for the operation any more; the disk does it all the same.
    pub fn forget(&mut self, ticket: Ticket) {
        self.ends.remove(&ticket);
    }

    fn advance(&mut self, now: u64) {
        let Works::Spindle(spindle) = &mut self.works else { return };
        while let Some((ticket, end)) = spindle.next(now) {
            if let Some(known) = self.ends.get_mut(&ticket) {
                *known = Some(end);
            }
        }
    }

    fn free_at(&self) -> u64 {
        match &self.works {
            Works::Spindle(spindle) => spindle.free_at(),
            Works::Flash(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests;
