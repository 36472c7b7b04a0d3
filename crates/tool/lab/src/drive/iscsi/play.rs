//! Replay of recorded commands over a session.

use super::{GOOD, READ_16, Session, Speaker, WRITE_16, transfer};
use crate::drive::wire::turn;
use crate::replay::{Due, Kind, Score, Script};
use ::iscsi::TaskId;
use ::iscsi::initiator::{Command, DataIn};
use ::iscsi::pdu::{Residual, TaskAttribute};
use anyhow::{Context, Result};
use block::{Buf, Rope};
use shard::World;
use smallvec::SmallVec;
use std::collections::BTreeMap;

const SYNCHRONIZE_CACHE_16: u8 = 0x91;
const WRITE_SAME_16: u8 = 0x93;
const FUA: u8 = 0x08;
const UNMAP: u8 = 0x08;

impl<W: World> Session<W> {
    /// Sends the steps of `script` when they are due; returns their results after the last one.
    pub(crate) async fn play(&mut self, world: &W, mut script: Script) -> Result<Vec<Score>> {
        let mut under_way = BTreeMap::new();
        let mut now = world.now();
        loop {
            let until = loop {
                match script.next(now) {
                    Due::Now(index) => {
                        let task = self.speaker.submit_step(&script, index)?;
                        under_way.insert(task.bits(), index);
                    }
                    Due::At(then) => break Some(then),
                    Due::Over if script.under_way() == 0 => return Ok(script.scores()),
                    Due::Full | Due::Over => break None,
                }
            };
            turn(world, &self.stream, &mut self.speaker, until).await?;
            now = world.now();
            while let Some(done) = self.speaker.completion()? {
                let index = under_way.remove(&done.task.bits()).context("a task ended that nobody began")?;
                let step = script.step(index);
                // A short transfer with GOOD status counts as failed.
                let moved = match step.kind {
                    Kind::Read => u64::from(done.data_in_bytes) == step.bytes,
                    Kind::Write | Kind::WriteSame => done.residual == Residual::None,
                    Kind::Sync => true,
                };
                script.ended(index, now, done.status == GOOD && moved);
            }
        }
    }
}

impl Speaker {
    fn submit_step(&mut self, script: &Script, index: usize) -> Result<TaskId> {
        let step = script.step(index);
        let (lba, blocks) = (step.offset / u64::from(self.block_bytes), step.bytes / u64::from(self.block_bytes));
        let operation = match step.kind {
            Kind::Read => READ_16,
            Kind::Write => WRITE_16,
            Kind::WriteSame => WRITE_SAME_16,
            Kind::Sync => SYNCHRONIZE_CACHE_16,
        };
        let mut cdb = transfer(operation, lba, u32::try_from(blocks)?);
        if step.flag {
            // Bit 3 of byte 1 is FUA in WRITE (16), and UNMAP in WRITE SAME (16).
            cdb[1] = if step.kind == Kind::WriteSame { UNMAP } else { FUA };
        }
        let (data_out, data_in) = match step.kind {
            // A trace has no data, so there is nothing that the content could be compared with.
            Kind::Read => (None, DataIn::Discard(u32::try_from(step.bytes)?)),
            // Written data carries stamps that identify its location.
            Kind::Write => (Some(Rope::from(script.data(index))), DataIn::None),
            Kind::WriteSame => (Some(Rope::from(Buf::zeroed(self.block_bytes as usize))), DataIn::None),
            Kind::Sync => (None, DataIn::None),
        };
        let (cdb, attribute) = (SmallVec::from_buf(cdb), TaskAttribute::Simple);
        let task = self.machine.submit(Command { lun: self.lun, cdb, attribute, data_out, data_in });
        task.ok().context("the session takes no command")
    }
}
