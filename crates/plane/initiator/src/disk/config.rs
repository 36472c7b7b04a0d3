//! Configuration, path states and events of a remote disk.

use crate::fence::FenceError;
use crate::login::LoginError;
use crate::page::AccessState;
use iscsi::login::InitiatorAuth;
use iscsi::{DigestOffer, IscsiName};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Purpose of opening a remote disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Inspection: registers nothing, and does not exclude other writers.
    Inspect,
    /// Reading and writing: every path registers a key, and other initiators cannot write.
    ReadWrite {
        /// True to preempt registrations of other initiators; otherwise they are an error.
        force: bool,
    },
}

/// Logical unit of another array, with its paths.
#[derive(Clone)]
pub struct DiskConfig {
    /// Portals, each of which is one path; at least one.
    pub portals: Vec<SocketAddr>,
    /// Target name.
    pub target: IscsiName,
    /// Logical unit number.
    pub lun: u16,
    /// Initiator name of this array.
    pub initiator: IscsiName,
    /// CHAP credentials.
    pub auth: InitiatorAuth,
    /// Header and data digests to offer.
    pub digests: DigestOffer,
    /// Identity of this array. Reservation keys and ISIDs are derived from it, so that a daemon recognizes its own.
    pub owner: [u8; 16],
    /// Block size of the device in bytes: a multiple of the unit's own.
    pub block_bytes: u32,
    /// Purpose of opening.
    pub usage: OpenMode,
    /// No-path timeout: time that I/O waits without a usable path. After it the disk fails with `Gone`, permanently.
    pub no_path_limit: Duration,
    /// Silence after which a path is pinged, and limit for the answer. A path is lost after twice this time.
    pub ping_interval: Duration,
    /// Receiver of path events.
    pub events: Rc<dyn Fn(DiskEvent)>,
}

impl DiskConfig {
    /// Returns the configuration of `lun` of `target` at `portals` for reading and writing, with the default time
    /// limits.
    #[must_use]
    pub fn new(portals: Vec<SocketAddr>, target: IscsiName, lun: u16, initiator: IscsiName, owner: [u8; 16]) -> Self {
        Self {
            portals,
            target,
            lun,
            initiator,
            auth: InitiatorAuth::None,
            digests: DigestOffer::Accepted,
            owner,
            block_bytes: 4096,
            usage: OpenMode::ReadWrite { force: false },
            no_path_limit: Duration::from_secs(30),
            ping_interval: Duration::from_secs(5),
            events: Rc::new(|_| ()),
        }
    }

    /// Formats the address as `iscsi://host:port,host2:port2/target/lun`, without user and secret.
    #[must_use]
    pub fn address(&self) -> String {
        let portals: Vec<String> = self.portals.iter().map(ToString::to_string).collect();
        format!("iscsi://{}/{}/{}", portals.join(","), self.target.as_str(), self.lun)
    }
}

/// Event of a remote disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// A path was lost.
    PathLost {
        /// Portal of the path.
        portal: SocketAddr,
        /// Reason, as a sentence.
        reason: String,
        /// Number of usable paths left.
        left: usize,
    },
    /// A path is available again.
    PathRestored {
        /// Portal of the path.
        portal: SocketAddr,
        /// Reservation key that it has registered; zero without reservations.
        key: u64,
    },
    /// The writes of a lost path have been ended through another path.
    PathFenced {
        /// Portal of the lost path.
        portal: SocketAddr,
        /// Preempted key; zero after a LOGICAL UNIT RESET.
        key: u64,
    },
    /// The disk has failed: no path was usable for the no-path timeout.
    Unreachable {
        /// Last reason that a path reported.
        reason: String,
    },
}

/// Login state of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathState {
    /// Logged in.
    Up,
    /// Not logged in, for this reason; the login is retried.
    Down(String),
}

/// State and counters of a path, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// Portal of the path.
    pub portal: SocketAddr,
    /// Login state.
    pub state: PathState,
    /// ALUA access state of its target port group.
    pub access: AccessState,
    /// True for the path that carries I/O.
    pub is_active: bool,
    /// Number of times that the path was lost since the disk was opened.
    pub losses: u64,
    /// Commands carried.
    pub commands: u64,
    /// Bytes carried.
    pub bytes: u64,
}

/// Reason why a remote disk could not be opened, as a sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No path could log in; the error of the last one.
    #[error(transparent)]
    NoPath(LoginError),
    /// The reservation commands failed, or another initiator holds the unit.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// An inquiry command failed.
    #[error("{command} ended with status {status:#04x}, sense {sense:02x?}")]
    Refused {
        /// Name of the command.
        command: &'static str,
        /// SCSI status.
        status: u8,
        /// Sense data.
        sense: Vec<u8>,
    },
    /// The LUN does not exist, or is not a disk.
    #[error("LUN {0} is not a disk of this target, or is not mapped to this initiator")]
    NoUnit(u16),
    /// Two paths lead to different logical units.
    #[error("{portal} leads to another logical unit ({found}) than the other path ({expected})")]
    OtherUnit {
        /// Portal of the second path.
        portal: SocketAddr,
        /// Identity of the unit there.
        found: String,
        /// Identity of the unit on the first path.
        expected: String,
    },
    /// The unit reports neither designators nor a serial number.
    #[error(
        "LUN {0} tells neither an identity (VPD page 83h) nor a serial number, so it could be confused with another"
    )]
    NoIdentity(u16),
    /// The unit cannot serve blocks of the requested size.
    #[error(transparent)]
    BlockBytes(#[from] BlockBytesError),
}

/// Reason why a unit cannot serve blocks of the requested size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockBytesError {
    /// The block size of the unit does not divide the requested one.
    #[error("the unit has blocks of {found} bytes, which do not divide {wanted}")]
    Indivisible {
        /// Block size of the unit.
        found: u32,
        /// Requested block size.
        wanted: u32,
    },
    /// One command of the unit transfers less than a block of the requested size.
    #[error("the unit transfers at most {found} bytes with one command, which is less than a block of {wanted}")]
    TransferTooShort {
        /// Largest transfer of one command in bytes.
        found: u32,
        /// Requested block size.
        wanted: u32,
    },
}
