//! One of the two targets, with two initiators.

use super::answer::Answer;
use super::stream::{BLOCK_BYTES, BLOCKS, Request};
use crate::client::Client;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use block::{Buf, Rope};
use iscsi::initiator::DataIn;
use lab::target::{self, Backing, Kind, Setup, Target, Unit};
use std::path::Path;

/// Blocks per read or write of the test itself.
const CHUNK_BLOCKS: u32 = 1024;
/// Upper bound of unit attentions that may be pending for an initiator.
const ATTENTIONS_MAX: usize = 8;
const KEY: u8 = 0xC;

/// Running target, and two sessions with its unit.
pub(super) struct Side {
    unit: Unit,
    clients: [Client; 2],
    _target: Box<dyn Target>,
}

impl Side {
    /// Starts the target with its files in `folder`, and logs in both initiators.
    pub(super) fn start(kind: Kind, folder: &Path) -> Result<Self> {
        let mut setup = Setup::new(folder.to_owned(), 1, &Backing::Thin)?;
        if kind == Kind::Blockyard {
            setup.build = workspace::product()?;
        }
        setup.unit_bytes = BLOCKS * u64::from(BLOCK_BYTES);
        let target = target::start(kind, &setup)?;
        let unit = target.units()[0].clone();
        let clients = [Client::log_in(&unit, 1)?, Client::log_in(&unit, 2)?];
        // The stream names blocks by number, so units of different sizes could not be compared.
        ensure!(
            clients.iter().all(|client| (client.blocks, client.block_bytes) == (BLOCKS, BLOCK_BYTES)),
            "the unit is not as large as it was made"
        );
        Ok(Self { unit, clients, _target: target })
    }

    /// Sends the command and returns the answer; a broken connection is replaced.
    pub(super) fn send(&mut self, request: &Request) -> Result<Answer> {
        let data_out = request.data_out.as_deref().map(|data| Rope::from(Buf::copy_of(data)));
        let data_in = match request.data_in_bytes {
            0 => DataIn::None,
            bytes => DataIn::Into(Buf::zeroed(bytes as usize)),
        };
        let client = &mut self.clients[request.nexus];
        let answer = Answer::of(client.execute(request.absent_lun, &request.cdb, data_out, data_in));
        if answer.is_last() {
            // The same number, so that the target sees the same initiator port again.
            self.clients[request.nexus] = Client::log_in(&self.unit, request.nexus as u16 + 1)
                .with_context(|| format!("no new login after \"{}\"", answer.end))?;
        }
        Ok(answer)
    }

    /// Resets the unit: no reservations, started, default mode parameters, and no pending unit attentions.
    pub(super) fn level(&mut self) -> Result<()> {
        for nexus in 0..self.clients.len() {
            // RELEASE (6) from both initiators, since only the holder can release the unit.
            self.tell(nexus, &[0x17, 0, 0, 0, 0, 0], &[]);
        }
        // Registered first, because only a registered initiator may send CLEAR (SPC-4).
        for action in [6, 3] {
            let mut list = [0; 24];
            // REGISTER AND IGNORE EXISTING KEY takes the new key, CLEAR the registered one.
            list[if action == 6 { 15 } else { 7 }] = KEY;
            self.tell(0, &[0x5F, action, 0, 0, 0, 0, 0, 0, 24, 0], &list);
        }
        // START STOP UNIT with START, then PREVENT ALLOW MEDIUM REMOVAL with removal allowed.
        self.tell(0, &[0x1B, 0, 0, 0, 1, 0], &[]);
        self.tell(0, &[0x1E, 0, 0, 0, 0, 0], &[]);
        // Control mode page with its default values.
        let list = [0, 0, 0, 0, 0x0A, 10, 0x02, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0];
        self.tell(0, &[0x15, 0x10, 0, 0, list.len() as u8, 0], &list);
        for nexus in 0..self.clients.len() {
            // TEST UNIT READY of both also takes the unit attentions that the commands above have established.
            let answer = self.tell(nexus, &[0; 6], &[]);
            ensure!(answer.end == "good", "the unit does not become ready: {answer}");
        }
        Ok(())
    }

    /// Sends a command, again as long as unit attentions are pending, and returns the answer.
    fn tell(&mut self, nexus: usize, cdb: &[u8], list: &[u8]) -> Answer {
        let mut send = || {
            let data_out = (!list.is_empty()).then(|| Rope::from(Buf::copy_of(list)));
            Answer::of(self.clients[nexus].execute(None, cdb, data_out, DataIn::None))
        };
        let mut answer = send();
        for _ in 0..ATTENTIONS_MAX {
            if answer.end.starts_with("6/") {
                answer = send();
            }
        }
        answer
    }

    /// Writes zeros to these blocks, as far as they exist.
    pub(super) fn clear(&mut self, lba: u64, blocks: u64) -> Result<()> {
        let end = lba.saturating_add(blocks).min(BLOCKS);
        let mut at = lba;
        while at < end {
            let some = (end - at).min(u64::from(CHUNK_BLOCKS));
            self.clients[0].write(at, Rope::from(Buf::zeroed(some as usize * BLOCK_BYTES as usize)))?;
            crate::client::ensure_good(&self.clients[0].await_completion()?)?;
            at += some;
        }
        Ok(())
    }

    /// Reads these blocks; `None` when the read does not end GOOD.
    pub(super) fn read(&mut self, nexus: usize, lba: u64, blocks: u32) -> Result<Option<Vec<u8>>> {
        let client = &mut self.clients[nexus];
        client.read(lba, blocks, DataIn::Into(Buf::zeroed(blocks as usize * BLOCK_BYTES as usize)))?;
        let completion = client.await_completion()?;
        let data = completion.data_in.as_deref().map(<[u8]>::to_vec);
        Ok(data.filter(|_| completion.status == 0))
    }

    /// Reads the whole unit.
    pub(super) fn contents(&mut self) -> Result<Vec<u8>> {
        let mut contents = Vec::with_capacity(BLOCKS as usize * BLOCK_BYTES as usize);
        for lba in (0..BLOCKS).step_by(CHUNK_BLOCKS as usize) {
            contents.extend(self.read(0, lba, CHUNK_BLOCKS)?.with_context(|| format!("block {lba} cannot be read"))?);
        }
        Ok(contents)
    }
}
