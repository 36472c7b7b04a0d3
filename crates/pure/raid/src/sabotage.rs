//! Safety mechanisms broken on purpose, to see that the tests notice. Only with the feature `sabotage`.

#[cfg(feature = "sabotage")]
use std::cell::Cell;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A change stays in the log while its loss is logged: where the log is full, each waits for the other.
    TicketHeldWhileLogging,
    /// A write is acknowledged, and done in place, before its batch is stable.
    AcknowledgeBeforeLog,
    /// The lanes of the log are not flushed.
    NoLaneFlush,
    /// A batch is written to one lane, whatever the level tolerates.
    OneLane,
    /// Pages are written over without being put down in the spare area first.
    PagesNotSpared,
    /// The anchor is written before the pages are stable.
    AnchorBeforePages,
    /// The tail moves before what was written in place, and the pages, are flushed.
    TailBeforeFlush,
    /// The tail moves before the writes in place have ended.
    TailBeforeInPlace,
    /// Fresh writes are logged before the members are flushed.
    FreshBeforeFlush,
    /// Stripes with content are written fresh without forgetting the content first.
    FreshOverContent,
    /// What is read is not compared with its check.
    NoCompare,
    /// What a block is healed from is not compared with its check.
    HealUnverified,
    /// Parity is computed wrongly, as by a flipped bit in memory.
    WrongParity,
    /// The address and the member are left out of the identity of a page.
    AnyPage,
    /// Of two copies of a page the older one is taken.
    OlderPageCopy,
    /// The first record of a block wins at replay, not the last.
    ReplayFirstWins,
    /// Batches of an earlier epoch are replayed.
    AnyEpoch,
    /// A log that looks empty goes on in its epoch.
    EpochKept,
    /// The images of a batch are not checked at replay.
    TornBatch,
    /// An image that was found whole is not compared when it is read again.
    ReplayUnseen,
    /// The last batch is replayed without being made stable first.
    NoRelog,
    /// Both mirrors are written at once after their sums were logged.
    MirrorsAtOnce,
    /// After a crash no copy is judged: the newest entry is believed.
    NoJudge,
    /// Parity is left out of the images.
    NoParityImage,
    /// What a member misses while it is away is not remembered.
    NothingMissed,
    /// A member that was away is taken for current.
    StaleMember,
    /// A member that is one anchor behind is believed, whatever it lacks.
    BehindBelieved,
    /// Overwriting a fresh stripe does not wait for its sums.
    OverwriteBeforeFreshLogged,
    /// A change is answered from the log while its blocks still seem to be right as they are.
    AnsweredUnseen,
    /// A change that was answered from the log does not keep its blocks locked.
    AnsweredUnlocked,
    /// A member that is about to come into service gets its pages and not the log.
    JoiningWithoutLog,
    /// A member joins while a checkpoint is under way that does not write to it.
    JoinsAmidCheckpoint,
    /// Anchors count a member that has not got all of its pages.
    CountedBeforePages,
    /// A member that has come back is rebuilt without waiting for commands that have left it out.
    LatecomersForgotten,
    /// What a batch speaks of counts as covered by a checkpoint that began before the batch did.
    WindowBeforeBatch,
    /// A write error on a lane is ignored.
    LaneErrorIgnored,
    /// The anchor does not say that the array has grown.
    GrowthNotInAnchor,
    /// Pages of a growth are not made where their region is used.
    GrowthWithoutPages,
    /// The others are told of a new member before it has all that belongs on it.
    OthersToldFirst,
    /// A reshape's position is logged before what was moved is durable.
    MovedBeforeFlush,
    /// Moved blocks are written over blocks that are not moved yet, without being in the log.
    MovedWithoutImages,
    /// The entries of moved blocks are not logged with the position.
    MovedWithoutEntries,
    /// Commands below the position use the old layout.
    OldLayoutBelow,
    /// Commands do not wait for the blocks that are being moved.
    NoMovingLock,
    /// The position in the log is not taken over at opening.
    PositionForgotten,
    /// A stripe that was moved in part is not ended at opening.
    BegunStripeLeft,
    /// What lies behind the moved blocks keeps its entries.
    TailNotCleared,
    /// Commands that began before a reshape are not waited for.
    NotDrained,
}

impl Bug {
    /// All of them.
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
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// From now on arrays of this thread have `bug`, or none.
#[cfg(feature = "sabotage")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// True when `bug` is planted.
#[cfg(feature = "sabotage")]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// True when `bug` is planted; nothing can be planted here.
#[cfg(not(feature = "sabotage"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
