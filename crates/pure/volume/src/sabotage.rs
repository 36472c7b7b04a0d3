//! Mistakes that can be made on purpose, to show that the checkers see them. None can be made in production.

/// A mistake in the code of families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A flush is acknowledged before the map is committed.
    AcknowledgeBeforeCommit,
    /// A commit does not flush the data whose places it makes known.
    CommitBeforeData,
    /// A commit does not flush the log.
    SkipLogFlush,
    /// A commit does not wait for the catalog that its slabs and epochs are in.
    CommitBeforeCatalog,
    /// A place is used again before the commit that freed it is stable.
    ReuseBeforeCommit,
    /// A snapshot does not wait for the writes that are under way.
    SnapshotPassesWrites,
    /// A snapshot does not begin a new epoch.
    SnapshotKeepsEpoch,
    /// Copy-on-write does not copy what is not overwritten.
    CopyNothing,
    /// A discard removes the version that a snapshot sees.
    DiscardShared,
    /// The root is written before its pages are stable.
    RootBeforePages,
    /// Both heads are written in one flush.
    BothHeads,
    /// Pages of the present tree are written over by the next checkpoint.
    ReusePagesEarly,
    /// Deleting a snapshot frees versions that an older snapshot sees.
    FreeWhatOlderSees,
    /// A roll-back forgets which epochs are dead.
    ForgetDeadEpochs,
    /// A map may grow until no checkpoint fits any more.
    KeepNoReserve,
    /// The log goes on with blocks of an earlier life.
    BelieveOldLives,
    /// A granule that is overwritten is not kept until the write has ended.
    FreshOverLive,
    /// What a checkpoint has already is counted again from the log.
    CountTwice,
    /// The place of a moved granule is never free again.
    LeakMoved,
    /// A slab is given back though a granule of it is taken.
    GiveBackTaken,
    /// The changes of an atomic write are in several blocks of the log.
    SplitAtomic,
    /// The key that was replaced stays on the disks until something else is written there.
    KeepOldKey,
}

#[cfg(any(test, feature = "sabotage"))]
impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::AcknowledgeBeforeCommit,
        Self::CommitBeforeData,
        Self::SkipLogFlush,
        Self::CommitBeforeCatalog,
        Self::ReuseBeforeCommit,
        Self::SnapshotPassesWrites,
        Self::SnapshotKeepsEpoch,
        Self::CopyNothing,
        Self::DiscardShared,
        Self::RootBeforePages,
        Self::BothHeads,
        Self::ReusePagesEarly,
        Self::FreeWhatOlderSees,
        Self::ForgetDeadEpochs,
        Self::KeepNoReserve,
        Self::BelieveOldLives,
        Self::FreshOverLive,
        Self::CountTwice,
        Self::LeakMoved,
        Self::GiveBackTaken,
        Self::SplitAtomic,
        Self::KeepOldKey,
    ];
}

#[cfg(any(test, feature = "sabotage"))]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// From now on everything on this thread makes the mistake `sabotage`, or none.
#[cfg(any(test, feature = "sabotage"))]
pub fn choose(sabotage: Option<Sabotage>) {
    CHOSEN.set(sabotage);
}

/// True when the mistake is to be made.
#[cfg(any(test, feature = "sabotage"))]
pub(crate) fn is(sabotage: Sabotage) -> bool {
    CHOSEN.get() == Some(sabotage)
}

/// True when the mistake is to be made: never.
#[cfg(not(any(test, feature = "sabotage")))]
pub(crate) const fn is(_: Sabotage) -> bool {
    false
}
