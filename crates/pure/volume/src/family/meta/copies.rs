//! Redundant copies of map blocks: reads the best copy, rewrites damaged ones (ADR 0016).

use super::super::error::MapError;
use super::super::page_space::LOG_START;
use super::Meta;
use crate::family::plan::MapRepair;
use crate::layout::BLOCK_BYTES;
use crate::tree::Damage;
use block::{BlockDevice, Extent, GenerationFn, IoErrorKind, Lba, Stable, View, Written};
use futures_util::future::join_all;

const BLOCK: usize = BLOCK_BYTES as usize;

impl<D: BlockDevice + 'static, G: BlockDevice> Meta<D, G> {
    /// Number of copies of the block at `address`.
    pub(super) fn copies(&self, address: u64) -> usize {
        if self.locate(address).second.is_some() { 2 } else { 1 }
    }

    /// Reads one copy of `blocks` blocks from `address` on, each as far as it is readable. `rank` tells which
    /// of the array's own copies is the newest intact one.
    pub(super) async fn read_copy(
        &self,
        address: u64,
        blocks: u64,
        copy: usize,
        rank: GenerationFn<'_>,
    ) -> Vec<Result<View, MapError>> {
        let mut found = Vec::with_capacity(blocks as usize);
        while (found.len() as u64) < blocks {
            let at = address + found.len() as u64;
            let located = self.locate(at);
            let run = located.run.min(blocks - found.len() as u64);
            let Some(start) = located.copy(copy).filter(|_| run > 0) else {
                found.push(Err(Damage("a page lies behind the slabs of its map").into()));
                continue;
            };
            let device = self.shared.gate(located.group).device();
            match device.read_best(Extent::new(start, run), rank).await {
                // The array may have repaired a mirror copy while it chose the best one.
                Ok(best) => {
                    self.report_repaired(at, best.repaired);
                    found.extend((0..run as usize).map(|at| Ok(best.content.slice(at * BLOCK..(at + 1) * BLOCK))));
                }
                Err(error) if run == 1 => found.push(Err(MapError::Group { group: located.group, error })),
                // Blocks are read one by one after a failed read, so that one bad block does not hide the
                // others.
                Err(_) => {
                    for at in start..start + run {
                        let read = device.read_best(Extent::new(at, 1), rank).await;
                        let read = read.map(|best| best.content);
                        found.push(read.map_err(|error| MapError::Group { group: located.group, error }));
                    }
                }
            }
        }
        found
    }

    /// Reads the block at `address` from the first copy that `parse` accepts; `parse` also returns the age of
    /// the block.
    ///
    /// *Errors*: that of `parse`, or the read error, when no copy is intact.
    pub(crate) async fn read_whole<T>(
        &self,
        address: u64,
        parse: impl Fn(View) -> Result<(T, u64), Damage>,
    ) -> Result<T, MapError> {
        let rank = |block: &[u8]| parse(block::Buf::copy_of(block).freeze()).ok().map(|(_, rank)| rank);
        let mut failed = None;
        for copy in 0..self.copies(address) {
            let read = self.read_copy(address, 1, copy, &rank).await.pop().expect("one block was asked for");
            let parsed = read.and_then(|bytes| Ok((parse(bytes.clone())?.0, bytes)));
            match parsed {
                Ok((whole, bytes)) => {
                    // The second copy was accepted after the first failed, so the first is rewritten.
                    if failed.is_some() {
                        self.rewrite_copy(address, 0, bytes).await;
                    }
                    return Ok(whole);
                }
                // The error of the first copy is kept: the second one is read only because of it.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed.expect("every block has a copy") {
            // An unreadable block counts as damaged map content, which repair can handle; other I/O errors may
            // be temporary.
            MapError::Group { error, .. } if error.kind == IoErrorKind::Medium => {
                Err(Damage("a block of the map cannot be read").into())
            }
            error => Err(error),
        }
    }

    /// Reads as [`Meta::read_whole`], comparing all copies and rewriting those that differ.
    pub(crate) async fn verify<T>(
        &self,
        address: u64,
        parse: impl Fn(View) -> Result<(T, u64), Damage>,
    ) -> Result<T, MapError> {
        let whole = self.read_whole(address, &parse).await?;
        if self.copies(address) > 1 {
            let rank = |block: &[u8]| parse(block::Buf::copy_of(block).freeze()).ok().map(|(_, rank)| rank);
            let first = self.read_copy(address, 1, 0, &rank).await.pop().expect("one block was asked for").ok();
            let second = self.read_copy(address, 1, 1, &rank).await.pop().expect("one block was asked for").ok();
            // The first copy may still be damaged: its rewrite above may have failed.
            let is_intact = |copy: &View| parse(copy.clone()).is_ok();
            let (intact, other, number) = match first.clone().filter(is_intact) {
                Some(first) => (Some(first), second, 1),
                None => (second.filter(is_intact), first, 0),
            };
            // Copies of an intact block are identical, so any difference is damage.
            if let Some(intact) = intact
                && other.is_none_or(|other| other[..] != intact[..])
            {
                self.rewrite_copy(address, number, intact).await;
            }
        }
        Ok(whole)
    }

    /// Rewrites a damaged copy with `bytes` and, if that succeeds, reports the repair.
    pub(super) async fn rewrite_copy(&self, address: u64, copy: usize, bytes: View) {
        if self.write_copy(address, copy, bytes).await.is_ok() {
            self.report_repaired(address, 1);
        }
    }

    pub(super) fn report_repaired(&self, address: u64, copies: u64) {
        if copies > 0 {
            let (family, what) = (self.identity.family, self.kind_of(address));
            self.shared.report_map_repair(MapRepair { family, what, block: address, copies });
        }
    }

    /// Kind of the block at `address`, for events.
    fn kind_of(&self, address: u64) -> &'static str {
        let log = LOG_START..LOG_START + u64::from(self.log_blocks);
        match address {
            0 | 1 => "head",
            _ if log.contains(&address) => "log block",
            _ if address < log.start || self.space.borrow().is_for_bits(address) => "free-page bitmap",
            _ => "page",
        }
    }

    /// Writes `data` to one copy of the blocks from `address` on; does nothing where that copy does not exist.
    pub(super) async fn write_copy(&self, address: u64, copy: usize, data: View) -> Result<Written, MapError> {
        let mut writes = Vec::new();
        let (mut at, mut done) = (address, 0);
        while done < data.len() {
            let located = self.locate(at);
            let run = located.run.min(((data.len() - done) / BLOCK) as u64);
            if run == 0 {
                return Err(Damage("a page lies behind the slabs of its map").into());
            }
            let part = data.slice(done..done + run as usize * BLOCK);
            writes.extend(located.copy(copy).map(|start| self.write_run(located.group, start, part)));
            (at, done) = (at + run, done + run as usize * BLOCK);
        }
        let written = join_all(writes).await.into_iter().collect::<Result<Vec<Written>, MapError>>()?;
        Ok(written.into_iter().fold(Written::attest(), Written::and))
    }

    async fn write_run(&self, group: u16, start: u64, data: View) -> Result<Written, MapError> {
        // As for data: a group that the catalog calls clean is not resynced after a crash.
        let _writing = self.shared.start_write(group).await.map_err(|_| MapError::CatalogLost)?;
        let written = self.shared.gate(group).device().write(Lba(start), data).await;
        written.map_err(|error| MapError::Group { group, error })
    }

    /// Writes `data` to both copies of the blocks from `address` on, concurrently; no stable head may refer to
    /// them yet.
    pub(crate) async fn write(&self, address: u64, data: View) -> Result<Written, MapError> {
        let both = (self.write_copy(address, 0, data.clone()), self.write_copy(address, 1, data));
        let (first, second) = futures_util::future::join(both.0, both.1).await;
        Ok(first?.and(second?))
    }

    /// Writes `data` to both copies one after the other, each followed by a flush, so that a power loss or a
    /// failed member damages only one.
    pub(super) async fn write_in_turn(&self, parts: &[(u64, View)]) -> Result<Stable, MapError> {
        // Where no part has a second copy, one flush is enough.
        let two = parts.iter().any(|(address, _)| self.copies(*address) > 1);
        let mut stable = None;
        for copy in 0..if two { 2 } else { 1 } {
            for (address, data) in parts {
                let _: Written = self.write_copy(*address, copy, data.clone()).await?;
            }
            stable = Some(self.flush().await?);
        }
        Ok(stable.expect("there is a copy"))
    }
}
