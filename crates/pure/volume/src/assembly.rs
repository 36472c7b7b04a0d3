//! Pool assembly: groups probed disks into pools and decides which members are up to date.
//!
//! Implements the decision tables of `docs/on-disk.md`, *Assembly of a pool*, as a pure function; called for
//! every import and at daemon start. It never reads or writes a disk: probes go in, an [`Assembly`] comes out.

mod damage;
pub(crate) mod parts;

pub use damage::{Damage, Structure};

use crate::catalog::{Catalog, GroupRecord, GroupRole, MemberRecord, MemberState, PoolPhase};
use crate::label::Label;
use crate::probe::{Contents, FoundCatalog, Member, Probe};
use block::{Blocks, IoError, View};
use cluster::Claim;
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

/// Result of assembling a set of probed disks.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// Pools found, ordered by UUID.
    pub pools: Vec<AssembledPool>,
    /// Disks that belong to no pool found, by index among the probes, with the reason.
    pub refused: Vec<(usize, DiskRefusal)>,
    /// Pools with disks present but no readable catalog on any of them.
    pub unreadable: Vec<UnreadablePool>,
}

/// Pool named by disk labels, none of whose present disks has a readable catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadablePool {
    /// Pool UUID.
    pub pool: Uuid,
    /// Pool name, as in its labels.
    pub name: String,
    /// Indices of its disks among the probes.
    pub disks: Vec<usize>,
}

/// Pool reconstructed from the metadata on its disks.
#[derive(Clone, Debug)]
pub struct AssembledPool {
    /// Newest catalog.
    pub catalog: Rc<Catalog>,
    /// Generation of that catalog.
    pub generation: u64,
    /// Groups, in catalog order.
    pub groups: Vec<AssembledGroup>,
    /// Reason why the pool must not be opened; none when nothing forbids it.
    pub refusal: Option<PoolRefusal>,
    /// Encoded bytes of the newest catalog.
    pub(crate) body: View,
    /// Catalog slots that lack the newest commit, per disk, in the order in which they are written.
    pub(crate) behind: Vec<(Uuid, &'static [usize])>,
    /// Labels with at least one damaged copy.
    pub(crate) torn_labels: Vec<Label>,
    /// Newest owner mark of each member found.
    pub(crate) marks: Vec<(Uuid, Claim)>,
    /// Damaged metadata of participating members.
    damage: Vec<Damage>,
    /// Parts of a split pool, the one with the newest commit first; empty where the pool is not split.
    pub parts: Vec<SplitPart>,
    /// Highest generation on disks that are not trusted, where it is not older than the pool's own. Opening
    /// commits past it.
    pub(crate) overtake_to: Option<u64>,
    /// True when an operator has discarded the other parts of a split pool.
    pub(crate) discards_other_parts: bool,
    /// True when the next opening announces writes.
    pub(crate) announces_writes: bool,
    /// Epoch that the next claim must exceed.
    pub(crate) highest_known_epoch: u64,
}

/// Part of a split pool: disks that were written without the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitPart {
    /// Indices of its disks among the probes.
    pub probes: Vec<usize>,
    /// Generation of its newest commit.
    pub generation: u64,
    /// Time when it was last claimed and time of its last heartbeat, in seconds since 1970; zero where no disk
    /// has a mark.
    pub used: (u64, u64),
}

/// Maximum number of commits by which a pool is brought past its other parts.
pub const OVERTAKE_MAX: u64 = 1 << 16;

/// Member positions of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembledGroup {
    /// One position for each member in the catalog.
    pub positions: Vec<Position>,
}

/// Disk found at one position of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// UUID of the disk that the catalog expects.
    pub disk: Uuid,
    /// Index among the probes when the disk was found; its standing tells whether it can be used.
    pub probe: Option<usize>,
    /// State of the disk, as judged by the decision table.
    pub state: DiskState,
}

