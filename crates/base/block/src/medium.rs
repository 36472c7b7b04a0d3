//! Latency models of disks, used by the simulator and by disks that emulate a medium. They have no clock: the time is
//! an argument, in nanoseconds of any monotonic clock.
//!
//! [`Timing::submit`] starts an operation; [`Timing::poll`] returns whether it has finished, or when to poll again.

mod flash;
mod spindle;

use flash::Flash;
use spindle::Spindle;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Type of disk that is modeled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// SAS disk at 15,000 rpm.
    Sas15k,
    /// SATA disk at 7,200 rpm.
    Sata,
    /// SATA SSD.
    Ssd,
    /// NVMe SSD.
    Nvme,
}

/// One data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// First byte on the disk.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// True for a write.
    pub write: bool,
}

/// Handle of a submitted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationHandle(u64);

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Finished.
    Ended,
    /// Not finished; poll again at this time, in nanoseconds.
    Until(u64),
}

/// Latency model of one disk and its queue.
///
/// *Shape*: the full stroke of the arm covers `stroke_bytes`, whatever they are, so that a small disk seeks like a full
/// one of its kind.
#[derive(Clone, Debug)]
pub struct Timing {
    works: Model,
    /// Completion time of each operation, `None` while unknown; without forgotten operations.
    ends: BTreeMap<OperationHandle, Option<u64>>,
    submitted: u64,
}

#[derive(Clone, Debug)]
enum Model {
    Spindle(Spindle),
    Flash(Flash),
}

impl Medium {
    /// All media, slowest first.
    pub const ALL: [Self; 4] = [Self::Sata, Self::Sas15k, Self::Ssd, Self::Nvme];

    /// Name in scenarios and arguments.
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
    /// Returns an idle disk. A rotating one moves its arm from end to end over `stroke_bytes`.
    #[must_use]
    pub fn new(medium: Medium, stroke_bytes: u64) -> Self {
        let works = match medium {
            Medium::Sas15k => Model::Spindle(Spindle::new(spindle::SAS_15K, stroke_bytes)),
            Medium::Sata => Model::Spindle(Spindle::new(spindle::SATA, stroke_bytes)),
            Medium::Ssd => Model::Flash(Flash::new(flash::SATA)),
            Medium::Nvme => Model::Flash(Flash::new(flash::NVME)),
        };
        Self { works, ends: BTreeMap::new(), submitted: 0 }
    }

    /// Submits an operation at `now`.
    pub fn submit(&mut self, now: u64, motion: Transfer) -> OperationHandle {
        // Time advances before the operation is queued, so that it cannot affect decisions of the past.
        self.advance(now);
        self.submitted += 1;
        let ticket = OperationHandle(self.submitted);
        let end = match &mut self.works {
            // A spindle reorders its queue, so the completion time of this operation depends on those that follow it.
            Model::Spindle(spindle) => {
                spindle.submit(now, ticket, motion);
                None
            }
            Model::Flash(flash) => Some(flash.submit(now, motion)),
        };
        self.ends.insert(ticket, end);
        ticket
    }

    /// Returns the state of the operation at `now`. [`Progress::Ended`] is returned once.
    ///
    /// *Panics*: when it was returned before.
    pub fn poll(&mut self, now: u64, ticket: OperationHandle) -> Progress {
        self.advance(now);
        match *self.ends.get(&ticket).expect("an end is told once") {
            Some(end) if end <= now => {
                self.ends.remove(&ticket);
                Progress::Ended
            }
            Some(end) => Progress::Until(end),
            // Not scheduled yet: the model decides again when the arm is free. `+ 1` keeps a caller from polling in
            // place.
            None => Progress::Until(self.free_at().max(now + 1)),
        }
    }

    /// Drops the handle of an operation that nobody waits for. The disk carries it out all the same.
    pub fn forget(&mut self, ticket: OperationHandle) {
        self.ends.remove(&ticket);
    }

    fn advance(&mut self, now: u64) {
        let Model::Spindle(spindle) = &mut self.works else { return };
        while let Some((ticket, end)) = spindle.next(now) {
            // A forgotten operation still occupies the arm; only its end is not recorded.
            if let Some(known) = self.ends.get_mut(&ticket) {
                *known = Some(end);
            }
        }
    }

    fn free_at(&self) -> u64 {
        match &self.works {
            Model::Spindle(spindle) => spindle.free_at(),
            // Never asked for flash: its completion times are known at the submission.
            Model::Flash(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests;
