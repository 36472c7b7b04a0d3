//! Script of a session: events that an input defines.

use crate::memory_unit::BLOCK_BYTES;
use iscsi::{DigestOffer, Offer};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

#[derive(Arbitrary, Debug)]
pub struct Input {
    pub shape: Shape,
    pub steps: Vec<Step>,
}

/// Parameters of the login, and the unit.
#[derive(Arbitrary, Debug)]
pub struct Shape {
    pub unit: u8,
    pub level: u8,
    /// The initiator receives after each step, not only when a step says so.
    pub attentive: bool,
    pub small: bool,
    pub header_digest: bool,
    pub data_digest: bool,
    pub initial_r2t: bool,
    pub immediate_data: bool,
}

impl Shape {
    pub fn offer(&self) -> Offer {
        let digest = |yes| if yes { DigestOffer::Preferred } else { DigestOffer::Never };
        let burst = if self.small { 2048 } else { 8192 };
        Offer {
            header_digest: digest(self.header_digest),
            data_digest: digest(self.data_digest),
            initial_r2t: self.initial_r2t,
            immediate_data: self.immediate_data,
            data_segment_bytes_max: if self.small { 512 } else { 4096 },
            burst_bytes_max: burst,
            first_burst_bytes_max: burst,
            error_recovery_level: self.level % 3,
            connections_max: 2,
            ..Offer::default()
        }
    }
}

#[derive(Arbitrary, Debug)]
pub enum Step {
    /// The initiator sends something on a connection.
    Say {
        slot: bool,
        what: Say,
    },
    /// The unit executes the waiting command with this index.
    Carry(u8),
    /// The driver aborts the waiting command with this index.
    Forget(u8),
    /// The output of the target arrives, or is lost.
    Listen {
        slot: bool,
        loses: bool,
    },
    /// The next PDU of the initiator is damaged.
    Damage {
        at: u16,
        with: u8,
    },
    /// The next PDU of the initiator is lost.
    Lose,
    /// Offset to the next CmdSN or ExpStatSN.
    Skew {
        cmd_sn: i8,
        exp_stat_sn: i8,
    },
    Cut {
        slot: bool,
    },
    Join {
        cid: bool,
    },
    Wait {
        ms: u16,
    },
    Async {
        event: u8,
    },
    AskToLeave {
        seconds: u8,
    },
}

/// Request of the initiator.
#[derive(Arbitrary, Debug)]
pub enum Say {
    Command(Request),
    /// Answers the oldest received R2T, in pieces of this number of 256 bytes.
    Solicited {
        pieces: u8,
        fault: Fault,
    },
    /// Data without an R2T, or with the tag of another R2T.
    Data {
        tag: u8,
        transfer_tag: Option<u8>,
        at: u16,
        len: u16,
        is_final: bool,
    },
    Manage {
        tag: u8,
        function: u8,
        referenced: u8,
        immediate: bool,
    },
    Nop {
        tag: Option<u8>,
        echo: Option<u32>,
        len: u8,
    },
    Text {
        tag: u8,
        continues: bool,
        question: u8,
    },
    Logout {
        tag: u8,
        reason: u8,
        cid: bool,
    },
    Snack {
        kind: u8,
        tag: Option<u8>,
        beg_run: u8,
        run_length: u8,
        acknowledges: bool,
    },
}

/// Fault in the second piece of the data for an R2T.
#[derive(Arbitrary, Debug)]
pub enum Fault {
    None,
    /// The piece is lost.
    Lost,
    /// The piece is not sent, and the next has its DataSN.
    LeftOut,
    /// The piece is sent twice.
    Twice,
}

#[derive(Arbitrary, Debug)]
pub struct Request {
    pub tag: u8,
    pub lun: bool,
    pub immediate: bool,
    pub attribute: u8,
    pub direction: u8,
    pub cdb: Operation,
    /// Difference from the length in the CDB.
    pub expected_more: i8,
    pub unsolicited: u16,
}

#[derive(Arbitrary, Debug)]
pub enum Operation {
    Read { lba: u8, blocks: u8 },
    Write { lba: u8, blocks: u8 },
    CompareAndWrite { lba: u8, blocks: u8 },
    Inquiry { len: u8 },
    Any { cdb: [u8; 16], expected: u16 },
}

impl Operation {
    /// Returns the CDB and the length of its transfer in bytes.
    pub fn encode(&self) -> ([u8; 16], u32) {
        let ten = |opcode, lba, blocks: u8| {
            let cdb = [opcode, 0, 0, 0, 0, lba, 0, 0, blocks, 0, 0, 0, 0, 0, 0, 0];
            (cdb, u32::from(blocks) * BLOCK_BYTES)
        };
        match *self {
            Self::Read { lba, blocks } => ten(0x28, lba, blocks % 40),
            Self::Write { lba, blocks } => ten(0x2a, lba, blocks % 40),
            Self::CompareAndWrite { lba, blocks } => {
                let blocks = blocks % 4;
                let cdb = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, 0, 0];
                (cdb, 2 * u32::from(blocks) * BLOCK_BYTES)
            }
            Self::Inquiry { len } => ([0x12, 0, 0, 0, len, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], u32::from(len)),
            Self::Any { cdb, expected } => (cdb, u32::from(expected)),
        }
    }
}