/// State of the disk at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// Up to date.
    Current,
    /// Being rebuilt; its content is valid below `front`.
    Rebuilding {
        /// Rebuild progress in blocks of the member's data area.
        front: Blocks,
    },
    /// Participating according to the catalog, but not found.
    Missing,
    /// Marked failed or missing in the catalog; its content is outdated.
    Failed,
    /// Participating according to the catalog, but possibly outdated.
    ///
    /// Its own catalogs are older than a crash can leave them, or damaged on a disk of a group without
    /// checksums, where nothing else tells its age.
    Stale,
    /// Overwritten at its head or end by another program; its content cannot be trusted.
    Overwritten,
    /// Smaller than when it was labeled.
    Shrunk,
}

impl DiskState {
    /// True when the disk is in use by its group: it is read and written, and gets every commit.
    #[must_use]
    pub fn takes_part(self) -> bool {
        matches!(self, Self::Current | Self::Rebuilding { .. })
    }
}

/// Reason why a disk belongs to no pool found. The disk is left untouched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskRefusal {
    /// Disk without content.
    #[error("the disk is blank")]
    Blank,
    /// Data of another system, such as a file system or a partition table.
    #[error("the disk holds {0}")]
    Foreign(&'static str),
    /// Format of a newer version.
    #[error("{0}")]
    Newer(String),
    /// Pool member with all copies of its label damaged.
    #[error("every copy of the disk's label is damaged")]
    Damaged,
    /// I/O error while probing.
    #[error("the disk cannot be read: {0}")]
    Unreadable(IoError),
    /// Copy of a member: another disk has the same UUID and is newer or equally new.
    #[error("the disk is a copy: disk {0} was found twice, and this is not the newer one")]
    Duplicate(Uuid),
    /// Disk that the pool's catalog does not list, or no longer lists.
    #[error("the disk has a label of pool \"{0}\", which does not count it among its members")]
    NotMember(String),
    /// Member of a pool without an intact catalog on any of its disks.
    #[error(
        "no disk of pool \"{0}\" that is attached bears a catalog that can be read; attach the other disks of the pool"
    )]
    NoCatalog(String),
}

/// Reason why a pool must not be opened. Its disks are left untouched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    /// Creation was interrupted.
    #[error("the making of pool \"{0}\" was interrupted, so there is no such pool; its disks may be used again")]
    Unfinished(String),
    /// Metadata of a newer version on one of its disks.
    #[error("{0}")]
    Newer(String),
    /// Destroyed, but not all disks were wiped.
    #[error("pool \"{0}\" was destroyed; its disks may be used again")]
    Destroyed(String),
    /// Disk found twice, both copies equally new.
    #[error("disk {0} of the pool was found twice, and both are as new; detach the copy")]
    DuplicateDisk(Uuid),
    /// Split: two parts of the pool were written without each other.
    #[error(
        "the pool was used in two parts without each other: disk {ours} went on when {theirs} was away, and the other \
         way round; detach the part that is to be given up"
    )]
    Split {
        /// UUID of a disk of the newest part.
        ours: Uuid,
        /// UUID of a disk of the other part.
        theirs: Uuid,
    },
    /// Open on another daemon or node.
    #[error(
        "pool \"{pool_name}\" is in use by {} {node_name}; {}", if *is_us { "another daemon of node" } else { "node" },
        if *is_us { "stop that first" } else { "export it there first" }
    )]
    Owned {
        /// Pool name.
        pool_name: String,
        /// Name of the owner's node.
        node_name: String,
        /// True when the owner has the same node identity.
        is_us: bool,
    },
    /// Last used by another node, which did not release it and is silent now.
    #[error(
        "pool \"{pool_name}\" was in use by node {node_name}, which did not let go of it and is silent now; if that node is \
         surely down, import the pool with --force"
    )]
    NotReleased {
        /// Pool name.
        pool_name: String,
        /// Name of the last owner's node.
        node_name: String,
    },
    /// Group with more members lost than its RAID level tolerates.
    #[error("group {group} of pool \"{pool_name}\" cannot serve: {present} of its {members} members can be believed")]
    Incomplete {
        /// Pool name.
        pool_name: String,
        /// Index of the group.
        group: usize,
        /// Number of members that are up to date.
        present: usize,
        /// Number of members of the group.
        members: usize,
    },
}

