//! Vocabulary of the array: the objects that operators name, and the messages between control plane and data plane.
//!
//! The control plane sends an [`Order`] to the data plane and receives a [`Report`] or a [`Refusal`]. All types are
//! plain data, without access to clock, disk or network.

mod absent;
mod access;
mod activity;
mod advertised;
mod alert;
mod block_device;
mod call;
mod chap;
mod check;
pub mod code;
mod config_version;
mod confinement;
mod copy;
mod disk;
mod engine;
pub mod event;
mod finding;
mod health;
pub mod histogram;
mod id;
mod iqn;
mod isns;
mod latency;
mod level;
mod link;
mod listing;
mod lost;
mod member_size;
mod membership;
mod memory;
mod name;
mod network;
mod number;
mod operation;
mod order;
pub mod policy;
mod pool;
mod portal;
mod portal_group;
mod recording;
mod refusal;
mod refused;
mod remote;
mod report;
mod reservation;
mod role;
mod scrub;
mod secret;
mod session;
mod setting;
mod size;
mod snapshot;
mod span;
pub mod spread;
mod status;
mod task;
mod time;
mod trace;
mod user;
mod volume;
pub mod volume_policy;
mod web;

pub use absent::{Absence, AbsentVolume, NamedUnitAttributes, UnitAttributes};
pub use access::{Access, EVERYONE, Host, Initiators, Presentation, Target, is_shown_in};
pub use activity::{Activity, SessionActivity, Took, VolumeActivity};
pub use advertised::Advertised;
pub use alert::{
    AlertFacts, AlertReport, ForwardReport, MailTls, ReceiverReport, ReceiverTest, ReceiverTrust, ReceiverWay,
    SilenceReport, WebhookForm,
};
pub use block_device::{BlockDeviceReport, BlockDeviceState, Transport};
pub use call::{Call, Reply};
pub use chap::{AuthPolicy, Chap, ChapAlgorithm, ChapCredentials, Demand};
pub use check::{CheckFinding, CheckKind, PoolCheck};
pub use code::Code;
pub use config_version::ConfigVersion;
pub use confinement::{Measure, MeasureReport, MeasureState};
pub use copy::{CopyReport, CopySource};
pub use disk::{
    DiskCounters, DiskIdentity, DiskReport, DiskState, FormerMember, Label, LabelOwner, SpareReport, UNKNOWN_DATA,
};
pub use engine::{EngineReport, NodeIdentity};
pub use event::{Event, EventCode, EventSeverity, Raised, Subject, SubjectKind};
pub use finding::{Finding, Grade};
pub use health::DiskHealth;
pub use histogram::Histogram;
pub use id::{DiskId, MachineId, NodeId, PoolId, SnapshotId, VolumeId};
pub use iqn::Iqn;
pub use isns::{IsnsReport, IsnsServer, IsnsState};
pub use latency::LatencyReport;
pub use level::Level;
pub use link::LocalAddress;
pub use listing::first_few;
pub use lost::{LostBlocks, LostRange};
pub use member_size::MemberSize;
pub use membership::{MemberDisk, PoolMembership};
pub use memory::MemoryReport;
pub use name::{DiskName, Name, VolumeName};
pub use network::Network;
pub use operation::{OperationId, OperationKind, OperationReport};
pub use order::{GroupSpec, Order, VolumeSpec};
pub use policy::{
    DISK_DEADLINE, DISK_WAIT, ErrorPolicy, PoolPolicy, RepairMode, RepairPolicy, ScrubEvery, ScrubPolicy, SpacePolicy,
    Window,
};
pub use pool::{
    GroupReport, LogReport, LogState, MemberCopy, MemberFitness, MemberLatency, MemberReport, MemberState, NextSpare,
    PoolReport, PoolState, PoolWaiting, Progress, SpaceState,
};
pub use portal::{
    Balance, ISCSI_PORT, PORTAL_SETTINGS, Portal, PortalAddress, PortalPolicy, PortalReport, PortalRole, PortalState,
    only_fronts,
};
pub use portal_group::{GroupAccess, PORTAL_GROUP_SETTINGS, PortalGroupPolicy, PortalGroupReport, PortalGroupTag};
pub use recording::{Recordable, Recorded, Recordings, Wire, WireEnds};
pub use refusal::{Kind, ParseRefusal, Refusal};
pub use refused::{ProofLack, RefusedLogin, RefusedWhy};
pub use remote::{DiskPathReport, DiskPathState, PATHS_MAX, RemoteAddress, RemoteLogin, RemoteReport, RemoteUrl};
pub use report::Report;
pub use reservation::{DeniedAccess, RegistrationReport, ReservationKind, ReservationReport};
pub use role::Role;
pub use scrub::{ScrubReport, ScrubState};
pub use secret::Secret;
pub use session::{
    CommandWindow, ConnectionReport, ConnectionState, ReservationRole, SessionDetail, SessionEnd, SessionKind,
    SessionLoss, SessionNumber, SessionReport, SessionReservation,
};
pub use size::Size;
pub use snapshot::{SnapshotLock, SnapshotName, SnapshotReport, SnapshotState};
pub use span::Span;
pub use status::{Problem, Severity, StatusReport};
pub use task::{TaskReport, TaskStage};
pub use time::Timestamp;
pub use trace::{TRACE_COMMANDS, TRACE_COMMANDS_MAX, TraceReport, Traced, TracedCommand};
pub use user::{
    AuthMethod, CallerReport, LoginReport, NewTokenReport, Scope, SecondFactorReport, TokenReport, UserReport,
};
pub use volume::{
    Backend, POOL_VOLUMES_MAX, Provision, SanitizeReport, SpaceReport, VOLUME_SIZE_MIN, VOLUMES_MAX, VolumeCounters,
    VolumeReport, VolumeState,
};
pub use volume_policy::{CacheReport, ReadAhead, VolumePolicy, WritePolicy};
pub use web::{CertificateReport, LinkReport, WebAddress, WebReport};
