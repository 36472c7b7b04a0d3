//! Broken safety mechanisms, one at a time and on purpose: the tests must catch each of them.
//!
//! In a product nothing is ever planted, and the questions cost nothing.

/// What can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// A fill that raced with a write puts the old content into the cache.
    FillRacesWrite,
    /// A reader joins a fill that began before the newest write of its blocks.
    JoinSpoiledFill,
    /// A hit is not compared with its guard.
    GuardNotCompared,
    /// A discard leaves the blocks in the read cache.
    DiscardKeepsCache,
    /// A discard comes into the log behind a write of its blocks that readers see behind it.
    DiscardOvertaken,
    /// A write is acknowledged before its record is stable in the log.
    AckBeforeStable,
    /// The newest records are replayed first.
    ReplayInWrongOrder,
    /// Replay believes a record whose content does not match its check.
    ReplayTornRecord,
    /// Log records are trimmed before the device below has flushed what they hold.
    TrimBeforeFlush,
    /// The ring is written over before the anchor that frees it is stable.
    ReuseBeforeAnchor,
    /// A merged write loses its last piece.
    MergeLosesPiece,
    /// A full memory budget drops dirty blocks in place of waiting.
    DirtyEvicted,
    /// A flush does not wait for data that was overwritten after it was asked for.
    FlushForgetsOverwritten,
    /// A flush is told done when the blocks are below but not flushed there.
    FlushNotPassedOn,
    /// A change of policy to `through` leaves the volume's records in the log valid.
    SwitchKeepsRecords,
    /// A log that failed is not recorded as such before writes go on without it.
    LogFailureNotRecorded,
}

#[cfg(test)]
impl Sabotage {
    /// All of them.
    pub(crate) const ALL: [Self; 16] = [
        Self::FillRacesWrite,
        Self::JoinSpoiledFill,
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
    static PLANTED: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// On this thread `what` is broken from now on, and nothing else.
#[cfg(test)]
pub(crate) fn plant(what: Option<Sabotage>) {
    PLANTED.set(what);
}

#[cfg(test)]
pub(crate) fn is_planted(what: Sabotage) -> bool {
    PLANTED.get() == Some(what)
}

#[cfg(not(test))]
pub(crate) fn is_planted(_: Sabotage) -> bool {
    false
}
