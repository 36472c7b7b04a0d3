//! Which pools a set of disks holds, and which disk may be believed: the decision table of
//! `docs/on-disk.md` as a pure function. Nothing here reads or writes.

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

/// What a set of disks holds.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The pools, by identity.
    pub pools: Vec<FoundPool>,
    /// The disks that belong to none of them, each by its place among the probes, and why.
    pub refused: Vec<(usize, DiskRefusal)>,
    /// The pools of which disks were found, and no catalog that can be read on any of them.
    pub unreadable: Vec<UnreadablePool>,
}

/// A pool that its disks name, none of which bears a catalog that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadablePool {
    /// Which pool.
    pub pool: Uuid,
    /// What its labels call it.
    pub name: String,
    /// Its disks, by their places among the probes.
    pub disks: Vec<usize>,
}

/// One pool as its disks tell it.
#[derive(Clone, Debug)]
pub struct FoundPool {
    /// What its newest catalog says.
    pub catalog: Rc<Catalog>,
    /// Which commit that is.
    pub generation: u64,
    /// Its groups, as in the catalog.
    pub groups: Vec<FoundGroup>,
    /// Why nothing of it may be used, if so.
    pub refusal: Option<PoolRefusal>,
    /// The bytes of the newest catalog.
    pub(crate) body: View,
    /// The slots that lack the newest commit, by disk, in the order in which they are to be written.
    pub(crate) behind: Vec<(Uuid, &'static [usize])>,
    /// The labels of which not all copies are whole.
    pub(crate) torn_labels: Vec<Label>,
    /// Who had it last, as each of its disks that was found tells it.
    pub(crate) marks: Vec<(Uuid, Claim)>,
    /// What is damaged of its metadata.
    damage: Vec<Damage>,
    /// The parts that went on without each other, where there are several: the one of the newest commit first.
    pub parts: Vec<FoundPart>,
    /// The newest commit of disks that are not believed, where that is not older than the pool's.
    pub(crate) outlives: Option<u64>,
    /// True when an operator has given up the other parts.
    pub(crate) gives_up_others: bool,
    /// True when whoever opens it announces writes.
    pub(crate) announces_writes: bool,
    /// A claim has a higher number than this.
    pub(crate) claims_above: u64,
}

/// One of several parts of a pool that were written without each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPart {
    /// Its disks, by their places among the probes.
    pub probes: Vec<usize>,
    /// Its newest commit.
    pub generation: u64,
    /// When it was opened last, and until when it was in use then, in seconds since 1970; zero where no disk tells.
    pub used: (u64, u64),
}

/// A pool is brought past other parts of it by at most so many commits.
pub const OUTLIVE_MAX: u64 = 1 << 16;

/// The positions of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundGroup {
    /// One for each member that the catalog names.
    pub positions: Vec<Position>,
}

/// Who is at one position of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Which disk belongs there.
    pub disk: Uuid,
    /// Its place among the probes, when it was found there; with it the standing tells what it is good for.
    pub probe: Option<usize>,
    /// Whether it may be believed.
    pub standing: Standing,
}

/// Whether the disk at a position may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds all that it should.
    Current,
    /// It was being filled, and holds what it should below `front`.
    Rebuilding {
        /// In blocks of the member's data area.
        front: Blocks,
    },
    /// It takes part by the catalog, but was not found.
    Missing,
    /// The catalog says that it failed or was missing before: what it holds is old.
    Failed,
    /// It takes part by the catalog, but its own catalogs are older than they can be, or damaged on a disk of a group without
    /// checksums, of which nothing else tells how old it is: what it holds may be old.
    Stale,
    /// Somebody else wrote over its head, so what it holds cannot be believed.
    Overwritten,
    /// It is smaller than when it was labelled.
    Shrunk,
}

impl Standing {
    /// True when the disk serves its group: it is read, written, and gets every catalog.
    #[must_use]
    pub fn takes_part(self) -> bool {
        matches!(self, Self::Current | Self::Rebuilding { .. })
    }
}

/// Why a disk belongs to no pool that was found. It is left untouched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskRefusal {
    /// Nothing is on it.
    #[error("the disk is blank")]
    Blank,
    /// It holds something that is not ours.
    #[error("the disk holds {0}")]
    Foreign(&'static str),
    /// It is a newer version's.
    #[error("{0}")]
    Newer(String),
    /// It was ours, but every copy of its label is damaged.
    #[error("every copy of the disk's label is damaged")]
    Damaged,
    /// It cannot be read.
    #[error("the disk cannot be read: {0}")]
    Unreadable(IoError),
    /// Another disk bears the same identity and is newer, or as new.
    #[error("the disk is a copy: disk {0} was found twice, and this is not the newer one")]
    Duplicate(Uuid),
    /// Its pool does not know it, or does not know it any more.
    #[error("the disk has a label of pool \"{0}\", which does not count it among its members")]
    NotMember(String),
    /// No disk of its pool bears a whole catalog.
    #[error(
        "no disk of pool \"{0}\" that is attached bears a catalog that can be read; attach the other disks of the pool"
    )]
    NoCatalog(String),
}