/// Assembles the pools on the probed disks; the order and names of the disks do not matter.
#[must_use]
pub fn assemble(probes: &[Probe]) -> Assembly {
    let mut survey = Assembly { pools: Vec::new(), refused: Vec::new(), unreadable: Vec::new() };
    let mut by_pool: BTreeMap<Uuid, Vec<Candidate<'_>>> = BTreeMap::new();
    for (index, probe) in probes.iter().enumerate() {
        match classify_disk(probe) {
            Ok(member) => {
                let candidate = Candidate { index, blocks: probe.blocks, member, ignored_catalogs: 0 };
                by_pool.entry(member.label.pool).or_default().push(candidate);
            }
            Err(refusal) => survey.refused.push((index, refusal)),
        }
    }
    // Each pool is decided by itself: disks of one pool never influence another.
    for candidates in by_pool.into_values() {
        assemble_pool(candidates, &mut survey);
    }
    // A pool with disks of a newer format is refused whole: assembled without them it would look as if they had
    // failed.
    for pool in &mut survey.pools {
        let newer = probes.iter().find_map(|probe| match &probe.contents {
            Contents::Newer { pool: id, sentence } if *id == pool.catalog.pool => Some(sentence),
            _ => None,
        });
        pool.refusal = newer.map(|sentence| PoolRefusal::Newer(sentence.clone())).or(pool.refusal.take());
    }
    // In probe order, whatever the order of pools.
    survey.refused.sort_by_key(|(index, _)| *index);
    survey
}

/// Disk with a label of the pool being assembled.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    index: usize,
    blocks: Blocks,
    member: &'a Member,
    /// Number of its catalogs, from the newest on, that no commit can have written; they are ignored.
    ignored_catalogs: usize,
}

impl<'a> Candidate<'a> {
    /// Returns the trusted catalogs, newest first.
    fn catalogs(&self) -> &'a [FoundCatalog] {
        self.member.catalogs.get(self.ignored_catalogs..).unwrap_or_default()
    }

    fn disk(&self) -> Uuid {
        self.member.label.disk
    }

    fn generation(&self) -> Option<u64> {
        self.catalogs().first().map(|found| found.generation)
    }

    /// True when one of its slots holds exactly this commit (generation and checksum).
    fn holds(&self, commit: (u64, u32)) -> bool {
        self.catalogs().iter().any(|found| found.is(commit))
    }

    /// Returns the slots that do not hold exactly this commit, the one with the disk's newest catalog last.
    fn slots_without(&self, commit: (u64, u32)) -> &'static [usize] {
        let has = |slot: usize| self.catalogs().iter().any(|found| found.slot == slot && found.is(commit));
        match (has(0), has(1)) {
            (true, true) => &[],
            (true, false) => &[1],
            (false, true) => &[0],
            // The disk's own newest catalog is overwritten last: until the other slot is flushed, it is the
            // only intact one.
            (false, false) if self.catalogs().first().is_some_and(|newest| newest.slot == 0) => &[1, 0],
            (false, false) => &[0, 1],
        }
    }
}

/// Classifies one disk by itself, before disks are compared.
fn classify_disk(probe: &Probe) -> Result<&Member, DiskRefusal> {
    match &probe.contents {
        Contents::Blank => Err(DiskRefusal::Blank),
        Contents::Foreign(what) => Err(DiskRefusal::Foreign(what)),
        Contents::Newer { sentence, .. } => Err(DiskRefusal::Newer(sentence.clone())),
        Contents::Damaged => Err(DiskRefusal::Damaged),
        Contents::Unreadable(error) => Err(DiskRefusal::Unreadable(*error)),
        Contents::Member(member) => Ok(member),
    }
}

