//! Planted bugs: safety mechanisms disabled one at a time and on purpose; the tests must detect each of them.
//!
//! In production builds nothing is ever planted, and the checks cost nothing.

/// Mechanism that can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedBug {
    /// A fetch that raced with a write puts old content into the cache.
    FetchRacesWrite,
    /// A reader joins a fetch that began before the newest write of its blocks.
    JoinSpoiledFetch,
    /// A hit is not verified against its checksum.
    GuardNotCompared,
    /// A discard leaves its blocks in the read cache.
    DiscardKeepsCache,
    /// A discard is logged behind a write of its blocks that readers see after it.
    DiscardOvertaken,
    /// A write is acknowledged before its record is stable in the log.
    AckBeforeStable,
    /// Records are replayed in reverse order.
    ReplayInWrongOrder,
    /// Replay accepts a record whose content does not match its checksum.
    ReplayTornRecord,
    /// Log records are freed before the device below has flushed their data.
    TrimBeforeFlush,
    /// Ring space is reused before the anchor that frees it is stable.
    ReuseBeforeAnchor,
    /// A merged write loses its last piece.
    MergeLosesPiece,
    /// A full memory budget drops dirty data instead of waiting.
    DirtyEvicted,
    /// A flush does not wait for data that was overwritten after the flush was requested.
    FlushForgetsOverwritten,
    /// A flush is acknowledged when data is written below but not flushed there.
    FlushNotPassedOn,
    /// A change of policy to `through` leaves the volume's records in the log valid.
    SwitchKeepsRecords,
    /// A failed log is not recorded as such before writes continue without it.
    LogFailureNotRecorded,
}

#[cfg(test)]
impl InjectedBug {
    /// All bugs, in the order of the variants.
    pub(crate) const ALL: [Self; 16] = [
        Self::FetchRacesWrite,
        Self::JoinSpoiledFetch,
        Self::GuardNotCompared,
        Self::DiscardKeepsCache,
        Self::DiscardOvertaken,
        Self::AckBeforeStable,
        Self::ReplayInWrongOrder,
        Self::ReplayTornRecord,
        Self::TrimBeforeFlush,
        Self::ReuseBeforeAnchor,
        Self::MergeLosesPiece,
        Self::DirtyEvicted,
        Self::FlushForgetsOverwritten,
        Self::FlushNotPassedOn,
        Self::SwitchKeepsRecords,
        Self::LogFailureNotRecorded,
    ];
}

#[cfg(test)]
thread_local! {
    static INJECTED: std::cell::Cell<Option<InjectedBug>> = const { std::cell::Cell::new(None) };
}

/// Plants `what` in this thread, or removes it.
#[cfg(test)]
pub(crate) fn inject(what: Option<InjectedBug>) {
    INJECTED.set(what);
}

#[cfg(test)]
pub(crate) fn is_injected(what: InjectedBug) -> bool {
    INJECTED.get() == Some(what)
}

#[cfg(not(test))]
pub(crate) fn is_injected(_: InjectedBug) -> bool {
    false
}
