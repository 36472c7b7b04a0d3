//! Fault injection into our own code: deliberate bugs that the checkers must detect. Compiled out of production
//! builds.

/// Deliberate bug in the code of volume families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// Flush acknowledged before the map is committed.
    AcknowledgeBeforeCommit,
    /// Commit without a flush of the data that its records refer to.
    CommitBeforeData,
    /// Commit without a flush of the log.
    SkipLogFlush,
    /// Commit that does not wait for the catalog with its slabs and epochs.
    CommitBeforeCatalog,
    /// Place reused before the commit that freed it is stable.
    ReuseBeforeCommit,
    /// Snapshot that does not wait for writes in flight.
    SnapshotPassesWrites,
    /// Snapshot that does not start a new epoch.
    SnapshotKeepsEpoch,
    /// Copy-on-write that does not copy the rest of the granule.
    SkipCopyOnWrite,
    /// Discard that removes the version that a snapshot sees.
    DiscardShared,
    /// Root written before its pages are stable.
    RootBeforePages,
    /// Both heads written in one flush.
    BothHeads,
    /// Pages of the current tree overwritten by the next checkpoint.
    ReusePagesEarly,
    /// Snapshot deletion that frees versions visible to an older snapshot.
    FreeSharedVersions,
    /// Roll-back that does not record the dead epochs.
    OmitDeadEpochs,
    /// Map that grows until no checkpoint fits.
    SkipMapReserve,
    /// Log replay that continues with blocks of an earlier life.
    AcceptOldLives,
    /// Overwritten granule whose old content is not kept until the write has ended.
    FreshOverLive,
    /// Changes counted from the log although the checkpoint has them.
    CountTwice,
    /// Place of a moved granule that is never freed.
    LeakMoved,
    /// Slab returned to the pool with a granule in use.
    ReturnUsedSlabs,
    /// Atomic write recorded in several log blocks.
    SplitAtomic,
    /// Replaced key that stays on the disks until something else is written there.
    KeepOldKey,
}

#[cfg(any(test, feature = "sabotage"))]
impl InjectedBug {
    /// All variants.
    pub const ALL: [Self; 22] = [
        Self::AcknowledgeBeforeCommit,
        Self::CommitBeforeData,
        Self::SkipLogFlush,
        Self::CommitBeforeCatalog,
        Self::ReuseBeforeCommit,
        Self::SnapshotPassesWrites,
        Self::SnapshotKeepsEpoch,
        Self::SkipCopyOnWrite,
        Self::DiscardShared,
        Self::RootBeforePages,
        Self::BothHeads,
        Self::ReusePagesEarly,
        Self::FreeSharedVersions,
        Self::OmitDeadEpochs,
        Self::SkipMapReserve,
        Self::AcceptOldLives,
        Self::FreshOverLive,
        Self::CountTwice,
        Self::LeakMoved,
        Self::ReturnUsedSlabs,
        Self::SplitAtomic,
        Self::KeepOldKey,
    ];
}

#[cfg(any(test, feature = "sabotage"))]
thread_local! {
    static INJECTED: std::cell::Cell<Option<InjectedBug>> = const { std::cell::Cell::new(None) };
}

/// Selects the bug that all code on this thread exhibits, or none.
#[cfg(any(test, feature = "sabotage"))]
pub fn inject(sabotage: Option<InjectedBug>) {
    INJECTED.set(sabotage);
}

/// True when the bug is selected.
#[cfg(any(test, feature = "sabotage"))]
pub(crate) fn is_injected(sabotage: InjectedBug) -> bool {
    INJECTED.get() == Some(sabotage)
}

/// Always false: production builds contain no deliberate bug.
#[cfg(not(any(test, feature = "sabotage")))]
pub(crate) const fn is_injected(_: InjectedBug) -> bool {
    false
}