/// Assembles the pool of `candidates`, which all have its label, and adds the result to `survey`.
fn assemble_pool(candidates: Vec<Candidate<'_>>, survey: &mut Assembly) {
    let (mut candidates, twins) = deduplicate(candidates, &mut survey.refused);
    damage::ignore_impossible(&mut candidates);
    // The newest commit wins, unless it belongs to a part that was only opened while another part was written.
    let Some(newest) = choose_commit(&candidates).map(|newest| parts::written(newest, &candidates)) else {
        if let Some(first) = candidates.first() {
            let (pool, name) = (first.member.label.pool, first.member.label.pool_name.clone());
            let disks = candidates.iter().map(|candidate| candidate.index).collect();
            survey.unreadable.push(UnreadablePool { pool, name, disks });
        }
        survey.refused.extend(
            candidates
                .iter()
                .map(|candidate| (candidate.index, DiskRefusal::NoCatalog(candidate.member.label.pool_name.clone()))),
        );
        return;
    };
    let catalog = newest.catalog.clone();
    for candidate in candidates.iter().filter(|candidate| catalog.member(candidate.disk()).is_none()) {
        survey.refused.push((candidate.index, DiskRefusal::NotMember(catalog.name.clone())));
    }
    let place = |group: &GroupRecord, record: &MemberRecord| {
        let candidate = candidates.iter().find(|candidate| candidate.disk() == record.disk);
        // The members of a missing log group failed together and nothing was written since, so a disk that
        // holds the commit before that one is current.
        let away = catalog.log_missing_since().filter(|since| group.role == GroupRole::Log && record.since == *since);
        let standing = match away.filter(|_| record.state == MemberState::Missing) {
            Some(since) => disk_state(
                &MemberRecord { state: MemberState::InService, ..*record },
                candidate,
                // Zero only in a forged catalog, whose disk is not current then.
                since.saturating_sub(1),
                group.protected,
            ),
            None => disk_state(record, candidate, newest.generation, group.protected),
        };
        // Of a missing log, only disks in their state from before it went missing are current; all others count
        // as failed.
        let standing = if away.is_some() && standing != DiskState::Current { DiskState::Failed } else { standing };
        Position { disk: record.disk, probe: candidate.map(|candidate| candidate.index), state: standing }
    };
    let groups = catalog
        .groups
        .iter()
        .map(|group| AssembledGroup { positions: group.members.iter().map(|record| place(group, record)).collect() });
    let commit = (newest.generation, newest.checksum);
    // Lists every disk with the label; opening writes only to those whose standing takes part.
    let behind = candidates.iter().map(|candidate| (candidate.disk(), candidate.slots_without(commit)));
    let torn = candidates.iter().filter(|candidate| candidate.member.copies.contains(&false));
    // Marks on disks that the catalog does not name say nothing about the owner of the pool.
    let known = candidates.iter().filter(|candidate| catalog.member(candidate.disk()).is_some());
    let marks: Vec<_> =
        known.filter_map(|candidate| Some((candidate.disk(), candidate.member.owner.clone()?))).collect();
    // A pool that was released had no commit in flight, so a damaged slot is real damage; see
    // `damage::of_candidates`.
    let is_released = cluster::newest(&marks).is_some_and(|owner| owner.released);
    survey.pools.push(AssembledPool {
        groups: groups.collect(),
        generation: newest.generation,
        body: newest.body.clone(),
        behind: behind.filter(|(_, slots)| !slots.is_empty()).collect(),
        marks,
        torn_labels: torn.map(|candidate| candidate.member.label.clone()).collect(),
        damage: damage::of_candidates(&catalog, &candidates, is_released),
        refusal: refusal(&catalog, newest, &candidates, &twins),
        parts: parts::of(newest, &candidates),
        overtake_to: candidates.iter().filter_map(Candidate::generation).max().filter(|max| *max > newest.generation),
        // These do not follow from the probes: the caller sets them.
        discards_other_parts: false,
        announces_writes: false,
        highest_known_epoch: 0,
        catalog,
    });
}

