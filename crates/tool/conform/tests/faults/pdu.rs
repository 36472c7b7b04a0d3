//! PDU in transit, with the operations that a fault uses to change it.

use std::io::{Read, Result, Write};
use std::net::TcpStream;

pub(crate) const LOGIN_REQUEST: u8 = 0x03;
pub(crate) const COMMAND: u8 = 0x01;
pub(crate) const NOP_OUT: u8 = 0x00;
pub(crate) const TEXT_REQUEST: u8 = 0x04;
pub(crate) const DATA_OUT: u8 = 0x05;
pub(crate) const NOP_IN: u8 = 0x20;
pub(crate) const RESPONSE: u8 = 0x21;
pub(crate) const TASK_RESPONSE: u8 = 0x22;
pub(crate) const LOGIN_RESPONSE: u8 = 0x23;
pub(crate) const TEXT_RESPONSE: u8 = 0x24;
pub(crate) const DATA_IN: u8 = 0x25;
pub(crate) const LOGOUT_RESPONSE: u8 = 0x26;
pub(crate) const R2T: u8 = 0x31;
pub(crate) const ASYNC: u8 = 0x32;
pub(crate) const REJECT: u8 = 0x3f;

/// Offsets of fields in a header.
pub(crate) const TAG: usize = 16;
pub(crate) const TRANSFER_TAG: usize = 20;
pub(crate) const STAT_SN: usize = 24;
/// CmdSN of a request.
pub(crate) const CMD_SN: usize = 24;
pub(crate) const EXP_STAT_SN: usize = 28;
pub(crate) const EXP_CMD_SN: usize = 28;
pub(crate) const MAX_CMD_SN: usize = 32;
/// DataSN, R2TSN or ExpDataSN.
pub(crate) const DATA_SN: usize = 36;
pub(crate) const OFFSET: usize = 40;
/// Residual Count of an answer, Desired Data Transfer Length of an R2T.
pub(crate) const COUNT: usize = 44;

/// F of every PDU, and S of a Data-In.
pub(crate) const FINAL: u8 = 0x80;
pub(crate) const STATUS: u8 = 0x01;
/// C of a text.
pub(crate) const CONTINUE: u8 = 0x40;
pub(crate) const OVERFLOW: u8 = 0x04;
pub(crate) const UNDERFLOW: u8 = 0x02;

/// Digests that PDUs carry.
#[derive(Clone, Copy, Default)]
pub(crate) struct Digests {
    pub header: bool,
    pub data: bool,
}

/// Header, additional header segments and data; digests are computed when it is sent.
#[derive(Clone)]
pub(crate) struct Pdu {
    pub header: [u8; 48],
    pub ahs: Vec<u8>,
    pub data: Vec<u8>,
    /// Sends the digest with one bit flipped, because it arrived so or a fault demands it.
    pub is_header_damaged: bool,
    pub is_data_damaged: bool,
}

impl Pdu {
    /// Returns a PDU with a header of this opcode and nothing else.
    pub(crate) fn blank(opcode: u8) -> Self {
        let mut header = [0; 48];
        header[0] = opcode;
        Self { header, ahs: Vec::new(), data: Vec::new(), is_header_damaged: false, is_data_damaged: false }
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes([0, 1, 2, 3].map(|n| self.header[at + n]))
    }

