//! Detection of split pools: parts that were used without each other.
//!
//! Two parts that were both written are refused until an operator keeps one of them. A part that was opened but
//! not written is merely outdated.

use super::{Candidate, OVERTAKE_MAX, PoolRefusal, SplitPart};
use crate::catalog::{Catalog, MemberRecord};
use crate::probe::{FoundCatalog, Member};
use cluster::HEARTBEAT;

/// Divergence of one disk from the newest commit.
struct Divergence {
    /// UUID of a disk that the newest commit uses and that the other part gave up.
    ours: uuid::Uuid,
    /// Flags: the newest commit's part, and the other part, was written after the divergence.
    is_written: (bool, bool),
}

/// Returns the divergence of `candidate`, if there is one.
///
/// It has diverged when it continued without a disk that the newest catalog uses, while that catalog continued
/// without `candidate`.
fn divergence(newest: &FoundCatalog, candidate: &Candidate<'_>) -> Option<Divergence> {
    let theirs = candidate.catalogs().first()?;
    let record = newest.catalog.member(candidate.disk())?;
    let own = theirs.catalog.member(candidate.disk())?;
    let same = (theirs.generation, theirs.checksum) == (newest.generation, newest.checksum);
    // A disk that was given up before it could hold the commit that says so is merely outdated.
    if same || record.state.takes_part() || theirs.generation < record.since || !own.state.takes_part() {
        return None;
    }
    let (ours, since) = given_up_by(&newest.catalog, record, &theirs.catalog).next()?;
    let is_written = (newest.catalog.is_written_since(record.since), theirs.catalog.is_written_since(since));
    Some(Divergence { ours, is_written })
}

/// Returns the disks that `ours` uses and `theirs` gave up, each with the generation at which it did.
///
/// A disk that `theirs` does not list was added after the divergence; it counts from the generation at which
/// `ours` gave up `record`, the other part's member.
fn given_up_by(ours: &Catalog, record: &MemberRecord, theirs: &Catalog) -> impl Iterator<Item = (uuid::Uuid, u64)> {
    let counted = ours.members().filter(|member| member.state.takes_part());
    counted.filter_map(|member| match theirs.member(member.disk) {
        Some(there) => (!there.state.takes_part()).then_some((member.disk, there.since)),
        None => Some((member.disk, record.since)),
    })
}

/// True when `member` continued without a disk that `ours` uses and was written then: its data exists nowhere
/// else.
pub(crate) fn is_diverged_and_written(ours: &Catalog, member: &Member) -> bool {
    let Some(theirs) = member.catalogs.first() else { return false };
    let disk = member.label.disk;
    let (Some(record), Some(own)) = (ours.member(disk), theirs.catalog.member(disk)) else { return false };
    if record.state.takes_part() || theirs.generation < record.since || !own.state.takes_part() {
        return false;
    }
    given_up_by(ours, record, &theirs.catalog).any(|(_, since)| theirs.catalog.is_written_since(since))
}

/// Returns the refusal of a split pool, where both the part of `candidate` and the newest part were written.
pub(super) fn split(newest: &FoundCatalog, candidate: &Candidate<'_>) -> Option<PoolRefusal> {
    let Divergence { ours, is_written } = divergence(newest, candidate)?;
    // Opening a pool commits past the other part one generation at a time; a distance that would take too long,
    // or that damage made up, is left to the operator.
    let is_too_far =
        candidate.generation().is_some_and(|theirs| theirs > newest.generation.saturating_add(OVERTAKE_MAX));
    let is_split = is_written == (true, true) || is_too_far;
    is_split.then(|| PoolRefusal::Split { ours, theirs: candidate.disk() })
}

/// Returns the newest commit of a part that was written, where `newest` belongs to a part that was only opened.
pub(super) fn written<'a>(newest: &'a FoundCatalog, candidates: &[Candidate<'a>]) -> &'a FoundCatalog {
    // The other part wins only where it alone was written: its data exists nowhere else.
    let wins = |candidate: &&Candidate<'a>| {
        divergence(newest, candidate).is_some_and(|parting| parting.is_written == (false, true))
    };
    let winners = candidates.iter().filter(wins).filter_map(|candidate| candidate.catalogs().first());
    // The checksum breaks a tie, so that the result does not depend on the order of the probes.
    winners.max_by_key(|found| (found.generation, std::cmp::Reverse(found.checksum))).unwrap_or(newest)
}

/// Lists the parts of a split pool; empty where the pool is not split.
pub(super) fn of(newest: &FoundCatalog, candidates: &[Candidate<'_>]) -> Vec<SplitPart> {
    if !candidates.iter().any(|candidate| split(newest, candidate).is_some()) {
        return Vec::new();
    }
    let of_newest = |candidate: &&Candidate<'_>| counts(newest, candidate);
    let mut parts = vec![part(newest.generation, candidates.iter().filter(of_newest))];
    let mut others: Vec<&Candidate<'_>> =
        candidates.iter().filter(|candidate| split(newest, candidate).is_some()).collect();
    others.sort_by_key(|candidate| std::cmp::Reverse(candidate.generation()));
    // Each remaining part is led by its newest disk and takes in all disks that its catalog still uses.
    while let Some(head) = others.first().and_then(|first| first.catalogs().first()) {
        let (own, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|candidate| counts(head, candidate));
        assert!(!own.is_empty(), "a disk that parted takes part by its own catalog");
        parts.push(part(head.generation, own.into_iter()));
        others = rest;
    }
    parts
}

fn counts(commit: &FoundCatalog, candidate: &Candidate<'_>) -> bool {
    commit.catalog.member(candidate.disk()).is_some_and(|member| member.state.takes_part())
}

fn part<'a, 'b: 'a>(generation: u64, disks: impl Iterator<Item = &'a Candidate<'b>>) -> SplitPart {
    let disks: Vec<_> = disks.collect();
    let marks = disks.iter().filter_map(|candidate| candidate.member.owner.as_ref());
    let last = marks.max_by_key(|mark| mark.age());
    // The beat is counted up once a heartbeat, so it measures how long the claim lasted.
    let used = last.map_or((0, 0), |mark| {
        (mark.claimed_at, mark.claimed_at.saturating_add(mark.beat.saturating_mul(HEARTBEAT.as_secs())))
    });
    SplitPart { probes: disks.iter().map(|candidate| candidate.index).collect(), generation, used }
}