/// Picks the newest copy of each disk UUID. Where two copies are equally new, both are refused and the UUID is
/// returned as a twin.
fn deduplicate<'a>(
    candidates: Vec<Candidate<'a>>,
    refused: &mut Vec<(usize, DiskRefusal)>,
) -> (Vec<Candidate<'a>>, Vec<Uuid>) {
    // Ordered by UUID, so that the result does not depend on the order of the probes.
    let mut by_disk: BTreeMap<Uuid, Vec<Candidate<'a>>> = BTreeMap::new();
    for candidate in candidates {
        by_disk.entry(candidate.disk()).or_default().push(candidate);
    }
    let (mut single, mut twins) = (Vec::new(), Vec::new());
    for (disk, mut copies) in by_disk {
        // Newest first; a copy without a readable catalog comes last.
        copies.sort_by_key(|copy| std::cmp::Reverse(copy.generation()));
        let as_new = copies.iter().filter(|copy| copy.generation() == copies[0].generation()).count();
        // Nothing tells which of them the pool has written last.
        if as_new > 1 {
            twins.push(disk);
        } else {
            single.push(copies.remove(0));
        }
        refused.extend(copies.iter().map(|copy| (copy.index, DiskRefusal::Duplicate(disk))));
    }
    (single, twins)
}

/// Picks the newest commit.
///
/// Of two commits with the same generation, which only a crash or a split can leave, the one wins that every
/// member it names has: the other was never acknowledged.
fn choose_commit<'a>(candidates: &[Candidate<'a>]) -> Option<&'a FoundCatalog> {
    let newest = candidates.iter().filter_map(Candidate::generation).max()?;
    let commits = candidates.iter().flat_map(Candidate::catalogs);
    commits
        .filter(|found| found.generation == newest)
        // The checksum breaks the tie, so that every node decides alike whatever the order of the probes.
        .max_by_key(|found| (is_everywhere(found, candidates), std::cmp::Reverse(found.checksum)))
}

/// True when every present disk that participates according to `found` holds that commit.
fn is_everywhere(found: &FoundCatalog, candidates: &[Candidate<'_>]) -> bool {
    let counted = |candidate: &&Candidate<'_>| {
        found.catalog.member(candidate.disk()).is_some_and(|member| member.state.takes_part())
    };
    candidates.iter().filter(counted).all(|candidate| candidate.holds((found.generation, found.checksum)))
}

/// Decision table for one position.
///
/// In a `protected` group the redo log's anchor tells how old a disk is, so a disk without an intact catalog is
/// not stale by that alone.
fn disk_state(record: &MemberRecord, candidate: Option<&Candidate<'_>>, newest: u64, protected: bool) -> DiskState {
    let Some(candidate) = candidate else {
        return if record.state.takes_part() { DiskState::Missing } else { DiskState::Failed };
    };
    if !record.state.takes_part() {
        return DiskState::Failed;
    }
    // The end of the data area, and with it data, is missing.
    if candidate.blocks < candidate.member.label.device_blocks {
        return DiskState::Shrunk;
    }
    if candidate.member.overwritten.is_some() {
        return DiskState::Overwritten;
    }
    // A participating member may lack the last commit, which a crash interrupted, but never the one before.
    // Where both of its catalogs are damaged, the anchor of its array tells whether it missed a write.
    if candidate.generation().map_or(!protected, |generation| generation.saturating_add(1) < newest) {
        return DiskState::Stale;
    }
    match record.state {
        MemberState::Rebuilding { front } => DiskState::Rebuilding { front },
        _ => DiskState::Current,
    }
}

