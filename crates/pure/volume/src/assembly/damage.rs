//! Damaged pool metadata on disks that are otherwise trusted; it is rewritten when the pool is opened.

use super::{AssembledPool, Candidate};
use crate::catalog::Catalog;
use crate::layout::SLOT_STARTS;
use crate::probe::FoundCatalog;
use std::fmt;
use uuid::Uuid;

/// Damaged metadata of one disk, rewritten when the pool is opened (event BY-E233).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// UUID of the disk.
    pub disk: Uuid,
    /// Damaged structure.
    pub structure: Structure,
}

/// Kind of damaged metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// Label. It has three copies, two of them in the first MiB of the disk.
    Label {
        /// Number of damaged copies.
        copies: usize,
        /// True when both copies at the head of the disk are damaged.
        is_head: bool,
    },
    /// Pool catalog, which has two copies.
    Catalog {
        /// Number of damaged copies.
        copies: usize,
    },
    /// Catalog copy with this generation, which no commit can have written.
    Generation(u64),
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { copies, is_head: true } => {
                write!(f, "the label, with everything in the first MiB of the disk ({copies} of 3 copies)")
            }
            Self::Label { copies, is_head: false } => write!(f, "the label ({copies} of 3 copies)"),
            Self::Catalog { copies: 1 } => f.write_str("the catalog (1 of 2 copies)"),
            Self::Catalog { .. } => f.write_str("the catalog (both copies)"),
            Self::Generation(generation) => {
                write!(f, "the catalog (a copy of generation {generation}, far ahead of all others)")
            }
        }
    }
}

/// Marks the catalogs that no commit can have written.
///
/// A commit is in both slots of every participating member before the next one starts. A generation that is
/// more than one ahead of all other members that it counts on, on a disk whose other slot has neither the same
/// generation nor the one before, is therefore damage.
pub(super) fn ignore_impossible(candidates: &mut [Candidate<'_>]) {
    let generations: Vec<(Uuid, Option<u64>)> =
        candidates.iter().map(|candidate| (candidate.disk(), candidate.generation())).collect();
    for candidate in candidates {
        let disk = candidate.disk();
        let [newest, rest @ ..] = candidate.catalogs() else { continue };
        let counts = |id: &Uuid| newest.catalog.member(*id).is_some_and(|member| member.state.takes_part());
        // Only members that the catalog in question counts on can contradict it.
        let mut others = generations.iter().filter(|(id, _)| *id != disk && counts(id)).filter_map(|(_, found)| *found);
        let ahead = |other: u64| other.saturating_add(1) < newest.generation;
        let follows = |found: &FoundCatalog| newest.generation.abs_diff(found.generation) <= 1;
        let has_before = rest.iter().any(follows);
        let mut is_any = false;
        let all_behind = others.all(|other| {
            is_any = true;
            ahead(other)
        });
        // With no other member to compare against, the catalog is trusted: a single-disk pool has nothing to
        // contradict it.
        if is_any && all_behind && !has_before {
            // The older slot is judged as usual: it holds a commit that was made.
            candidate.ignored_catalogs = 1;
        }
    }
}

/// Lists the damaged metadata of the members that participate according to `catalog`.
///
/// One damaged slot is damage only where the pool `is_released`, because its owner then had no commit in
/// flight; otherwise a power loss may have torn it.
pub(super) fn of_candidates(catalog: &Catalog, candidates: &[Candidate<'_>], is_released: bool) -> Vec<Damage> {
    let takes_part = |disk: Uuid| catalog.member(disk).is_some_and(|member| member.state.takes_part());
    let mut all = Vec::new();
    for candidate in candidates.iter().filter(|candidate| takes_part(candidate.disk())) {
        let disk = candidate.disk();
        let mut add = |structure| all.push(Damage { disk, structure });
        let torn = candidate.member.copies.iter().filter(|is_whole| !**is_whole).count();
        if torn > 0 {
            // Both head copies lost: something has probably overwritten the first MiB.
            let is_head = !candidate.member.copies[0] && !candidate.member.copies[1];
            add(Structure::Label { copies: torn, is_head });
        }
        if let Some(found) = candidate.member.catalogs.first().filter(|_| candidate.ignored_catalogs > 0) {
            add(Structure::Generation(found.generation));
        } else {
            let copies = SLOT_STARTS.len() - candidate.member.catalogs.len();
            if copies > usize::from(!is_released) {
                add(Structure::Catalog { copies });
            }
        }
    }
    all
}

impl AssembledPool {
    /// Returns the damaged metadata of trusted members, which opening the pool rewrites. Each entry is reported
    /// to the operator.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        let believed = |disk: Uuid| {
            let mut positions = self.groups.iter().flat_map(|group| &group.positions);
            positions.any(|position| position.disk == disk && position.state.takes_part())
        };
        self.damage.iter().filter(move |damage| believed(damage.disk))
    }
}
