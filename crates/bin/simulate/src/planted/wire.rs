//! PDUs between the data plane and a host, at which a wire bug takes effect. Requires sessions without digests.

use super::{BugState, CachedRead, InjectedBug};
use scsi::ParsedSense;
use std::collections::BTreeMap;
use std::rc::Rc;

const BHS_BYTES: usize = 48;
/// Initiator task tags that hosts never reach, because they count from zero.
const OWN_TAG: u32 = 0xF00D_0000;

const SCSI_COMMAND: u8 = 0x01;
const TASK_MANAGEMENT_REQUEST: u8 = 0x02;
const SCSI_RESPONSE: u8 = 0x21;
const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
const DATA_IN: u8 = 0x25;
const ASYNC_MESSAGE: u8 = 0x32;

const CHECK_CONDITION: u8 = 0x02;
const DATA_PROTECT: u8 = 0x07;
const MISCOMPARE: u8 = 0x0E;

/// Complete PDU.
#[derive(Clone)]
pub(super) struct Pdu(pub Vec<u8>);

/// State of a bug on one connection.
pub(super) struct WireBug {
    plant: Rc<BugState>,
    /// LUN and CDB of each task.
    tasks: BTreeMap<[u8; 4], Vec<u8>>,
    last_data: Vec<u8>,
    /// Task management function to be repeated, and the number of commands that precede it.
    again: Option<(u8, Pdu)>,
    own_tags: u32,
}

impl Pdu {
    /// Returns the length of the PDU at the beginning of `bytes`; `None` while the header is incomplete.
    pub(super) fn bytes_of(bytes: &[u8]) -> Option<usize> {
        let header = bytes.get(..BHS_BYTES)?;
        let data = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        // Additional header segments are counted in words of four bytes, and the data is padded (RFC 7143 §11.2.1).
        Some(BHS_BYTES + usize::from(header[4]) * 4 + data.next_multiple_of(4))
    }

    fn opcode(&self) -> u8 {
        self.0[0] & 0x3F
    }

    fn tag(&self) -> [u8; 4] {
        [self.0[16], self.0[17], self.0[18], self.0[19]]
    }

    /// Returns the LUN and the CDB of a command.
    fn task(&self) -> Vec<u8> {
        [&self.0[8..16], &self.0[32..48]].concat()
    }