/// Returns the reason why the pool must not be opened, if there is one.
fn refusal(
    catalog: &Catalog,
    newest: &FoundCatalog,
    candidates: &[Candidate<'_>],
    twins: &[Uuid],
) -> Option<PoolRefusal> {
    match catalog.phase {
        PoolPhase::Forming => return Some(PoolRefusal::Unfinished(catalog.name.clone())),
        PoolPhase::Destroyed => return Some(PoolRefusal::Destroyed(catalog.name.clone())),
        PoolPhase::Live => {}
    }
    // A twin of a failed or removed member does no harm: the pool does not read it.
    let takes_part = |disk: &Uuid| catalog.member(*disk).is_some_and(|member| member.state.takes_part());
    if let Some(twin) = twins.iter().find(|disk| takes_part(disk)) {
        return Some(PoolRefusal::DuplicateDisk(*twin));
    }
    candidates.iter().find_map(|candidate| parts::split(newest, candidate))
}

impl AssembledPool {
    /// True when nothing was written to the pool since it was opened without some of its members.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        self.catalog.must_announce()
    }

    /// Makes the next opening announce writes ([`Pool::announce_write`](crate::Pool::announce_write)).
    pub fn announce_writes(&mut self) {
        self.announces_writes = true;
    }

    /// Sets the epoch that the next claim must exceed, where disks that are not among the probes have marks up
    /// to it.
    pub fn set_highest_known_epoch(&mut self, epoch: u64) {
        self.highest_known_epoch = epoch;
    }

    /// Keeps this part of a split pool and discards the others, whose newest commit is `others`.
    pub fn discard_other_parts(&mut self, others: u64) {
        // At least its own generation: opening then makes one commit even where the other parts are older.
        (self.overtake_to, self.discards_other_parts) = (Some(others.max(self.generation)), true);
    }

    /// Admits the pool when nothing forbids opening it and every data group has enough members.
    ///
    /// *Shape*: `tolerates` decides for each group whether it can serve, given true for each position with an
    /// up-to-date member.
    pub fn admit(&self, tolerates: impl Fn(&GroupRecord, &[bool]) -> bool) -> Result<(), PoolRefusal> {
        self.admit_without(|_| false, tolerates)
    }

    /// As [`AssembledPool::admit`], treating the disks for which `out` is true as missing.
    pub(crate) fn admit_without(
        &self,
        out: impl Fn(Uuid) -> bool,
        tolerates: impl Fn(&GroupRecord, &[bool]) -> bool,
    ) -> Result<(), PoolRefusal> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        for (place, (record, found)) in self.catalog.groups.iter().zip(&self.groups).enumerate() {
            // The pool opens without its log group; its volumes that need the log do not serve until the log is
            // available again.
            if record.role != GroupRole::Data {
                continue;
            }
            // A member being rebuilt counts as absent: its content is valid only below its front.
            let is_there = |position: &Position| position.state == DiskState::Current && !out(position.disk);
            let present: Vec<bool> = found.positions.iter().map(is_there).collect();
            if !tolerates(record, &present) {
                return Err(PoolRefusal::Incomplete {
                    pool_name: self.catalog.name.clone(),
                    group: place,
                    present: present.iter().filter(|&&present| present).count(),
                    members: present.len(),
                });
            }
        }
        Ok(())
    }

    /// True when the pool has a log group without any up-to-date member.
    #[must_use]
    pub fn lacks_log(&self) -> bool {
        let groups = self.catalog.groups.iter().zip(&self.groups);
        let mut log = groups.filter(|(record, _)| record.role == GroupRole::Log);
        log.any(|(_, found)| found.positions.iter().all(|position| position.state != DiskState::Current))
    }

    /// Returns the participating members that were not found or cannot be trusted.
    ///
    /// Such a disk may have been used without this node since, so each one is reported to the operator.
    pub fn lost(&self) -> impl Iterator<Item = &Position> {
        // A failed position was given up by an earlier commit, and reported then.
        let positions = self.groups.iter().flat_map(|group| &group.positions);
        positions.filter(|position| !position.state.takes_part() && position.state != DiskState::Failed)
    }
}

#[cfg(test)]
mod tests;