    pub(crate) fn put(&mut self, at: usize, word: u32) {
        self.header[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }

    /// Adds `by` to the number at offset `at`.
    pub(crate) fn add(&mut self, at: usize, by: u32) {
        self.put(at, self.word(at).wrapping_add(by));
    }

    pub(crate) fn tag(&self) -> u32 {
        self.word(TAG)
    }

    /// True for the end of a command: a SCSI Response, or a Data-In with S.
    pub(crate) fn ends(&self) -> bool {
        self.opcode() == RESPONSE || (self.opcode() == DATA_IN && self.header[1] & STATUS != 0)
    }

    /// True when the PDU consumes a StatSN.
    pub(crate) fn is_counted(&self) -> bool {
        match self.opcode() {
            DATA_IN => self.header[1] & STATUS != 0,
            R2T => false,
            NOP_IN => self.tag() != u32::MAX,
            _ => true,
        }
    }

    /// Returns key, code and qualifier of fixed or descriptor sense data in a SCSI Response.
    pub(crate) fn sense(&self) -> Option<(u8, u8, u8)> {
        let sense = self.data.get(2..).filter(|_| self.opcode() == RESPONSE && self.header[3] == 2)?;
        match sense.first()? & 0x7f {
            0x70 => Some((sense.get(2)? & 0x0f, *sense.get(12)?, *sense.get(13)?)),
            _ => Some((*sense.get(1)?, *sense.get(2)?, *sense.get(3)?)),
        }
    }

    /// Replaces key, code and qualifier of the sense data.
    pub(crate) fn set_sense(&mut self, key: u8, code: u8, qualifier: u8) {
        let at = if self.data[2] & 0x7f == 0x70 { [4, 14, 15] } else { [3, 4, 5] };
        for (at, value) in at.into_iter().zip([key, code, qualifier]) {
            self.data[at] = value;
        }
    }

    /// Makes the PDU a SCSI Response with this status and neither sense nor residual.
    pub(crate) fn set_status(&mut self, status: u8) {
        self.header[3] = status;
        self.data.clear();
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.data).into_owned()
    }

    /// Replaces `from` by `to` in the text.
    pub(crate) fn replace(&mut self, from: &str, to: &str) {
        self.data = self.text().replace(from, to).into_bytes();
    }

    /// Reads a PDU; `None` at the end of the connection. Where more than a MiB is to follow, returns the header alone.
    pub(crate) fn read(stream: &mut TcpStream, digests: impl Fn() -> Digests) -> Result<Option<(Self, bool)>> {
        let mut pdu = Self::blank(0);
        if stream.read(&mut pdu.header[..1])? == 0 {
            return Ok(None);
        }
        stream.read_exact(&mut pdu.header[1..])?;
        let (lengths, digests) = (pdu.word(4), digests());
        let (ahs, data) = ((lengths >> 24) as usize * 4, (lengths & 0x00ff_ffff) as usize);
        if data > 1 << 20 {
            return Ok(Some((pdu, false)));
        }
        pdu.ahs = read(stream, ahs)?;
        if digests.header {
            let due = digest(&[&pdu.header[..], &pdu.ahs].concat());
            pdu.is_header_damaged = read(stream, 4)? != due;
        }
        let mut padded = read(stream, data.next_multiple_of(4))?;
        if digests.data && data > 0 {
            pdu.is_data_damaged = read(stream, 4)? != digest(&padded);
        }
        padded.truncate(data);
        pdu.data = padded;
        Ok(Some((pdu, true)))
    }

    /// Writes the PDU with digests, which are correct except for the requested damage.
    pub(crate) fn write(&self, stream: &mut impl Write, digests: Digests) -> Result<()> {
        let mut header = self.header;
        header[4..8].copy_from_slice(&((self.ahs.len() as u32 / 4) << 24 | self.data.len() as u32).to_be_bytes());
        let mut bytes = [&header[..], &self.ahs].concat();
        if digests.header {
            let mut digest = digest(&bytes);
            digest[0] ^= u8::from(self.is_header_damaged);
            bytes.extend(digest);
        }
        let mut data = self.data.clone();
        data.resize(data.len().next_multiple_of(4), 0);
        bytes.extend(&data);
        if digests.data && !data.is_empty() {
            let mut digest = digest(&data);
            digest[0] ^= u8::from(self.is_data_damaged);
            bytes.extend(digest);
        }
        stream.write_all(&bytes)
    }
}

fn read(stream: &mut TcpStream, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn digest(bytes: &[u8]) -> [u8; 4] {
    simd::crc32c::crc32c(bytes).to_le_bytes()
}