    /// Adds `by` to the 4-byte field at `at`.
    fn add(&mut self, at: usize, by: i32) {
        let field: [u8; 4] = self.0[at..at + 4].try_into().expect("these are four bytes");
        let sum = u32::from_be_bytes(field).wrapping_add_signed(by);
        self.0[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns the offset of the low four bytes of the LBA in the CDB of one of `codes`.
    fn lba_at(&self, codes: [u8; 2]) -> Option<usize> {
        let [short, long] = codes;
        let at = match self.0[32] {
            code if code == short => 34,
            code if code == long => 38,
            _ => return None,
        };
        // LBA zero has no preceding block.
        (self.0[at..at + 4] != [0; 4]).then_some(at)
    }

    fn data(&self) -> &[u8] {
        &self.0[BHS_BYTES + usize::from(self.0[4]) * 4..]
    }

    fn data_mut(&mut self) -> &mut [u8] {
        let from = BHS_BYTES + usize::from(self.0[4]) * 4;
        &mut self.0[from..]
    }

    /// Returns the sense key, which follows the two bytes of the sense length.
    fn sense_key(&self) -> Option<u8> {
        Some(ParsedSense::parse(self.data().get(2..)?)?.key)
    }

    fn drop_data(&mut self) {
        self.0.truncate(BHS_BYTES);
        self.0[4..8].fill(0);
    }
}

impl WireBug {
    pub(super) fn new(plant: &Rc<BugState>) -> Self {
        Self { plant: plant.clone(), tasks: BTreeMap::new(), last_data: Vec::new(), again: None, own_tags: 0 }
    }

    /// Returns the PDUs that the data plane receives instead of `pdu`.
    pub(super) fn request(&mut self, mut pdu: Pdu) -> Vec<Pdu> {
        match pdu.opcode() {
            SCSI_COMMAND => {
                // The answer names only the task, so its CDB is kept.
                self.tasks.insert(pdu.tag(), pdu.task());
                self.bend_command(&mut pdu);
                let more = self.function_again(&pdu);
                [pdu].into_iter().chain(more).collect()
            }
            TASK_MANAGEMENT_REQUEST => {
                self.bend_function(&mut pdu);
                vec![pdu]
            }
            _ => vec![pdu],
        }
    }

    /// Returns the PDUs that the host receives instead of `pdu`.
    pub(super) fn response(&mut self, mut pdu: Pdu) -> Vec<Pdu> {
        match pdu.opcode() {
            SCSI_RESPONSE => {
                self.bend_response(&mut pdu);
                let twice = self.plant.triggers(InjectedBug::ResponseTwice, 20);
                if twice { vec![pdu.clone(), pdu] } else { vec![pdu] }
            }
            DATA_IN => {
                self.bend_data(&mut pdu);
                vec![pdu]
            }
            // The host did not send this function, so it must not see the response.
            TASK_MANAGEMENT_RESPONSE if u32::from_be_bytes(pdu.tag()) >= OWN_TAG => vec![unnoticed(pdu)],
            _ => vec![pdu],
        }
    }

    fn bend_command(&self, pdu: &mut Pdu) {
        let (reads, writes) = (pdu.lba_at([0x28, 0x88]), pdu.lba_at([0x2A, 0x8A]));
        if let Some(at) = reads.filter(|_| self.plant.triggers(InjectedBug::ReadsAnotherBlock, 20)) {
            pdu.add(at, -1);
        }
        if let Some(at) = writes.filter(|_| self.plant.triggers(InjectedBug::WritesAnotherBlock, 20)) {
            pdu.add(at, -1);
        }
        // A WRITE SAME of one block would become one of zero, which means all blocks.
        let write_same_of_many = pdu.0[32] == 0x93 && pdu.0[42..46] > [0, 0, 0, 1][..];
        if write_same_of_many && self.plant.triggers(InjectedBug::WriteSameStopsEarly, 1) {
            pdu.add(42, -1);
        }
    }

    fn bend_function(&mut self, pdu: &mut Pdu) {
        const ABORT_TASK: u8 = 1;
        const ABORT_TASK_SET: u8 = 2;
        let function = pdu.0[1] & 0x7F;
        if function == ABORT_TASK && self.plant.triggers(InjectedBug::AbortEndsMore, 2) {
            // ABORT TASK SET has no Referenced Task Tag (RFC 7143 §11.5).
            pdu.0[1] = 0x80 | ABORT_TASK_SET;
            pdu.0[20..24].fill(0xFF);
        }
        if function != ABORT_TASK && self.again.is_none() && self.plant.triggers(InjectedBug::AbortEndsLater, 1) {
            let mut again = pdu.clone();
            // Immediate, so that it consumes no CmdSN of the host.
            again.0[0] |= 0x40;
            again.0[1] = 0x80 | ABORT_TASK_SET;
            again.0[20..24].fill(0xFF);
            // Some commands later, so that it ends commands that were sent after the function.
            self.again = Some((3, again));
        }
    }

    /// Returns the repeated function once enough commands have followed it.
    fn function_again(&mut self, command: &Pdu) -> Option<Pdu> {
        let (left, mut function) = self.again.take()?;
        if left > 0 {
            self.again = Some((left - 1, function));
            return None;
        }
        self.own_tags += 1;
        function.0[8..16].copy_from_slice(&command.0[8..16]);
        function.0[16..20].copy_from_slice(&(OWN_TAG + self.own_tags).to_be_bytes());
        // An immediate function carries the CmdSN of the next command.
        // A function with a CmdSN of its own would shift the numbers of the host.
        function.0[24..32].copy_from_slice(&command.0[24..32]);
        function.add(24, 1);
        Some(function)
    }

    fn bend_response(&self, pdu: &mut Pdu) {
        if pdu.0[3] != CHECK_CONDITION {
            return;
        }
        let bug = match pdu.sense_key() {
            Some(MISCOMPARE) => InjectedBug::MiscompareHidden,
            Some(DATA_PROTECT) => InjectedBug::RefusalHidden,
            _ => InjectedBug::ErrorHidden,
        };
        if self.plant.triggers(bug, 1) {
            pdu.0[3] = 0;
            // GOOD comes without sense data.
            pdu.drop_data();
        }
    }

    fn bend_data(&mut self, pdu: &mut Pdu) {
        let task = self.tasks.get(&pdu.tag()).cloned().unwrap_or_default();
        let is_read = matches!(task.get(8), Some(0x28 | 0x88));
        if task.get(8..10) == Some(&[0x9E, 0x10]) && self.plant.triggers(InjectedBug::CapacityWrong, 1) {
            // Low half of the last LBA in the data of READ CAPACITY (16).
            pdu.add(BHS_BYTES + 4, 1);
        }
        if !is_read {
            return;
        }
        // Another length would break the sequence, which the initiator detects without an oracle.
        if self.last_data.len() == pdu.data().len() && self.plant.triggers(InjectedBug::DataInRepeated, 10) {
            pdu.data_mut().copy_from_slice(&self.last_data);
        }
        self.last_data = pdu.data().to_vec();
        if self.plant.bug == Some(InjectedBug::CacheOutlivesRestart) {
            self.answer_from_cache(task, pdu);
        }
    }

    fn answer_from_cache(&self, mut key: Vec<u8>, pdu: &mut Pdu) {
        // A READ may be answered in several Data-In PDUs, each with its buffer offset.
        key.extend_from_slice(&pdu.0[40..44]);
        let life = self.plant.life.get();
        let mut cache = self.plant.read.borrow_mut();
        match cache.get(&key) {
            Some(before) if before.life < life && before.data.len() == pdu.data().len() => {
                if self.plant.triggers(InjectedBug::CacheOutlivesRestart, 1) {
                    pdu.data_mut().copy_from_slice(&before.data);
                }
            }
            _ => drop(cache.insert(key, CachedRead { life, data: pdu.data().to_vec() })),
        }
    }
}

/// Turns the answer to a function that the host did not request into a message without meaning, which consumes the same
/// StatSN.
fn unnoticed(answer: Pdu) -> Pdu {
    const VENDOR_SPECIFIC: u8 = 255;
    let mut message = vec![0; BHS_BYTES];
    (message[0], message[1], message[36]) = (ASYNC_MESSAGE, 0x80, VENDOR_SPECIFIC);
    message[16..20].fill(0xFF);
    // StatSN, ExpCmdSN and MaxCmdSN are those of the answer.
    message[24..36].copy_from_slice(&answer.0[24..36]);
    Pdu(message)
}