/// Why a pool that was found may not be used. Its disks are left untouched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    /// It was never made to the end.
    #[error("the making of pool \"{0}\" was interrupted, so there is no such pool; its disks may be used again")]
    Unfinished(String),
    /// A newer version has begun to change its format.
    #[error("{0}")]
    Newer(String),
    /// It was being destroyed.
    #[error("pool \"{0}\" was destroyed; its disks may be used again")]
    Destroyed(String),
    /// One disk was found twice, and nobody can tell which is the copy.
    #[error("disk {0} of the pool was found twice, and both are as new; detach the copy")]
    Twins(Uuid),
    /// Two parts of the pool have been used without each other.
    #[error(
        "the pool was used in two parts without each other: disk {ours} went on when {theirs} was away, and the other \
         way round; detach the part that is to be given up"
    )]
    Split {
        /// A disk of one part.
        ours: Uuid,
        /// A disk of the other part.
        theirs: Uuid,
    },
    /// Somebody has it open.
    #[error(
        "pool \"{pool_name}\" is in use by {} {node_name}; {}", if *is_us { "another daemon of node" } else { "node" },
        if *is_us { "stop that first" } else { "export it there first" }
    )]
    Owned {
        /// What the pool is called.
        pool_name: String,
        /// Who has it.
        node_name: String,
        /// True when that calls itself the same node.
        is_us: bool,
    },
    /// Another node had it open, did not let go of it, and is silent now.
    #[error(
        "pool \"{pool_name}\" was in use by node {node_name}, which did not let go of it and is silent now; if that node is \
         surely down, import the pool with --force"
    )]
    NotReleased {
        /// What the pool is called.
        pool_name: String,
        /// Who had it.
        node_name: String,
    },
    /// A group has lost more members than it bears.
    #[error("group {group} of pool \"{pool_name}\" cannot serve: {present} of its {members} members can be believed")]
    Incomplete {
        /// What the pool is called.
        pool_name: String,
        /// Which group, by its place.
        group: usize,
        /// How many members can be believed.
        present: usize,
        /// How many members it has.
        members: usize,
    },
}

/// Which pools the disks behind `probes` hold, in whatever order and under whatever names they were found.
#[must_use]
pub fn assemble(probes: &[Probe]) -> Survey {
    let mut survey = Survey { pools: Vec::new(), refused: Vec::new(), unreadable: Vec::new() };
    let mut by_pool: BTreeMap<Uuid, Vec<Candidate<'_>>> = BTreeMap::new();
    for (index, probe) in probes.iter().enumerate() {
        match judge_alone(probe) {
            Ok(member) => {
                let candidate = Candidate { index, blocks: probe.blocks, member, disbelieved: 0 };
                by_pool.entry(member.label.pool).or_default().push(candidate);
            }
            Err(refusal) => survey.refused.push((index, refusal)),
        }
    }
    for candidates in by_pool.into_values() {
        gather(candidates, &mut survey);
    }
    // Without its newer disks a pool would look as if it had lost them.
    for pool in &mut survey.pools {
        let newer = probes.iter().find_map(|probe| match &probe.contents {
            Contents::Newer { pool: id, sentence } if *id == pool.catalog.pool => Some(sentence),
            _ => None,
        });
        pool.refusal = newer.map(|sentence| PoolRefusal::Newer(sentence.clone())).or(pool.refusal.take());
    }
    survey.refused.sort_by_key(|(index, _)| *index);
    survey
}

/// A disk that says that it belongs to the pool at hand.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    index: usize,
    blocks: Blocks,
    member: &'a Member,
    /// So many of its catalogs, from the newest on, no commit can have written.
    disbelieved: usize,
}

impl<'a> Candidate<'a> {
    /// The catalogs that count, the newest first.
    fn catalogs(&self) -> &'a [FoundCatalog] {
        self.member.catalogs.get(self.disbelieved..).unwrap_or_default()
    }

    fn disk(&self) -> Uuid {
        self.member.label.disk
    }

    fn generation(&self) -> Option<u64> {
        self.catalogs().first().map(|found| found.generation)
    }

    /// True when one of its slots holds exactly this commit.
    fn holds(&self, commit: (u64, u32)) -> bool {
        self.catalogs().iter().any(|found| found.is(commit))
    }

    /// The slots that do not hold exactly this commit: the one of the newest catalog that the disk has comes last.
    fn slots_without(&self, commit: (u64, u32)) -> &'static [usize] {
        let has = |slot: usize| self.catalogs().iter().any(|found| found.slot == slot && found.is(commit));
        match (has(0), has(1)) {
            (true, true) => &[],
            (true, false) => &[1],
            (false, true) => &[0],
            (false, false) if self.catalogs().first().is_some_and(|newest| newest.slot == 0) => &[1, 0],
            (false, false) => &[0, 1],
        }
    }
}

