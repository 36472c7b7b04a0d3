//! How a remote disk is opened, and what it tells: configuration, states of paths, events.

use crate::fence::FenceError;
use crate::login::LoginError;
use crate::page::AccessState;
use iscsi::login::InitiatorAuth;
use iscsi::{DigestOffer, IscsiName};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// What a remote disk is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// To look at it: nothing is registered, and nobody else is kept from writing.
    Look,
    /// To read and write: every path registers a key, and foreign initiators cannot write.
    Own {
        /// Registrations of other initiators are preempted; else they are an error.
        force: bool,
    },
}

/// A logical unit of another array, and how it is reached.
#[derive(Clone)]
pub struct DiskConfig {
    /// The portals, each a path; at least one.
    pub portals: Vec<SocketAddr>,
    /// The target.
    pub target: IscsiName,
    /// The logical unit number.
    pub lun: u16,
    /// The initiator's name.
    pub initiator: IscsiName,
    /// CHAP credentials.
    pub auth: InitiatorAuth,
    /// Header and data digests.
    pub digests: DigestOffer,
    /// The array that opens it: its reservation keys and ISIDs are made of this, so that a daemon knows its own.
    pub owner: [u8; 16],
    /// Bytes of a block that the opener addresses: a multiple of the unit's own.
    pub block_bytes: u32,
    /// What it is opened for.
    pub usage: Use,
    /// How long I/O waits while no path is usable. Then the disk fails with `Gone`, and stays so.
    pub no_path_limit: Duration,
    /// How long a path may be silent before it is pinged, and how long the answer may take. Twice that, and it is lost.
    pub ping_interval: Duration,
    /// Receives what happens to the paths.
    pub events: Rc<dyn Fn(DiskEvent)>,
}

impl DiskConfig {
    /// The unit `lun` of `target` at `portals`, opened to own it, with the default time limits.
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
            usage: Use::Own { force: false },
            no_path_limit: Duration::from_secs(30),
            ping_interval: Duration::from_secs(5),
            events: Rc::new(|_| ()),
        }
    }

    /// `iscsi://host:port,host2:port2/target/lun`, without user and secret.
    #[must_use]
    pub fn address(&self) -> String {
        let portals: Vec<String> = self.portals.iter().map(ToString::to_string).collect();
        format!("iscsi://{}/{}/{}", portals.join(","), self.target.as_str(), self.lun)
    }
}

/// Something that has happened to a remote disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// A path was lost, and how many are left.
    PathLost {
        /// The portal.
        portal: SocketAddr,
        /// The reason, as a sentence.
        reason: String,
        /// Usable paths that are left.
        left: usize,
    },
    /// A path is usable again.
    PathRestored {
        /// The portal.
        portal: SocketAddr,
        /// The reservation key that it has registered; zero without reservations.
        key: u64,
    },
    /// The writes of a lost path have ended, as a living one has made sure.
    PathFenced {
        /// The portal of the lost path.
        portal: SocketAddr,
        /// The key that was preempted; zero after a LOGICAL UNIT RESET.
        key: u64,
    },
    /// No path was usable for the time limit: the disk has failed.
    Unreachable {
        /// The last reason that a path gave.
        reason: String,
    },
}

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathState {
    /// It is logged in, and takes I/O or could.
    Up,
    /// It is not logged in, for this reason; it is tried again.
    Down(String),
}

/// A path, as reports show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// The portal.
    pub portal: SocketAddr,
    /// Whether it is logged in.
    pub state: PathState,
    /// The access state of its target port group.
    pub access: AccessState,
    /// True for the path that I/O goes over.
    pub is_active: bool,
    /// How often it was lost since the disk was opened.
    pub losses: u64,
    /// Commands that it has carried.
    pub commands: u64,
    /// Bytes that it has carried.
    pub bytes: u64,
}

/// A remote disk that could not be opened, as a sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No path could log in; the reason of the last one.
    #[error(transparent)]
    NoPath(LoginError),
    /// The unit could not be asked, or reserved.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// A command to learn about the unit failed.
    #[error("{command} ended with status {status:#04x}, sense {sense:02x?}")]
    Refused {
        /// The command's name.
        command: &'static str,
        /// The SCSI status.
        status: u8,
        /// The sense data.
        sense: Vec<u8>,
    },
    /// The unit is no disk, or there is no unit.
    #[error("LUN {0} is not a disk of this target, or is not mapped to this initiator")]
    NoUnit(u16),
    /// Two paths lead to different units.
    #[error("{portal} leads to another logical unit ({found}) than the other path ({expected})")]
    OtherUnit {
        /// The portal.
        portal: SocketAddr,
        /// The identity there.
        found: String,
        /// The identity of the first path.
        expected: String,
    },
    /// The unit has neither designators nor a serial number.
    #[error(
        "LUN {0} tells neither an identity (VPD page 83h) nor a serial number, so it could be confused with another"
    )]
    NoIdentity(u16),
    /// The block sizes do not fit.
    #[error("the unit has blocks of {found} bytes, which do not divide {wanted}")]
    BlockBytes {
        /// Those of the unit.
        found: u32,
        /// Those that are addressed.
        wanted: u32,
    },
}
