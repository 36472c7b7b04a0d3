//! Planted bugs: safety mechanisms disabled on purpose, so that tests prove that they detect it. Only with the
//! feature `sabotage`.
//!
//! `is_injected` guards each mechanism; without the feature it is constant and costs nothing.

#[cfg(feature = "sabotage")]
use std::cell::Cell;

/// Planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InjectedBug {
    /// A change keeps its reservation while its loss is logged: with a full log each waits for the other.
    TicketHeldWhileLogging,
    /// A write is acknowledged and done in place before its batch is stable.
    AcknowledgeBeforeLog,
    /// The mirrors of the log are not flushed.
    NoLaneFlush,
    /// A batch is written to one log mirror, whatever the level tolerates.
    OneLane,
    /// Pages are overwritten without a copy in the doublewrite area.
    PagesNotSpared,
    /// The anchor is written before the pages are stable.
    AnchorBeforePages,
    /// The log's tail advances before in-place writes and pages are flushed.
    TailBeforeFlush,
    /// The log's tail advances before the writes in place have ended.
    TailBeforeInPlace,
    /// Fresh writes are logged before the members are flushed.
    FreshBeforeFlush,
    /// Written stripes are written fresh without logging them as unwritten first.
    FreshOverContent,
    /// Content that is read is not verified.
    NoCompare,
    /// The source of a repair is not verified.
    HealUnverified,
    /// Parity is computed wrongly, as by a flipped bit in memory.
    WrongParity,
    /// The address and the member are left out of the identity of a page.
    AnyPage,
    /// The older of two copies of a page is used.
    OlderPageCopy,
    /// Replay keeps the first record of a block instead of the last.
    ReplayFirstWins,
    /// Batches of an earlier epoch are replayed.
    AnyEpoch,
    /// A log that seems empty keeps its epoch.
    EpochKept,
    /// The images of a batch are not verified when the log is read.
    TornBatch,
    /// An image is not verified again when it is copied.
    ReplayUnseen,
    /// The last batch is replayed without being made stable first.
    NoRelog,
    /// Both mirrors are written concurrently after a checksum-only record.
    MirrorsAtOnce,
    /// After a crash copies are not compared: the newest entry is trusted.
    NoJudge,
    /// Parity is left out of the images.
    NoParityImage,
    /// Regions that an absent member misses are not recorded.
    NothingMissed,
    /// A member that was absent is taken for current.
    StaleMember,
    /// A member that is one anchor behind is accepted, whatever it lacks.
    BehindBelieved,
    /// Overwriting a fresh stripe does not wait for its entries to be logged.
    OverwriteBeforeFreshLogged,
    /// A change is acknowledged from the log while its old blocks still match their entries.
    AnsweredUnseen,
    /// A change acknowledged from the log does not keep its blocks locked.
    AnsweredUnlocked,
    /// A member about to come into service gets its pages but no log batches.
    JoiningWithoutLog,
    /// A member joins during a checkpoint that does not write to it.
    JoinsAmidCheckpoint,
    /// Anchors count a member that lacks some of its pages.
    CountedBeforePages,
    /// A returned member is rebuilt without waiting for commands that have left it out.
    LatecomersForgotten,
    /// Blocks of a batch count as covered by a checkpoint that started before the batch.
    WindowBeforeBatch,
    /// A write error on a log mirror is ignored.
    LaneErrorIgnored,
    /// The anchor does not contain the growth of the array.
    GrowthNotInAnchor,
    /// Pages of a growth are not created where their region is used.
    GrowthWithoutPages,
    /// A new member is announced to the others before it has everything that belongs on it.
    OthersToldFirst,
    /// The position of a reshape is logged before the moved content is stable.
    MovedBeforeFlush,
    /// Blocks are moved over blocks not moved yet, without being logged.
    MovedWithoutImages,
    /// The entries of moved blocks are not logged with the position.
    MovedWithoutEntries,
    /// Commands below the position use the old layout.
    OldLayoutBelow,
    /// Commands do not wait for blocks that are being moved.
    NoMovingLock,
    /// The position in the log is ignored at opening.
    PositionForgotten,
    /// A partly moved stripe is not completed at opening.
    BegunStripeLeft,
    /// Space behind the moved blocks keeps its entries.
    TailNotCleared,
    /// Commands that started before a reshape are not drained.
    NotDrained,
}

impl InjectedBug {
    /// All bugs, in the order of the variants.
    pub const ALL: [Self; 48] = [
        Self::TicketHeldWhileLogging,
        Self::AcknowledgeBeforeLog,
        Self::NoLaneFlush,
        Self::OneLane,
        Self::PagesNotSpared,
        Self::AnchorBeforePages,
        Self::TailBeforeFlush,
        Self::TailBeforeInPlace,
        Self::FreshBeforeFlush,
        Self::FreshOverContent,
        Self::NoCompare,
        Self::HealUnverified,
        Self::WrongParity,
        Self::AnyPage,
        Self::OlderPageCopy,
        Self::ReplayFirstWins,
        Self::AnyEpoch,
        Self::EpochKept,
        Self::TornBatch,
        Self::ReplayUnseen,
        Self::NoRelog,
        Self::MirrorsAtOnce,
        Self::NoJudge,
        Self::NoParityImage,
        Self::NothingMissed,
        Self::StaleMember,
        Self::BehindBelieved,
        Self::OverwriteBeforeFreshLogged,
        Self::AnsweredUnseen,
        Self::AnsweredUnlocked,
        Self::JoiningWithoutLog,
        Self::JoinsAmidCheckpoint,
        Self::CountedBeforePages,
        Self::LatecomersForgotten,
        Self::WindowBeforeBatch,
        Self::LaneErrorIgnored,
        Self::GrowthNotInAnchor,
        Self::GrowthWithoutPages,
        Self::OthersToldFirst,
        Self::MovedBeforeFlush,
        Self::MovedWithoutImages,
        Self::MovedWithoutEntries,
        Self::OldLayoutBelow,
        Self::NoMovingLock,
        Self::PositionForgotten,
        Self::BegunStripeLeft,
        Self::TailNotCleared,
        Self::NotDrained,
    ];
}

#[cfg(feature = "sabotage")]
thread_local! {
    static PLANTED: Cell<Option<InjectedBug>> = const { Cell::new(None) };
}

/// Plants `bug` in the arrays of this thread, or removes it.
#[cfg(feature = "sabotage")]
pub fn inject(bug: Option<InjectedBug>) {
    PLANTED.set(bug);
}

/// True when `bug` is planted.
#[cfg(feature = "sabotage")]
pub(crate) fn is_injected(bug: InjectedBug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Always false: without the feature no bug can be planted.
#[cfg(not(feature = "sabotage"))]
pub(crate) const fn is_injected(_: InjectedBug) -> bool {
    false
}