/// What can be said of a disk without looking at others.
fn judge_alone(probe: &Probe) -> Result<&Member, DiskRefusal> {
    match &probe.contents {
        Contents::Blank => Err(DiskRefusal::Blank),
        Contents::Foreign(what) => Err(DiskRefusal::Foreign(what)),
        Contents::Newer { sentence, .. } => Err(DiskRefusal::Newer(sentence.clone())),
        Contents::Damaged => Err(DiskRefusal::Damaged),
        Contents::Unreadable(error) => Err(DiskRefusal::Unreadable(*error)),
        Contents::Member(member) => Ok(member),
    }
}

/// Finds the pool that `candidates` say that they belong to.
fn gather(candidates: Vec<Candidate<'_>>, survey: &mut Survey) {
    let (mut candidates, twins) = single_out(candidates, &mut survey.refused);
    damage::disbelieve(&mut candidates);
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
        // The disks of a log went away together: nothing was written to it since.
        let away = catalog.log_away_since().filter(|since| group.role == GroupRole::Log && record.since == *since);
        let standing = match away.filter(|_| record.state == MemberState::Missing) {
            Some(since) => standing(
                &MemberRecord { state: MemberState::InService, ..*record },
                candidate,
                since - 1,
                group.protected,
            ),
            None => standing(record, candidate, newest.generation, group.protected),
        };
        let standing = if away.is_some() && standing != Standing::Current { Standing::Failed } else { standing };
        Position { disk: record.disk, probe: candidate.map(|candidate| candidate.index), standing }
    };
    let groups = catalog
        .groups
        .iter()
        .map(|group| FoundGroup { positions: group.members.iter().map(|record| place(group, record)).collect() });
    let commit = (newest.generation, newest.checksum);
    let behind = candidates.iter().map(|candidate| (candidate.disk(), candidate.slots_without(commit)));
    let torn = candidates.iter().filter(|candidate| candidate.member.copies.contains(&false));
    let known = candidates.iter().filter(|candidate| catalog.member(candidate.disk()).is_some());
    let marks: Vec<_> =
        known.filter_map(|candidate| Some((candidate.disk(), candidate.member.owner.clone()?))).collect();
    let is_released = cluster::newest(&marks).is_some_and(|owner| owner.released);
    survey.pools.push(FoundPool {
        groups: groups.collect(),
        generation: newest.generation,
        body: newest.body.clone(),
        behind: behind.filter(|(_, slots)| !slots.is_empty()).collect(),
        marks,
        torn_labels: torn.map(|candidate| candidate.member.label.clone()).collect(),
        damage: damage::of_candidates(&catalog, &candidates, is_released),
        refusal: refusal(&catalog, newest, &candidates, &twins),
        parts: parts::of(newest, &candidates),
        outlives: candidates.iter().filter_map(Candidate::generation).max().filter(|max| *max > newest.generation),
        gives_up_others: false,
        announces_writes: false,
        claims_above: 0,
        catalog,
    });
}

/// One candidate for each disk: the newest. Where two are as new, neither stays, and the disk is a twin.
fn single_out<'a>(
    candidates: Vec<Candidate<'a>>,
    refused: &mut Vec<(usize, DiskRefusal)>,
) -> (Vec<Candidate<'a>>, Vec<Uuid>) {
    let mut by_disk: BTreeMap<Uuid, Vec<Candidate<'a>>> = BTreeMap::new();
    for candidate in candidates {
        by_disk.entry(candidate.disk()).or_default().push(candidate);
    }
    let (mut single, mut twins) = (Vec::new(), Vec::new());
    for (disk, mut copies) in by_disk {
        copies.sort_by_key(|copy| std::cmp::Reverse(copy.generation()));
        let as_new = copies.iter().filter(|copy| copy.generation() == copies[0].generation()).count();
        if as_new > 1 {
            twins.push(disk);
        } else {
            single.push(copies.remove(0));
        }
        refused.extend(copies.iter().map(|copy| (copy.index, DiskRefusal::Duplicate(disk))));
    }
    (single, twins)
}

