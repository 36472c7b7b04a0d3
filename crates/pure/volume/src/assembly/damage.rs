//! What of a pool's own metadata is damaged on disks that can be believed all the same, and is written again when it is opened.

use super::{Candidate, FoundPool};
use crate::catalog::Catalog;
use crate::layout::SLOT_STARTS;
use crate::probe::FoundCatalog;
use std::fmt;
use uuid::Uuid;

/// Metadata of one disk that is damaged, and is written again when the pool is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// On which disk.
    pub disk: Uuid,
    /// Which metadata.
    pub structure: Structure,
}

/// Which metadata of a disk is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// Copies of the label, of three; the two at the head of the disk lie in its first MiB.
    Label {
        /// How many copies are not whole.
        copies: usize,
        /// True when both copies at the head of the disk are among them.
        is_head: bool,
    },
    /// Copies of the pool's catalog, of two.
    Catalog {
        /// How many are not whole.
        copies: usize,
    },
    /// The copy of the catalog that says it is the newest has a generation that no commit can have given it.
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
/// A commit is in both slots of every member that takes part before the next one begins. So a generation that is more than one ahead
/// of all other members that it counts on, on a disk whose other slot has neither the same nor the one before it, is damage, not news.
pub(super) fn disbelieve(candidates: &mut [Candidate<'_>]) {
    let generations: Vec<(Uuid, Option<u64>)> =
        candidates.iter().map(|candidate| (candidate.disk(), candidate.generation())).collect();
    for candidate in candidates {
        let disk = candidate.disk();
        let [newest, rest @ ..] = candidate.catalogs() else { continue };
        let counts = |id: &Uuid| newest.catalog.member(*id).is_some_and(|member| member.state.takes_part());
        let mut others = generations.iter().filter(|(id, _)| *id != disk && counts(id)).filter_map(|(_, found)| *found);
        let ahead = |other: u64| other.saturating_add(1) < newest.generation;
        let follows = |found: &FoundCatalog| newest.generation.abs_diff(found.generation) <= 1;
        let has_before = rest.iter().any(follows);
        let mut is_any = false;
        let all_behind = others.all(|other| {
            is_any = true;
            ahead(other)
        });
        if is_any && all_behind && !has_before {
            candidate.disbelieved = 1;
        }
    }
}

/// What is damaged on the disks that take part by `catalog`. One slot that is not whole is damage where the pool `is_released`, for
/// its owner had no commit under way when it stopped; else a power cut may have torn it.
pub(super) fn of_candidates(catalog: &Catalog, candidates: &[Candidate<'_>], is_released: bool) -> Vec<Damage> {
    let takes_part = |disk: Uuid| catalog.member(disk).is_some_and(|member| member.state.takes_part());
    let mut all = Vec::new();
    for candidate in candidates.iter().filter(|candidate| takes_part(candidate.disk())) {
        let disk = candidate.disk();
        let mut add = |structure| all.push(Damage { disk, structure });
        let torn = candidate.member.copies.iter().filter(|is_whole| !**is_whole).count();
        if torn > 0 {
            let is_head = !candidate.member.copies[0] && !candidate.member.copies[1];
            add(Structure::Label { copies: torn, is_head });
        }
        if let Some(found) = candidate.member.catalogs.first().filter(|_| candidate.disbelieved > 0) {
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

impl FoundPool {
    /// Metadata that is damaged, of disks that are believed: opening the pool writes it again. An operator should hear of each.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        let believed = |disk: Uuid| {
            let mut positions = self.groups.iter().flat_map(|group| &group.positions);
            positions.any(|position| position.disk == disk && position.standing.takes_part())
        };
        self.damage.iter().filter(move |damage| believed(damage.disk))
    }
}