/// The newest commit. Of two with one number, which only a crash or a split can leave, the one that every
/// member it names has: the other was never acknowledged.
fn choose_commit<'a>(candidates: &[Candidate<'a>]) -> Option<&'a FoundCatalog> {
    let newest = candidates.iter().filter_map(Candidate::generation).max()?;
    let commits = candidates.iter().flat_map(Candidate::catalogs);
    commits
        .filter(|found| found.generation == newest)
        .max_by_key(|found| (is_everywhere(found, candidates), std::cmp::Reverse(found.checksum)))
}

/// True when every disk that `found` counts on, and that is here, has it.
fn is_everywhere(found: &FoundCatalog, candidates: &[Candidate<'_>]) -> bool {
    let counted = |candidate: &&Candidate<'_>| {
        found.catalog.member(candidate.disk()).is_some_and(|member| member.state.takes_part())
    };
    candidates.iter().filter(counted).all(|candidate| candidate.holds((found.generation, found.checksum)))
}

/// The decision table for one position. A `protected` group knows by itself how old its disks are.
fn standing(record: &MemberRecord, candidate: Option<&Candidate<'_>>, newest: u64, protected: bool) -> Standing {
    let Some(candidate) = candidate else {
        return if record.state.takes_part() { Standing::Missing } else { Standing::Failed };
    };
    if !record.state.takes_part() {
        return Standing::Failed;
    }
    if candidate.blocks < candidate.member.label.device_blocks {
        return Standing::Shrunk;
    }
    if candidate.member.overwritten.is_some() {
        return Standing::Overwritten;
    }
    // A member that takes part may lack the last commit, which a crash interrupted, but never the one before.
    // Where both of its catalogs are damaged, the anchor of its array tells whether it has missed anything.
    if candidate.generation().map_or(!protected, |generation| generation.saturating_add(1) < newest) {
        return Standing::Stale;
    }
    match record.state {
        MemberState::Rebuilding { front } => Standing::Rebuilding { front },
        _ => Standing::Current,
    }
}

/// Why nothing of the pool may be used, if so.
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
    let takes_part = |disk: &Uuid| catalog.member(*disk).is_some_and(|member| member.state.takes_part());
    if let Some(twin) = twins.iter().find(|disk| takes_part(disk)) {
        return Some(PoolRefusal::Twins(*twin));
    }
    candidates.iter().find_map(|candidate| parts::split(newest, candidate))
}

impl FoundPool {
    /// True when nothing was written to the pool since it was opened without some members.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        self.catalog.must_announce()
    }

    /// Whoever opens it announces writes ([`Pool::announce_write`](crate::Pool::announce_write)).
    pub fn announce_writes(&mut self) {
        self.announces_writes = true;
    }

    /// Claims have higher numbers than this one, which disks bear that are not shown here.
    pub fn claim_above(&mut self, epoch: u64) {
        self.claims_above = epoch;
    }

    /// An operator has given up the other parts of the pool, whose newest commit is `others`.
    pub fn give_up_others(&mut self, others: u64) {
        (self.outlives, self.gives_up_others) = (Some(others.max(self.generation)), true);
    }

    /// Admits the pool when nothing forbids to use it and every group that volumes lie on can serve.
    ///
    /// *Shape*: `tolerates` is asked for each group, with true for each position whose disk holds all that
    /// it should, whether the group can serve so.
    pub fn admit(&self, tolerates: impl Fn(&GroupRecord, &[bool]) -> bool) -> Result<(), PoolRefusal> {
        self.admit_without(|_| false, tolerates)
    }

    /// As [`FoundPool::admit`], without the disks that are `out`.
    pub(crate) fn admit_without(
        &self,
        out: impl Fn(Uuid) -> bool,
        tolerates: impl Fn(&GroupRecord, &[bool]) -> bool,
    ) -> Result<(), PoolRefusal> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        for (place, (record, found)) in self.catalog.groups.iter().zip(&self.groups).enumerate() {
            if record.role != GroupRole::Data {
                continue;
            }
            let is_there = |position: &Position| position.standing == Standing::Current && !out(position.disk);
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

    /// True when the pool has a group for its log of which no member can be believed.
    #[must_use]
    pub fn lacks_log(&self) -> bool {
        let groups = self.catalog.groups.iter().zip(&self.groups);
        let mut log = groups.filter(|(record, _)| record.role == GroupRole::Log);
        log.any(|(_, found)| found.positions.iter().all(|position| position.standing != Standing::Current))
    }

    /// The disks that the catalog counts on and that were not found or cannot be believed.
    ///
    /// The pool may have gone on without us on them: an operator should hear of each.
    pub fn lost(&self) -> impl Iterator<Item = &Position> {
        let positions = self.groups.iter().flat_map(|group| &group.positions);
        positions.filter(|position| !position.standing.takes_part() && position.standing != Standing::Failed)
    }
}

#[cfg(test)]
mod tests;
